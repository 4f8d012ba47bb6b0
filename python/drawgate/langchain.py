"""A rate limiter for chat models of LangChain and LangGraph.

    from drawgate.langchain import RateLimiter

    limiter = RateLimiter("gpt", costs={"tokens": 2_000})
    model = ChatOpenAI(model="gpt-4.1-mini", max_retries=0, rate_limiter=limiter)

The manual is docs/python.md.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.outputs import LLMResult
from langchain_core.rate_limiters import BaseRateLimiter
from langchain_core.tracers.context import register_configure_hook

from ._async import AsyncLimiter
from ._breaker import Breaker
from ._errors import Error, Refused
from ._limited import default_sync
from ._sync import Limiter, Reservation
from ._types import Key

__all__ = ["Call", "RateLimiter"]

log = logging.getLogger("drawgate")

LONGEST = 3600.0  # seconds for which a call is renewed whose end is never reported
MAX_OUTPUT = ("max_tokens", "max_completion_tokens", "max_output_tokens")  # how models name it

REPORTED = {"tokens": "total_tokens", "input_tokens": "input_tokens", "output_tokens": "output_tokens"}  # by unit

# What clients raise, by the names of classes, when they could not connect: httpx, httpx2, aiohttp, urllib3 and Python.
NOT_SENT = {
    "ConnectError",
    "ConnectTimeout",
    "PoolTimeout",
    "ClientConnectorError",
    "NewConnectionError",
    "ConnectionRefusedError",
    "gaierror",
}


@dataclass(frozen=True)
class Call:
    """A call of a chat model, before it is made.

    Attributes:
        model: its name, as far as it is known.
        messages: the prompt.
        max_tokens: of the answer, as far as it is known.
    """

    model: str = ""
    messages: Sequence[BaseMessage] = ()
    max_tokens: int | None = None

    def estimate(self, output: int) -> int:
        """Returns about how many tokens it will use: those of the prompt, and max_tokens, or else output."""
        return count_tokens_approximately(self.messages) + (self.max_tokens or output)


Name: TypeAlias = str | Callable[[Call], str]
Units: TypeAlias = int | Callable[[Call], int]


class RateLimiter(BaseRateLimiter):
    """Makes each call of a chat model wait for its units, and settles them when the call has ended.

    Give it to a model as `rate_limiter`. Before a call it waits in the server's queue and holds an
    estimate. After the call, what the model has reported as used counts (`usage_metadata`). If
    nothing was reported, or the call has failed, the estimate counts; nothing counts if the client
    could not even connect. Answers from a cache take nothing. A call whose units are not granted
    ends with `Refused`.

    The model's own retries are not seen: give it `max_retries=0`, and use `with_retry`.

    Args:
        policy: which policy counts the call: a name, or a function of the `Call`.
        key: who is counted, likewise.
        costs: an estimate, by unit: numbers, or functions of the `Call`.
        limiter: by default one for the server that DRAWGATE_SERVER names.
        used: what counts, from the `usage_metadata`; by default tokens, input_tokens and
            output_tokens, each if it is among the costs.
        max_wait: seconds.
        hold: as in `AsyncLimiter.reserve`.
        priority: 0 to 9.
        labels: for the history. The label `model` is added.
        cancel_on: more exceptions which mean that nothing was used.
        breaker: stops calls to a model that fails.
    """

    def __init__(
        self,
        policy: Name = "",
        *,
        key: Name | Key = "",
        costs: Mapping[str, Units] | None = None,
        limiter: Limiter | None = None,
        used: Callable[[Mapping[str, Any]], Mapping[str, int]] | None = None,
        max_wait: float = 60.0,
        hold: float = 30.0,
        priority: int = 0,
        labels: Mapping[str, str] | None = None,
        cancel_on: type[BaseException] | tuple[type[BaseException], ...] = (),
        breaker: Breaker | None = None,
    ) -> None:
        if isinstance(limiter, AsyncLimiter):
            raise TypeError("give RateLimiter a Limiter: it serves coroutines as well")
        self._policy, self._key, self._limiter, self._used, self._max_wait = policy, key, limiter, used, max_wait
        self._hold, self._priority, self._labels, self._costs = hold, priority, labels or {}, dict(costs or {})
        self._cancel_on, self._breaker = cancel_on, breaker
        if limiter:
            limiter._remember(policy, costs)

    def __deepcopy__(self, _: Any) -> RateLimiter:
        return self  # copies of a model share its limits

    def acquire(self, *, blocking: bool = True) -> bool:
        """Takes the units of a call. Chat models call it, and do not look at what it returns.

        Raises:
            Refused: they were not granted in time, and blocking is true.
        """
        run, reservation = self._next(blocking)
        try:
            reservation.__enter__()
        except Refused:
            if blocking:
                raise
            return False
        self._granted(run, reservation)
        return True

    async def aacquire(self, *, blocking: bool = True) -> bool:
        """Takes the units of a call: see `acquire`."""
        run, reservation = self._next(blocking)
        try:
            await reservation.__aenter__()
        except Refused:
            if blocking:
                raise
            return False
        self._granted(run, reservation)
        if run and (task := asyncio.current_task()):
            run.watch(task)
        return True

    def _next(self, blocking: bool) -> tuple[_Run | None, Reservation]:
        """Returns the run that asks, if it is certain which one, and its reservation."""
        runs = _waiting()
        run = runs[0] if len(runs) == 1 and runs[0].claim() else None
        calls = [r.call for r in runs] or [Call()]

        def name(v: Any) -> Any:
            return v(calls[-1]) if callable(v) else v

        model = calls[-1].model
        costs: dict[str, Any] = {unit: max(map(n, calls)) if callable(n) else n for unit, n in self._costs.items()}
        return run, (self._limiter or default_sync()).reserve(
            name(self._policy),
            name(self._key),
            max_wait=self._max_wait if blocking else 0.0,
            hold=self._hold,
            priority=self._priority,
            labels={**({"model": model} if model else {}), **self._labels},
            cancel_on=self._cancel_on,
            breaker=self._breaker,
            costs=costs,
        )

    def _granted(self, run: _Run | None, reservation: Reservation) -> None:
        if run is None:  # nobody can say when it ends: the estimate counts
            _settle(reservation, None)
        else:
            run.hold(reservation, self._units)

    def _units(self, usage: Mapping[str, Any]) -> Mapping[str, int]:
        """Returns what counts, by unit, of what a model has reported."""
        if self._used:
            return self._used(usage)
        reported = {unit: usage.get(name) for unit, name in REPORTED.items() if unit in self._costs}
        return {unit: n for unit, n in reported.items() if isinstance(n, int)}


# What asks for units knows nothing about the call. So a handler notes each run of a chat model in
# the context that it begins in, and a call of acquire belongs to the run of its context that has
# begun, has not ended, and has not been granted anything yet. If there are several such runs, as
# when several prompts are given to generate(), nobody knows which of them it is: then what is taken
# belongs to none of them, and is settled at once.

_started: ContextVar[tuple[_Run, ...]] = ContextVar("drawgate_started", default=())
_lock = threading.RLock()  # the garbage collector may end a stream while its thread holds the lock
_runs: weakref.WeakValueDictionary[UUID, _Run] = weakref.WeakValueDictionary()  # guarded by _lock
_held: dict[UUID, _Run] = {}  # guarded by _lock: the runs with a reservation


def _forked() -> None:
    """Begins a forked process: another thread may have held the lock, and the runs are the parent's."""
    global _lock
    _lock = threading.RLock()
    _runs.clear()
    _held.clear()


