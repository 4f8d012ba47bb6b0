"""How requests are limited, whatever the framework: what the middlewares and the decorators of views have in common."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from . import _wire
from ._async import AsyncLimiter
from ._errors import CircuitOpen, Error, HoldLost, Problem, Refused, Unavailable
from ._http import UNKNOWN, Exempt, Failures, Proxies, Refusal, describe, failure, refusal
from ._types import Answer, Bucket, Key, key_text

GLOBAL = "global"  # the key of the bucket that all callers share

Name: TypeAlias = str | Callable[..., Any]
Units: TypeAlias = int | Callable[..., Any]


class Decision(NamedTuple):
    """What becomes of a request.

    Attributes:
        refusal: why it is not served; None: it passes.
        headers: those that describe the limit.
    """

    refusal: Refusal | None
    headers: dict[str, str]


class ClientLimits:
    """The limits of each client and of the whole API. The arguments are those of `wsgi.RateLimitMiddleware`.

    Attributes:
        proxies: find a request's client.
        free: how many requests more may wait.
    """

    def __init__(
        self,
        limiter: AsyncLimiter,
        *,
        ip: str = "ip",
        api: str = "api",
        exempt: Sequence[str] = ("/health*",),
        max_wait: float = 0.0,
        queue: int = 1000,
        trusted_proxies: Sequence[str] = (),
        proxy_header: str = "X-Forwarded-For",
        enabled: bool = True,
    ) -> None:
        if not ip and not api:
            raise ValueError("ip and api are empty: name at least one policy, or give enabled=False")
        self._limiter, self._ip, self._api, self._enabled = limiter, ip, api, enabled
        self._exempt = Exempt(exempt)
        self.proxies = Proxies(trusted_proxies, proxy_header)
        _wire.millis("max_wait", max_wait)  # says now what is wrong with it
        self._max_wait, self._queue = max_wait, queue
        self.free, self._process = queue, os.getpid()
        self._own = 0 if ip else None  # the position of the client's own bucket
        self._failures = Failures()
        for argument, policy in (("ip", ip), ("api", api)):
            if policy and enabled:
                limiter._remember(policy, by=f"RateLimitMiddleware ({argument}=)")

    def exempts(self, path: str) -> bool:
        """Says whether a request is not limited."""
        return not self._enabled or path in self._exempt

    async def decide(
        self, client: str, during: Callable[[Awaitable[Answer]], Awaitable[Answer]] | None = None
    ) -> Decision:
        """Takes one request of each limit. If it may wait, during does that."""
        buckets = [Bucket(*b) for b in ((self._ip, client), (self._api, GLOBAL)) if b[0]]
        if self._process != (process := os.getpid()):  # it was forked, and what waits does so in its parent
            self.free, self._process = self._queue, process
        waits = self._max_wait > 0 and self.free > 0
        work: Awaitable[Answer] = self._limiter.wait(buckets, max_wait=self._max_wait if waits else 0.0)
        self.free -= waits
        try:
            return _decided(await (during(work) if during and waits else work), self._own, self._failures)
        except Error as error:
            return _undecided(error, self._own, self._failures)
        finally:
            self.free += waits


class ViewTake:
    """A take before a view runs. The arguments are those of `fastapi.take`."""

    def __init__(
        self,
        policy: str,
        key: Name | Key,
        costs: Mapping[str, Units] | None,
        max_wait: float,
        priority: int,
        labels: Mapping[str, str] | None,
    ) -> None:
        if not callable(key):
            key_text(key)  # says now what is wrong with it
        self.policy, self.costs, self._key = policy, costs or {}, key
        self._options: dict[str, Any] = {"max_wait": max_wait, "priority": priority, "labels": labels}
        self._failures = Failures()

    def values(self, *arguments: Any) -> tuple[Any, dict[str, Any]]:
        """Returns the key and the costs of a request, from what belongs to it."""

        def value(v: Any) -> Any:
            return v(*arguments) if callable(v) else v

        return value(self._key), {unit: value(n) for unit, n in self.costs.items()}

    async def decide(
        self, limiter: AsyncLimiter, key: Any, costs: Mapping[str, int], request: MutableMapping[str, Any]
    ) -> Decision:
        """Takes the units. Without a key (None) a request is not limited."""
        if key is None:
            return Decision(None, {})
        who = key_text(key)
        own = 0 if who else None
        try:
            answer = await limiter.wait(self.policy, who, costs=costs, **self._options)
        except Error as error:
            return _undecided(error, own, self._failures, request)
        return _decided(answer, own, self._failures, request)


def _decided(
    answer: Answer, own: int | None, failures: Failures, request: MutableMapping[str, Any] | None = None
) -> Decision:
    failures.decided()
    return Decision(None if answer else refusal(answer, own), describe(answer, own, request))


def _undecided(
    error: Error, own: int | None, failures: Failures, request: MutableMapping[str, Any] | None = None
) -> Decision:
    if isinstance(error, Refused):
        return _decided(error.answer, own, failures, request)
    failures.report(error)
    return Decision(failure(error), {})


def is_of_a_limiter(error: Error) -> bool:
    """Says whether an error is one with which a limiter refuses a request."""
    return isinstance(error, Refused | CircuitOpen | HoldLost | Unavailable | Problem)


def of_a_limiter(error: Error, failures: Failures) -> Decision:
    """Describes an error that a view raised; those of other parts of this package are raised again."""
    if not is_of_a_limiter(error):
        raise error
    return _undecided(error, UNKNOWN, failures)
