"""Limits of views, users and keys in Flask.

    from drawgate.flask import take

    @app.post("/ask")
    @take(limiter, "user", key=lambda: current_user.id)
    def ask(): ...

The limits of addresses and of the whole API are in `drawgate.wsgi`. The manual is docs/python.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from flask import Response, abort, after_this_request, current_app, request

from . import _http
from ._errors import Error
from ._sync import Limiter
from ._types import Key
from ._web import Name, Units, ViewTake, of_a_limiter

__all__ = ["client", "refuse", "route", "take"]

F = TypeVar("F", bound=Callable[..., Any])

HEADERS = "drawgate.headers"  # those of a request, in its environ

_failures = _http.Failures()


def route() -> str:
    """Returns the route of the request, such as /users/<id>: a key that limits each route."""
    return str(request.url_rule)


def client(trusted_proxies: Sequence[str] = (), proxy_header: str = "X-Forwarded-For") -> Callable[[], str]:
    """Makes a key that limits each client: it is the client's address.

    Args:
        trusted_proxies: as in `wsgi.RateLimitMiddleware`, and so is the other.
        proxy_header: see there.
    """
    proxies = _http.Proxies(trusted_proxies, proxy_header)
    return lambda: proxies.key_of(request.environ)


def take(
    limiter: Limiter,
    policy: str = "",
    *,
    key: Name | Key = "",
    costs: Mapping[str, Units] | None = None,
    max_wait: float = 0.0,
    priority: int = 0,
    labels: Mapping[str, str] | None = None,
) -> Callable[[F], F]:
    """Makes a decorator that takes units before a view runs. The route's decorator stands above it.

    A refusal ends the request with status 429; if nobody can decide, the status is 503. The
    application's handlers of these errors are called. The X-RateLimit headers describe the limit
    of the key.

    Args:
        limiter: closed by whoever made it, or when the program ends.
        policy: which policy counts the request.
        key: who is counted: a name, or a function that returns it. Requests for which it returns
            None are not limited. Without a key all callers share the limit. None itself is an error.
        costs: units by name: numbers, or functions that return them.
        max_wait: seconds for which a request that does not pass waits in the server's queue.
        priority: 0 to 9.
        labels: for the history.
    """
    before = ViewTake(policy, key, costs, max_wait, priority, labels)
    limiter._remember(policy, costs)

    def decorate(view: F) -> F:
        @functools.wraps(view)
        def limited(*args: Any, **kwargs: Any) -> Any:
            who, units = before.values()
            refusal, headers = limiter._loop.run(before.decide(limiter._inner, who, units, request.environ))
            _describe(headers | (refusal.retry() if refusal else {}))
            if refusal:
                abort(refusal.status, refusal.detail, response=_response(refusal))
            return current_app.ensure_sync(view)(*args, **kwargs)

        return limited  # type: ignore[return-value]

    return decorate


def refuse(error: Error) -> Response:
    """Answers requests whose views raise an error of a limiter, such as that of a reservation.

    app.register_error_handler(drawgate.Error, refuse)
    """
    refusal, headers = of_a_limiter(error, _failures)
    assert refusal
    response = _response(refusal)
    response.headers.update(headers)
    return response


def _describe(headers: Mapping[str, str]) -> None:
    """Adds headers to what the view returns, or a handler of errors. Those that it sets itself stay."""
    if HEADERS not in request.environ:

        @after_this_request
        def add(response: Any) -> Any:
            for name, value in request.environ[HEADERS].items():
                response.headers.setdefault(name, value)
            return response

    request.environ[HEADERS] = {**request.environ.get(HEADERS, {}), **headers}


def _response(refusal: _http.Refusal) -> Response:
    return Response(refusal.content(), refusal.status, refusal.headers())