os.register_at_fork(after_in_child=_forked)


class _Run:
    """A call of a chat model, from its begin to its end."""

    def __init__(self, id: UUID, call: Call) -> None:  # noqa: A002 - as LangChain calls it
        self.id, self.call, self.begun = id, call, time.monotonic()
        self.taken = self.ended = False
        self._reservation: Reservation | None = None
        self._task: asyncio.Task[Any] | None = None
        self._units: Callable[[Mapping[str, Any]], Mapping[str, int]] | None = None

    def waits(self) -> bool:
        """Says whether it may still ask for units."""
        return not self.taken and not self.ended and time.monotonic() < self.begun + LONGEST

    def claim(self) -> bool:
        """Says whether units that are taken now are this run's."""
        with _lock:
            mine = self.waits()
            self.taken = self.taken or mine
            return mine

    def hold(self, reservation: Reservation, units: Callable[[Mapping[str, Any]], Mapping[str, int]]) -> None:
        """Keeps a reservation until the run ends."""
        reservation._until = time.monotonic() + LONGEST
        with _lock:
            if not self.ended:
                self._reservation, self._units = reservation, units
                _held[self.id] = self
                return
        _settle(reservation, None)

    def watch(self, task: asyncio.Task[Any]) -> None:
        """Looks at how the task ends that has taken the units."""
        self._task = task
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        """Nothing reports the end of a run whose task was cancelled. Of any other, a report comes at once or never."""
        if task.cancelled():
            self.end(asyncio.CancelledError(), None)
        elif reservation := self._reservation:
            reservation._until = time.monotonic()

    def end(self, error: BaseException | None, usage: Mapping[str, Any] | None) -> None:
        """Settles what the run holds."""
        with _lock:
            reservation, self._reservation, self.ended, self.call = self._reservation, None, True, Call()
            _runs.pop(self.id, None)
            _held.pop(self.id, None)
        if self._task:
            self._task.remove_done_callback(self._task_ended)
        if reservation is None:
            return
        if error is not None and _not_sent(error):
            reservation.cancel()
        elif error is None and usage and self._units:
            reservation._count(self._units, usage)
        _settle(reservation, error)


