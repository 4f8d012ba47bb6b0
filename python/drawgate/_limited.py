"""The decorator."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from ._async import AsyncLimiter
from ._breaker import Breaker
from ._sync import Limiter
from ._types import Key

F = TypeVar("F", bound=Callable[..., Any])
Name: TypeAlias = str | Callable[..., str]
Units: TypeAlias = int | Callable[..., int]


def limited(
    policy: Name = "",
    *,
    model: Name = "",
    key: Name | Key = "",
    costs: Mapping[str, Units] | None = None,
    limiter: Limiter | AsyncLimiter | None = None,
    used: Callable[[Any], Mapping[str, int]] | None = None,
    max_wait: float = 60.0,
    hold: float = 30.0,
    priority: int = 0,
    labels: Mapping[str, str] | None = None,
    cancel_on: type[BaseException] | tuple[type[BaseException], ...] = (),
    breaker: Breaker | None = None,
) -> Callable[[F], F]:
    """Makes each call of a function, or of a coroutine function, wait for its units and hold them while it runs.

    A name or a number may also be a function, which is called with the arguments of the call:

        @limited("gemini-2.5-flash", costs={"tokens": len}, used=lambda answer: {"tokens": answer.total})
        async def ask(prompt): ...

    Args:
        policy: which policy counts the call.
        model: the model that is called, for the history as the label `model`. It is also the policy
            if none is named, as policies are often named after models.
        key: who is counted.
        costs: units by name.
        limiter: a Limiter, or for coroutine functions also an AsyncLimiter; by default one for the
            server that DRAWGATE_SERVER names.
        used: returns what was really used, from what the function returned. If it fails, that is logged, and
            the estimate counts.
        max_wait: as in `AsyncLimiter.reserve`, and so are the others.
        hold: see there.
        priority: see there.
        labels: see there.
        cancel_on: see there.
        breaker: see there.
    """
    if limiter:
        limiter._remember(policy or model, costs)

    def reserve(limiter: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        def value(v: Any) -> Any:
            return v(*args, **kwargs) if callable(v) else v

        name = value(model)
        return limiter.reserve(
            value(policy) or name,
            value(key),
            max_wait=max_wait,
            hold=hold,
            priority=priority,
            labels={**({"model": name} if name else {}), **(labels or {})},
            cancel_on=cancel_on,
            breaker=breaker,
            costs={unit: value(n) for unit, n in (costs or {}).items()},
        )

    def decorate(function: Any = None, *more: Any, **named: Any) -> Any:
        if more or named or not callable(function):  # without parentheses it is called in place of the function
            raise TypeError("limited decorates one function: write @limited(…), with parentheses")
        name = getattr(function, "__qualname__", repr(function))
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{name} is a generator: use reserve inside of it, where you know when it ends")
        asynchronous = inspect.iscoroutinefunction(function)
        if isinstance(limiter, AsyncLimiter) and not asynchronous:
            raise TypeError(f"{name} is no coroutine function: give it a Limiter")

        if asynchronous:

            @functools.wraps(function)
            async def call_async(*args: Any, **kwargs: Any) -> Any:
                async with reserve(limiter or default_async(), args, kwargs) as r:
                    result = await function(*args, **kwargs)
                    r._count(used, result)
                    return result

            return call_async

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with reserve(limiter or default_sync(), args, kwargs) as r:
                result = function(*args, **kwargs)
                if inspect.isawaitable(result):
                    r.cancel()  # nothing has run
                    if inspect.iscoroutine(result):
                        result.close()
                    raise TypeError(f"{name} returns an awaitable: make it a coroutine function (async def)")
                r._count(used, result)
                return result

        return call

    return decorate


class LimitedAgent:
    """Makes each call of an agent wait for its units and hold them while it runs.

    An agent is any object with `invoke`, `ainvoke`, or both. Each may be a coroutine function:

        agent = LimitedAgent(agent, "gemini-2.5-flash", breaker=Breaker("the model"))
        answer = agent.invoke("why?")

    Args:
        agent: the agent.
        policy: as in `limited`, and so are all others.
        limiter: by default one for the server that DRAWGATE_SERVER names.
        **options: those of `limited`.
    """

    def __init__(self, agent: Any, policy: Name = "", *, limiter: Limiter | None = None, **options: Any) -> None:
        self._agent = agent
        self._limited = limited(policy, limiter=limiter or default_sync(), **options)

    def invoke(self, *args: Any, **kwargs: Any) -> Any:
        """Calls `invoke` of the agent. It returns what that returns: a coroutine if it is a coroutine function."""
        return self._limited(self._agent.invoke)(*args, **kwargs)

    async def ainvoke(self, *args: Any, **kwargs: Any) -> Any:
        """Calls `ainvoke` of the agent."""
        return await self._limited(self._agent.ainvoke)(*args, **kwargs)


@functools.cache
def default_async() -> AsyncLimiter:
    """Returns the limiter of coroutine functions that name none."""
    return AsyncLimiter()


@functools.cache
def default_sync() -> Limiter:
    """Returns the limiter of functions that name none."""
    return Limiter()
