"""Middleware for Django, and limits of views, users and keys.

    MIDDLEWARE = ["drawgate.django.RateLimitMiddleware", *MIDDLEWARE]
    DRAWGATE = {"server": "http://127.0.0.1:7878", "timeout": 1}

    from drawgate.django import take

    @take("user", key=lambda request: request.user.pk)
    def ask(request): ...

The manual is docs/python.md.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings
from django.core.signals import setting_changed
from django.dispatch import receiver
from django.http import HttpResponse
from django.urls import get_resolver

from . import _http
from ._errors import Error
from ._sync import Limiter
from ._types import Key
from ._web import ClientLimits, Decision, Name, Units, ViewTake, is_of_a_limiter, of_a_limiter

__all__ = ["RateLimitMiddleware", "check", "client", "limiter", "route", "take"]

F = TypeVar("F", bound=Callable[..., Any])

_LIMITER = frozenset(inspect.signature(Limiter).parameters)  # which settings are the limiter's


def _settings(of_limiter: bool) -> dict[str, Any]:
    return {name: v for name, v in getattr(settings, "DRAWGATE", {}).items() if (name in _LIMITER) == of_limiter}


@functools.cache
def limiter() -> Limiter:
    """Returns the limiter that the settings describe."""
    return Limiter(**_settings(of_limiter=True))


@functools.cache
def _proxies() -> _http.Proxies:
    options = _settings(of_limiter=False)
    return _http.Proxies(options.get("trusted_proxies", ()), options.get("proxy_header", "X-Forwarded-For"))


@receiver(setting_changed)  # type: ignore[untyped-decorator]
def _changed(*, setting: str, **_: Any) -> None:
    """Tests may override settings."""
    if setting == "DRAWGATE":
        limiter.cache_clear()
        _proxies.cache_clear()


_taken: list[tuple[str, Mapping[str, Units]]] = []  # what the decorators of views take


def check() -> None:
    """Asks the server for the policies that the settings and the views name: see `AsyncLimiter.check`.

    Call it in wsgi.py or asgi.py, after the application was made.
    """
    get_resolver().url_patterns  # noqa: B018 - imports the views
    for policy, costs in _taken:
        limiter()._inner._remember(policy, costs)
    limiter().check()


def route(request: Any) -> str:
    """Returns the route of a request, such as users/<int:id>/: a key that limits each route."""
    return str(request.resolver_match.route)


def client(request: Any) -> str:
    """Returns the address of a request's client, as the middleware counts it: a key that limits each client."""
    scope = getattr(request, "scope", None)
    if scope is None:
        return _proxies().key_of(request.META)
    # In META, names with an underscore and with a hyphen may be the same.
    peer = scope.get("client")
    return _proxies().key(peer[0] if peer else "", scope["headers"])


class RateLimitMiddleware:
    """Takes one request of each client's limit, and of the whole API's, before the rest of Django runs.

    It does what `wsgi.RateLimitMiddleware` does, also under ASGI. The setting DRAWGATE has the
    arguments of that and of `Limiter`, by name. If a view raises an error of a limiter, such as
    that of a reservation, the request is refused.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[Any], Any]) -> None:
        self._get_response, self._limiter = get_response, limiter()
        self._limits = ClientLimits(self._limiter._inner, **_settings(of_limiter=False))
        self._failures = _http.Failures()
        self._asynchronous = iscoroutinefunction(get_response)
        if self._asynchronous:
            markcoroutinefunction(self)

    def __call__(self, request: Any) -> Any:
        """Serves a request."""
        if self._asynchronous:
            return self._serve(request)
        if self._limits.exempts(request.path_info):
            return self._get_response(request)
        decision = self._limiter._loop.run(self._limits.decide(client(request)))
        return _refusal(request, decision) or _described(self._get_response(request), decision)

    async def _serve(self, request: Any) -> Any:
        if self._limits.exempts(request.path_info):
            return await self._get_response(request)
        decision = await self._limiter._loop.wait(self._limits.decide(client(request)))
        return _refusal(request, decision) or _described(await self._get_response(request), decision)

    def process_exception(self, request: Any, error: Exception) -> Any:
        """Answers requests whose views raise an error of a limiter."""
        if not isinstance(error, Error) or not is_of_a_limiter(error):
            return None
        return _refusal(request, of_a_limiter(error, self._failures))


def take(
    policy: str = "",
    *,
    key: Name | Key = "",
    costs: Mapping[str, Units] | None = None,
    max_wait: float = 0.0,
    priority: int = 0,
    labels: Mapping[str, str] | None = None,
) -> Callable[[F], F]:
    """Makes a decorator that takes units before a view runs, or a coroutine function.

    A refusal is answered with 429; if nobody can decide, with 503. The X-RateLimit headers describe
    the limit of the key. For classes there is Django's method_decorator, with name="dispatch".

    Args:
        policy: which policy counts the request.
        key: who is counted: a name, or a function of the request that returns it; for a coroutine
            function it may be one, too. Requests for which it returns None are not limited. Without
            a key all callers share the limit. None itself is an error.
        costs: units by name: numbers, or functions of the request that return them.
        max_wait: seconds for which a request that does not pass waits in the server's queue.
        priority: 0 to 9.
        labels: for the history.
    """
    before = ViewTake(policy, key, costs, max_wait, priority, labels)
    _taken.append((policy, before.costs))

    def decorate(view: F) -> F:
        def decide(request: Any, who: Any, units: Mapping[str, int]) -> Coroutine[Any, Any, Decision]:
            return before.decide(limiter()._inner, who, units, request.META)

        if iscoroutinefunction(view):

            @functools.wraps(view)
            async def limited_async(request: Any, *args: Any, **kwargs: Any) -> Any:
                who, units = before.values(request)
                who = await who if inspect.isawaitable(who) else who
                decision = await limiter()._loop.wait(decide(request, who, units))
                return _refusal(request, decision) or _described(await view(request, *args, **kwargs), decision)

            return limited_async  # type: ignore[return-value]

        @functools.wraps(view)
        def limited(request: Any, *args: Any, **kwargs: Any) -> Any:
            decision = limiter()._loop.run(decide(request, *before.values(request)))
            return _refusal(request, decision) or _described(view(request, *args, **kwargs), decision)

        return limited  # type: ignore[return-value]

    return decorate


def _refusal(request: Any, decision: Decision) -> Any:
    """Returns the answer to a request that is not served."""
    refusal, headers = decision
    if refusal is None:
        return None
    content = b"" if request.method == "HEAD" else refusal.content()
    return HttpResponse(content, status=refusal.status, headers=refusal.headers() | headers)


def _described(response: Any, decision: Decision) -> Any:
    for name, value in decision.headers.items():
        response.headers.setdefault(name, value)
    return response
