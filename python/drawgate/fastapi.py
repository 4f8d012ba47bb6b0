"""Limits of routes, users and keys in FastAPI, as dependencies.

    from drawgate.fastapi import reserve, take

    @app.post("/ask", dependencies=[Depends(take(limiter, "user", key=current_user))])
    async def ask(): ...

The limits of addresses and of the whole API are in `drawgate.asgi`. The manual is docs/python.md.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import Any, TypeVar

from fastapi import Depends, HTTPException, Request, Response

from . import _http
from ._async import AsyncLimiter
from ._breaker import Breaker
from ._errors import Error, HoldLost, Refused
from ._reservation import AsyncReservation
from ._types import Answer, Key, key_text
from ._web import Name, Units
from .asgi import ClientLeft, Listener

__all__ = ["client", "reserve", "route", "take"]

T = TypeVar("T")

KEY = "key"  # the name of a dependency's parameter; those of units have the prefix, as units may have any name
COST = "cost_"
CLIENT_LEFT = 499  # nobody sees it but logs


def route(request: Request) -> str:
    """Returns the route of a request, such as /users/{id}: a key that limits each route."""
    return str(request.scope["route"].path)


def client(trusted_proxies: Sequence[str] = (), proxy_header: str = "X-Forwarded-For") -> Callable[[Request], str]:
    """Makes a dependency that returns the address of the client: a key that limits each client.

    A peer without an address, such as one on a Unix socket, or a TestClient that is made without
    client=, counts as "default".

    Args:
        trusted_proxies: as in `asgi.RateLimitMiddleware`, and so is the other.
        proxy_header: see there.
    """
    proxies = _http.Proxies(trusted_proxies, proxy_header)

    def dependency(request: Request) -> str:
        return proxies.key(request.client.host if request.client else "", request.scope["headers"])

    return dependency


def take(
    limiter: AsyncLimiter,
    policy: str = "",
    *,
    key: Name | Key = "",
    costs: Mapping[str, Units] | None = None,
    max_wait: float = 0.0,
    priority: int = 0,
    labels: Mapping[str, str] | None = None,
) -> Callable[..., Any]:
    """Makes a dependency that takes units before a route runs. Its value is the `Answer`.

    A refusal is an `HTTPException` with status 429; if nobody can decide, the status is 503. The
    X-RateLimit headers describe the limit of the key.

    Args:
        limiter: closed by whoever made it.
        policy: which policy counts the request.
        key: who is counted: a name, or a dependency that returns it. Requests for which it returns
            None are not limited. Without a key all callers share the limit. None itself is an error.
        costs: units by name: numbers, or dependencies that return them.
        max_wait: seconds for which a request that does not pass waits in the server's queue.
        priority: 0 to 9.
        labels: for the history.
    """
    failures, costs = _http.Failures(), costs or {}
    _check(key)
    limiter._remember(policy, costs)

    async def dependency(request: Request, response: Response, **values: Any) -> Answer | None:
        who, units = _values(values, key, costs)
        if who is None:
            return None
        own = 0 if who else None
        with _refusals(own, failures):
            if max_wait:
                wait = limiter.wait(policy, who, max_wait=max_wait, priority=priority, labels=labels, costs=units)
                answer = await _while_connected(request, wait)
            else:
                answer = await limiter.take(policy, who, priority=priority, labels=labels, costs=units)
            if not answer:
                raise Refused(answer)
        _describe(request, response, answer, own)
        return answer

    return _with_parameters(dependency, key, costs)


def reserve(
    limiter: AsyncLimiter,
    policy: str = "",
    *,
    key: Name | Key = "",
    costs: Mapping[str, Units] | None = None,
    max_wait: float = 0.0,
    hold: float = 30.0,
    priority: int = 0,
    labels: Mapping[str, str] | None = None,
    cancel_on: type[BaseException] | tuple[type[BaseException], ...] = (),
    breaker: Breaker | None = None,
) -> Callable[..., Any]:
    """Makes a dependency that holds units, or slots, while a route runs, until its response is sent.

    Its value is the `AsyncReservation`, so that the route can say what it really used. What counts
    at the end is described there. If the hold is lost, the route is cancelled, and the status is
    503.

    Args:
        limiter: as in `take`, and so are the others.
        policy: see there.
        key: see there.
        costs: see there.
        max_wait: see there.
        hold: as in `AsyncLimiter.reserve`.
        priority: as in `take`.
        labels: as in `take`.
        cancel_on: as in `AsyncLimiter.reserve`.
        breaker: see there.
    """
    failures, costs = _http.Failures(), costs or {}
    _check(key)
    limiter._remember(policy, costs)

    async def dependency(request: Request, response: Response, **values: Any) -> AsyncIterator[AsyncReservation | None]:
        who, units = _values(values, key, costs)
        if who is None:
            yield None
            return
        own = 0 if who else None
        reservation = limiter.reserve(
            policy,
            who,
            max_wait=max_wait,
            hold=hold,
            priority=priority,
            labels=labels,
            cancel_on=cancel_on,
            breaker=breaker,
            costs=units,
        )
        try:
            async with AsyncExitStack() as stack:
                with _refusals(own, failures):
                    enter = stack.enter_async_context(reservation)
                    await (_while_connected(request, enter) if max_wait else enter)
                _describe(request, response, reservation.answer, own)
                yield reservation
        except HoldLost as lost:
            raise _exception(_http.failure(lost), {}) from lost

    return _with_parameters(dependency, key, costs)


def _with_parameters(dependency: Callable[..., Any], key: Name | Key, costs: Mapping[str, Units]) -> Callable[..., Any]:
    """Gives a dependency its parameters: the request, the response, and what other dependencies find."""
    kinds = inspect.Parameter
    parameters = [
        kinds("request", kinds.POSITIONAL_OR_KEYWORD, annotation=Request),
        kinds("response", kinds.POSITIONAL_OR_KEYWORD, annotation=Response),
    ]
    found = {KEY: key} | {f"{COST}{i}": n for i, n in enumerate(costs.values())}
    for name, value in found.items():
        if callable(value):
            parameters.append(kinds(name, kinds.KEYWORD_ONLY, default=Depends(value), annotation=Any))
    dependency.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return dependency


def _check(key: Any) -> None:
    """Raises a TypeError for a key that no request can have."""
    if not callable(key):
        key_text(key)


def _values(
    values: Mapping[str, Any], key: Name | Key, costs: Mapping[str, Units]
) -> tuple[str | None, dict[str, Any]]:
    """Returns the key and the costs of a request."""
    who = values.get(KEY, key)
    units = {unit: values.get(f"{COST}{i}", n) for i, (unit, n) in enumerate(costs.items())}
    return None if who is None else key_text(who), units


async def _while_connected(request: Request, work: Awaitable[T]) -> T:
    """Does the work, as long as the client has not left."""
    listener = Listener(request.receive)
    request._receive = listener.replay  # the route may still read the body
    return await listener.during(work)


def _describe(request: Request, response: Response, answer: Answer, own: int | None) -> None:
    """Sets the headers, which describe the tightest limit of all dependencies."""
    response.headers.update(_http.describe(answer, own, request.scope))


@contextmanager
def _refusals(own: int | None, failures: _http.Failures) -> Iterator[None]:
    """Turns errors of the limiter into answers."""
    try:
        yield
        failures.decided()
    except ClientLeft as left:
        raise HTTPException(CLIENT_LEFT, "The client has left.") from left
    except Refused as refused:
        failures.decided()
        raise _exception(_http.refusal(refused.answer, own), _http.describe(refused.answer, own)) from refused
    except Error as error:
        failures.report(error)
        raise _exception(_http.failure(error), {}) from error


def _exception(refusal: _http.Refusal, headers: Mapping[str, str]) -> HTTPException:
    return HTTPException(refusal.status, refusal.detail, {**headers, **refusal.retry()})
