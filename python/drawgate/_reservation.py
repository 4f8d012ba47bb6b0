"""Units that are held while a block runs."""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from . import _wire
from ._breaker import Breaker, _Attempt
from ._decide import Decider
from ._errors import Error, HoldLost, Problem, Refused, Unavailable
from ._share import Entry
from ._types import Answer, Json, Key, Target

log = logging.getLogger("drawgate")

CLOCK_RATE = 0.001  # clocks run at different rates: a holder stops earlier by that part of its hold
RENEW_AFTER = 1 / 3  # of the hold
WRONG = ("bad_json", "invalid", "unknown_unit", "never_fits")  # what the block said as used
ENTER = "write `with limiter.reserve(…) as r:`, or `async with`"
RENEW_AGAIN = 1.0  # seconds at most after a renewal that failed


def by_unit(used: Any) -> Mapping[str, int]:
    """Returns what a function that was given as used= has returned, if it may be used as it is."""
    if not isinstance(used, Mapping):
        raise TypeError(f"used= returned {used!r}: it has to return units by name, such as {{'tokens': 500}}")
    return used


class ReservationBase:
    """What reservations for asyncio and for threads have in common.

    Attributes:
        lost: it could not be renewed, or was reset. Stop the work: its units or its slot may belong to
            somebody else by now.
        outcome: after the block: settled, cancelled, gone (it was lost, and counts as estimated),
            unknown (the server did not answer; the hold ends by itself, and counts as estimated), or
            local (the fallback admitted it).
    """

    def __init__(
        self,
        decider: Decider,
        policy: Target,
        key: Key,
        costs: Mapping[str, int] | None,
        *,
        max_wait: float,
        hold: float,
        id: str | None,  # noqa: A002 - as the protocol calls it
        grant: str | None,
        priority: int,
        labels: Mapping[str, str] | None,
        cancel_on: type[BaseException] | tuple[type[BaseException], ...],
        breaker: Breaker | None,
    ) -> None:
        self._decider, self._max_wait, self._hold, self._cancel_on, self._breaker = (
            decider,
            max_wait,
            hold,
            cancel_on,
            breaker,
        )
        self._own = grant is None
        self._unused = threading.Lock()
        self._body = _wire.take_body(policy, key, costs, priority=priority, labels=labels)
        self._body["hold_ms"] = _wire.millis("hold", hold)
        self._body |= {"id": id or secrets.token_hex(16), "grant": grant or _wire.new_grant()}
        self._buckets = _wire.buckets_of(policy, key, costs)
        self._answer: Answer | None = None
        self._used: dict[str, int] = {}
        self._cancelled = False
        self._ended = False
        self._token = ""
        self._end = 0.0  # until when it is certainly open, in this process's time
        self._keeper: asyncio.Task[None] | None = None
        self._attempt: _Attempt | None = None
        self._entries: list[Entry] = []
        self._task: asyncio.Task[Any] | None = None  # to interrupt when the reservation is lost
        self._until = math.inf  # when renewals end, in this process's time
        self._abandoned = False
        self._settles_quietly = False
        self.lost = False
        self.outcome = ""

    @property
    def answer(self) -> Answer:
        """The answer to the take."""
        if self._answer is None:
            raise RuntimeError(f"the reservation has not been entered: {ENTER}")
        return self._answer

    @property
    def id(self) -> str:
        """The reservation's name. With the grant it enters the same reservation again after a crash."""
        return str(self._body["id"])

    @property
    def grant(self) -> str:
        """The number of this take."""
        return str(self._body["grant"])

    def used(self, **costs: int) -> None:
        """Says what was really used, by unit. A unit that is not named stays as estimated.

        It may be called again, as a stream goes on: the last number of each unit counts.
        """
        self._check_entered("used")
        for unit, n in costs.items():
            if not isinstance(n, int) or n < 0:
                raise ValueError(f"used({unit}={n!r}): give a whole number that is not negative")
        if self._ended:
            log.warning("used was called after the reservation had ended, so it changes nothing: call it in the block")
            return
        self._used.update(costs)
        self._cancelled = False

    def _count(self, used: Callable[[Any], Mapping[str, int]] | None, result: Any) -> None:
        """Says what a call has used that was made. Nothing that is wrong with it fails the call from here on."""
        self._settles_quietly = True
        if used:
            try:
                self.used(**by_unit(used(result)))
            except Exception:
                log.exception("what a call has used cannot be read, so the estimate counts")

    def cancel(self) -> None:
        """Says that nothing was used: the block's end gives everything back."""
        self._check_entered("cancel")
        self._cancelled = True

    def _check_entered(self, call: str) -> None:
        if not self._unused.locked():
            raise RuntimeError(f"{call} was called before the reservation was entered, so nothing is held: {ENTER}")

    def __del__(self) -> None:
        if hasattr(self, "outcome") and not self._unused.locked():  # the end of __init__ was reached
            warnings.warn(f"a reservation was never entered, so it limited nothing: {ENTER}", ResourceWarning, 2, self)
            log.warning("a reservation was never entered, so it limited nothing: %s", ENTER)

    def _check_new(self) -> None:
        # A second take with the same grant would be the same one, also while the first one is being given up.
        if not self._unused.acquire(blocking=False):
            raise RuntimeError("a reservation is entered once: call reserve again")

    async def _start(self) -> None:
        if self._breaker:
            self._breaker._check()
        sent, times = time.monotonic(), list[float]()
        ask = self._decider.ask(self._body, self._buckets, self._max_wait, self._own, times=times)
        answer, self._entries = await ask
        if not answer:
            raise Refused(answer)
        self._answer, self._token = answer, answer.reservation
        if self._abandoned:
            self.cancel()
            await self._finish(None)
            return
        now = time.monotonic()
        due = self._hold * RENEW_AFTER - (now - sent)
        if answer.hold:  # it may have waited, or its hold may have begun with an earlier take
            self._end = times[-1] + answer.hold * (1 - CLOCK_RATE)
            due = (self._end - now) * RENEW_AFTER
        else:  # an older server; after a long wait nobody knows the time of the grant
            self._end = self._end_of(sent if due > 0 else now)
        if self._breaker:
            try:
                self._attempt = self._breaker._begin()
            except Error:  # it has opened meanwhile
                self._cancelled = True
                await self._finish(None)
                raise
        if self._token:
            self._keeper = asyncio.get_running_loop().create_task(_keep(weakref.ref(self), max(0.0, due)))

    def _end_of(self, sent: float) -> float:
        return sent + self._hold * (1 - CLOCK_RATE)

    async def _renew(self) -> float | None:
        """Renews the hold. Returns after how many seconds to do it again; None if it is not done any more."""
        sent = time.monotonic()
        if sent >= self._until:
            return None
        if sent >= self._end:
            self._lose("it could not be renewed in time")
            return None
        try:
            body = {"reservation": self._token, "renew_ms": self._body["hold_ms"]}
            data, _ = await self._decider.settle(body, min(self._decider.timeout, self._end - sent))
            if data.get("outcome") == "renewed":
                self._token, self._end = data["reservation"], max(self._end, self._end_of(sent))
                return self._hold * RENEW_AFTER
        except Exception as error:
            if isinstance(error, Problem) and error.code and error.status not in (401, 403):
                self._lose(str(error))
                return None
            log.warning("a hold could not be renewed, and it is tried again: %s", error or repr(error))
            return min(self._hold / 30, RENEW_AGAIN)
        self._lose("it was reset, or its hold had ended")
        return None

    def _lose(self, why: str) -> None:
        self.lost = True
        log.warning("a reservation is lost: %s", why)
        if self._task:
            self._task.cancel()

    async def _finish(self, error: BaseException | None) -> None:
        """Ends the reservation. It is carried out even if the caller is cancelled."""
        self._ended = True
        if self._keeper:
            self._keeper.cancel()
        if self._attempt:
            self._attempt.end(error)
        if isinstance(error, self._cancel_on) and not self._used:
            self._cancelled = True
        self._decider.settled(self._entries, None if self._cancelled else self._used)
        if not self._token:
            self.outcome = "local" if self.answer.fallback else "settled"
            return
        try:
            await asyncio.shield(self._decider.caller.spawn(self._close()))
        except Problem:
            if error is None and not self._settles_quietly:
                raise
            log.exception("what was used could not be settled, so the estimate counts")

    async def _close(self) -> None:
        body: Json = {"reservation": self._token}
        if self._cancelled:
            body["cancel"] = True
        elif self._used:
            body["used"] = self._used
        try:
            data, unsure = await self._decider.settle(body)
        except (Unavailable, Problem) as error:
            self.outcome = "unknown"
            if isinstance(error, Problem) and error.code in WRONG:
                raise
            log.warning("a reservation ends by itself, and counts as estimated: %s", error)
            return
        self.outcome = str(data.get("outcome", ""))
        if self.outcome == "gone" and unsure and time.monotonic() < self._end:
            self.outcome = "cancelled" if self._cancelled else "settled"  # the earlier attempt arrived
        if self.outcome == "gone":
            log.warning("a reservation was gone before it was settled: it counts as estimated")


