"""Gets decisions about takes: from the server, or without it by the fallback."""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias, TypeVar

from . import _wire
from ._call import Caller
from ._errors import Error, Problem, ServerUnavailable, Unavailable
from ._share import UNKNOWN, Entry, Share
from ._types import Answer, Bucket, Json, Limit, Policy, Status

log = logging.getLogger("drawgate")

T = TypeVar("T")
Fallback: TypeAlias = Literal["closed", "open", "share"]

CHECK_TIMEOUT = 10.0  # seconds at least for a check: when programs start, machines are busy
GIVE_UP_TIMEOUT = 10.0  # seconds for a cancellation in the background
MAX_GIVE_UPS = 128  # at once
ATTEMPTS = 3  # of a take that the fallback decides otherwise
LEARN_AFTER = 60.0  # seconds at least between questions for the policies
LAST_REQUEST = 0.05  # seconds for a request of a call whose time is over
WARN_EVERY = 60.0  # seconds at least between warnings of the same
OFFLINE = 1.0  # seconds after which the server is tried again


class Decider:
    """Asks for units, settles them, and gives up what nobody can use.

    Args:
        caller: sends requests.
        timeout: seconds for a call, in addition to the time for which it may wait.
        fallback: as of `AsyncLimiter`.
        instances: how many processes have a share; None without one.
    """

    def __init__(self, caller: Caller, timeout: float, fallback: Fallback, instances: int | None) -> None:
        self.caller, self.timeout, self._fallback = caller, timeout, fallback
        self._share = Share(instances, time.monotonic()) if instances else None
        self._offline_until = 0.0
        self._warned = False
        self._learned_at = float("-inf")  # when the policies were asked for
        self._giving_up: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            weakref.WeakKeyDictionary()
        )
        self._not_given_back = 0  # reservations, since the last warning
        self._not_given_back_of = ""
        self._warned_of_holds = float("-inf")

    async def aclose(self) -> None:
        """Waits for what is done in the background, and closes connections."""
        await self.caller.aclose()
        if self._not_given_back:
            self._warn_of_holds()

    def read(self, reader: Callable[[Json], T], data: Json) -> T:
        """Reads an answer of the server."""
        try:
            return reader(data)
        except Exception as error:
            raise ServerUnavailable(
                f"the answer of {self.caller.base} cannot be read: is the server of another version? ({error!r})",
                may_have_spent=True,
            ) from error

    async def policies(self, deadline: float) -> tuple[Policy, ...]:
        """Lists the server's policies."""
        data, _ = await self.caller.call("GET", "/v1/policies", None, again=True, timeout=_left(deadline))
        policies = self.read(_wire.policies, data)
        for limit in self._share.learn(policies) if self._share else ():
            log.warning("%s will admit nothing while the server cannot be reached: %s", limit, UNKNOWN)
        return policies

    async def status(self, bucket: Bucket, body: Json) -> Status:
        """Describes a bucket."""
        data, _ = await self.caller.call("POST", "/v1/status", body, again=True)
        status = self.read(_wire.status, data)
        if self._share and not status.take.fallback:
            self._learn_if_outdated([bucket], status.limits)
            self._share.saw([bucket], status.limits, time.monotonic())
        return status

    async def policies_if_reachable(self, deadline: float) -> tuple[Policy, ...] | None:
        """Lists the server's policies. None: the server does not answer, and the fallback decides takes."""
        if self._offline_until and not await self._reachable(deadline):
            return None
        try:
            return await self.policies(deadline)
        except Unavailable as error:
            if self._fallback == "closed":
                raise
            self._went_offline(error)
            return None

    def check_deadline(self) -> float:
        """Returns when a check that begins now ends at the latest."""
        self.caller.prepare()
        return time.monotonic() + max(self.timeout, CHECK_TIMEOUT)

    async def check(self, take: Json, deadline: float) -> None:
        """Says whether the server would decide a take. What it raises is that of `AsyncLimiter.check`."""
        # Only a cancellation needs the same role as a take, names the same things, and never takes anything.
        never_sent = {"id": _wire.new_grant(), "grant": _wire.new_grant(), "hold_ms": 1}
        body = {"take": take | never_sent, "cancel": True}
        attempts = None if self._fallback == "closed" else ATTEMPTS
        try:
            await self.caller.call(
                "POST",
                "/v1/settle",
                body,
                again=True,
                timeout=_left(deadline),
                attempts=attempts,
                question=f"the question whether takes of {_wire.policies_of(take)} are possible",
            )
            if self._share:
                await self.policies(deadline)  # the share is known from now on, also if the server stops before a take
        except Unavailable as error:
            error.may_have_spent = False
            if self._fallback == "closed":
                raise
            log.warning("%s was not checked: %s", _wire.policies_of(take), error)

    async def settle(self, body: Json, timeout: float | None = None) -> tuple[Json, bool]:
        """Settles, cancels or renews what is held. The second value is that of `Caller.call`."""
        return await self.caller.call("POST", "/v1/settle", body, again=True, timeout=timeout)

    def settled(self, entries: Sequence[Entry], used: Mapping[str, int] | None) -> None:
        """Notes in this process's share how a reservation ended. None means that it was cancelled."""
        if self._share:
            self._share.settled(entries, used, time.monotonic())

    async def ask(
        self,
        body: Json,
        buckets: list[Bucket] | None,
        max_wait: float,
        own: bool = False,
        deadline: float | None = None,
        times: list[float] | None = None,
    ) -> tuple[Answer, list[Entry]]:
        """Asks for units. own says that body has a grant that was chosen here: it is given up if nobody can use it.

        The time to wait is not part of the deadline.
        """
        wait_ms = _wire.millis("max_wait", max_wait)
        self.caller.prepare()
        closed = self._fallback == "closed"
        deadline = deadline or time.monotonic() + self.timeout
        if self._offline_until and not await self._reachable(deadline):
            return self._without_server(body, buckets)
        try:
            data, unsure = await self.caller.call(
                "POST",
                "/v1/take",
                body,
                again="grant" in body,
                wait_ms=wait_ms,
                timeout=_left(deadline),
                attempts=None if closed else ATTEMPTS,
                times=times,
            )
            answer = self.read(_wire.answer, data)
        except Problem as problem:
            if own and problem.may_have_spent:
                self._give_up(body)
            raise
        except Unavailable as error:
            if not closed:
                self._went_offline(error)
                answer, entries = self._without_server(body, buckets)
                if answer:  # if the server has granted it as well, that counts as estimated when the hold ends
                    return answer, entries
            if own and error._sent:
                self._give_up(body)
            if closed:
                raise
            return answer, entries
        except BaseException:  # cancelled
            if own:
                self._give_up(body)
            raise
        self._warned = False
        if own and unsure and not answer:
            self._give_up(body)
        return answer, self._note(body, buckets, answer)

    async def _reachable(self, deadline: float) -> bool:
        """Says whether the server answers again, after a call that got no answer. One call at a time tries."""
        now = time.monotonic()
        if now < self._offline_until:
            return False
        self._offline_until = now + self.timeout  # the fallback decides the others meanwhile
        try:
            await self.caller.call("GET", "/healthz", None, again=True, timeout=_left(deadline), attempts=1)
        except Unavailable as error:
            self._went_offline(error)
            return False
        except asyncio.CancelledError:
            self._offline_until = now
            raise
        except Problem:
            pass  # a proxy may not have the path, but something answers
        self._offline_until = 0.0
        return True

    def _went_offline(self, error: Unavailable) -> None:
        self._offline_until = time.monotonic() + OFFLINE
        if not self._warned:
            self._warned = True
            log.warning("takes are decided by the fallback %s: %s", self._fallback, error)

    def _without_server(self, body: Json, buckets: list[Bucket] | None) -> tuple[Answer, list[Entry]]:
        if self._share is None:
            return Answer(allowed=True, fallback=True), []
        answer = self._share.take(buckets, time.monotonic())
        return answer, self._note(body, buckets, answer)

    def _note(self, body: Json, buckets: list[Bucket] | None, answer: Answer) -> list[Entry]:
        if self._share is None or buckets is None:
            return []
        now = time.monotonic()
        if not answer.fallback:
            self._learn_if_outdated(buckets, answer.limits)
        if answer:
            return self._share.granted(buckets, answer, "hold_ms" in body, now)
        if not answer.fallback:
            self._share.saw(buckets, answer.limits, now)
        return []

    def _learn_if_outdated(self, buckets: Sequence[Bucket], limits: Sequence[Limit]) -> None:
        assert self._share
        now = time.monotonic()
        outdated = not self._share.knows(buckets) or self._share.outdated(limits)
        if outdated and now > self._learned_at + LEARN_AFTER:
            self._learned_at = now
            self.caller.spawn(self._learn())

    async def _learn(self) -> None:
        try:
            await self.policies(time.monotonic() + self.timeout)
        except Error as error:
            log.warning(
                "this process does not know its share of the limits, and admits nothing without the server: %s", error
            )

    def _give_up(self, body: Json) -> None:
        """Cancels in the background a take that may be open without anybody knowing its token."""
        gate = self._giving_up.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(MAX_GIVE_UPS))
        self.caller.spawn(self._cancel(body, gate, time.monotonic() + GIVE_UP_TIMEOUT))

    async def _cancel(self, body: Json, gate: asyncio.Semaphore, end: float) -> None:
        given_back = False
        try:
            async with gate:
                if (left := end - time.monotonic()) > 0:
                    await self.settle({"take": body, "cancel": True}, left)
                    given_back = True
        finally:
            if not given_back:
                self._not_given_back += 1
                self._not_given_back_of = _wire.policies_of(body)
                if time.monotonic() >= self._warned_of_holds + WARN_EVERY:
                    self._warn_of_holds()

    def _warn_of_holds(self) -> None:
        """Says whose units may be held for nothing. Keys are not logged."""
        self._warned_of_holds = time.monotonic()
        log.warning(
            "%d reservations that were given up could not be cancelled, the last one of %s: they may be held, "
            "and count, until their holds end",
            self._not_given_back,
            self._not_given_back_of,
        )
        self._not_given_back = 0


def _left(deadline: float) -> float:
    """Returns the time until the deadline of a call that needs several requests; at least a bit."""
    return max(deadline - time.monotonic(), LAST_REQUEST)