def _waiting() -> list[_Run]:
    return [run for run in _started.get() if run.waits()]


def _settle(reservation: Reservation, error: BaseException | None) -> None:
    """Ends a reservation in the background, so that nobody waits for it."""

    async def settle() -> None:
        try:
            await reservation._finish(error)
        except Error:
            log.exception("what a call has used could not be settled, so the estimate counts")

    reservation._loop.start(settle())


def _not_sent(error: BaseException | None) -> bool:
    while error is not None:
        if any(c.__name__ in NOT_SENT for c in type(error).__mro__):
            return True
        error = error.__cause__
    return False


class _Handler(BaseCallbackHandler):
    """Notes when runs of chat models begin and end. LangChain calls it for each of them, in their context."""

    run_inline = True
    ignore_chain = ignore_agent = ignore_retriever = ignore_retry = ignore_custom_event = True

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        known = metadata or {}
        params = kwargs.get("invocation_params") or {}
        most = next((n for name in MAX_OUTPUT if isinstance(n := params.get(name), int)), known.get("ls_max_tokens"))
        model = known.get("ls_model_name") or params.get("model") or params.get("model_name") or ""
        run = _Run(run_id, Call(str(model), messages[0], most))
        with _lock:
            _runs[run_id] = run
            for old in list(_held.values()):
                if old.begun + LONGEST < run.begun:
                    _held.pop(old.id, None)  # its end was not reported: it is not renewed any more
        _started.set((*_waiting(), run))

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        messages = [getattr(g, "message", None) for prompt in response.generations for g in prompt]
        self._end(run_id, None, next((u for m in messages if (u := getattr(m, "usage_metadata", None))), None))

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self._end(run_id, error, None)

    def _end(self, run_id: UUID, error: BaseException | None, usage: Mapping[str, Any] | None) -> None:
        with _lock:
            run = _runs.get(run_id)
        if run:
            run.end(error, usage)


_handler: ContextVar[Any] = ContextVar("drawgate_handler", default=_Handler())  # noqa: B039 - it has no state
register_configure_hook(_handler, inheritable=False)