async def _keep(reservation: weakref.ref[ReservationBase], pause: float | None) -> None:
    """Renews a hold, at first after a pause, until the task is cancelled or nobody has the reservation any more."""
    while pause is not None:
        r = reservation()
        if r is None:
            return
        pause = max(0.0, min(pause, r._end - time.monotonic()))
        del r
        await asyncio.sleep(pause)
        r = reservation()
        if r is None:
            return
        pause = await r._renew()
        del r


class AsyncReservation(ReservationBase):
    """Units, or slots, that are held while the block of an `async with` runs.

    Entering raises `Refused` if they are not granted, `CircuitOpen` if the breaker is open, and
    `Unavailable` if nobody decides. What counts afterwards:

    - what `used` said; units that it did not name count as estimated;
    - nothing if `cancel` was called, or the block ended with an exception of `cancel_on`;
    - otherwise the estimate, also if the block failed: the call may have been carried out.

    If the reservation is lost while the block runs, the block is cancelled and ends with `HoldLost`.
    An error of the settlement is logged, and `outcome` says it: it does not make work fail that was
    done. Only a settlement that is wrong, such as one with an unknown unit, is raised.
    """

    _cancelling = 0

    async def __aenter__(self) -> AsyncReservation:
        self._check_new()
        await self._start()
        self._task = asyncio.current_task()
        if self._task and sys.version_info >= (3, 11):
            self._cancelling = self._task.cancelling()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if not self.lost or task is None:
            await self._finish(error)
            return
        cancelled = error
        if not isinstance(error, asyncio.CancelledError):
            try:
                await asyncio.sleep(0)  # the block has not noticed that it was cancelled
            except asyncio.CancelledError as unnoticed:
                cancelled = unnoticed
        only_lost = sys.version_info < (3, 11) or task.uncancel() <= self._cancelling
        if only_lost and error is not cancelled:
            await self._finish(error)  # the work was done, or has failed by itself
        elif only_lost:
            lost = HoldLost("the reservation was lost, so the work was stopped: its units or slot may be another's")
            await self._finish(lost)
            raise lost from error
        else:  # somebody else cancelled the task too
            await self._finish(cancelled)
            if cancelled is not error and cancelled is not None:
                raise cancelled
