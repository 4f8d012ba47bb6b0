"""The limiter for asyncio, which has all of the logic: the one for threads calls it."""

from __future__ import annotations

import asyncio
import logging
import os
import time
import weakref
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal, TypeAlias, TypeVar

import httpx

from . import _wire
from ._breaker import Breaker
from ._call import Caller
from ._errors import Error, Problem, Refused, ServerUnavailable, Unavailable
from ._reservation import AsyncReservation
from ._share import Entry, Share
from ._types import UNIT_REQUESTS, Answer, Bucket, Json, Key, Policy, Status, Target

log = logging.getLogger("drawgate")

T = TypeVar("T")
Fallback: TypeAlias = Literal["closed", "open", "share"]

GIVE_UP_TIMEOUT = 10.0  # seconds for a cancellation in the background
MAX_GIVE_UPS = 128  # at once
ATTEMPTS = 3  # of a take that the fallback decides otherwise
LEARN_AFTER = 60.0  # seconds at least between questions for the policies
LAST_REQUEST = 0.05  # seconds for a request of a call whose time is over
WARN_EVERY = 60.0  # seconds at least between warnings of the same
OFFLINE = 1.0  # seconds after which the server is tried again


class AsyncLimiter:
    """Asks a Drawgate server for units, from programs with asyncio.

    A call takes at most `timeout` seconds, in addition to the time for which it may wait in the
    server's queue. Calls that do no harm when they are carried out twice are sent again within that
    time: reservations, settlements and queries. A plain take is sent once; if its answer is lost,
    its units may be spent (`Error.maybe`).

    It may be used in several event loops. Close it, or use it in `async with`, so that reservations
    that were given up are given back before the program ends.

    Args:
        server: such as http://127.0.0.1:7878; by default DRAWGATE_SERVER, or else that address.
        token: the access token; by default DRAWGATE_TOKEN.
        timeout: seconds.
        fallback: what a take gets if nobody decides it. closed: the error `Unavailable`, so nothing
            is admitted. open: everything passes. share: this process's part of the limits, amount ÷
            instances.
        instances: how many processes have a share.
        transport: sends the requests; by default one without proxies that believes the authorities
            in SSL_CERT_FILE, or else those of certifi.
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        token: str | None = None,
        timeout: float = 10.0,
        fallback: Fallback = "closed",
        instances: int | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._base = _wire.server_url(server or os.environ.get("DRAWGATE_SERVER") or _wire.DEFAULT_SERVER)
        token = token if token is not None else os.environ.get("DRAWGATE_TOKEN", "")
        if not all("!" <= c <= "~" for c in token):  # its text must not be part of any error
            raise ValueError("the access token has a character that no header can have, such as a space or a line end")
        if not 0 < timeout < float("inf"):
            raise ValueError(f"timeout is {timeout}: give a number of seconds")
        self._timeout = timeout
        if fallback not in ("closed", "open", "share"):
            raise ValueError(f'fallback is {fallback!r}: give "closed", "open" or "share"')
        if (fallback == "share") != (instances is not None) or (instances is not None and instances < 1):
            raise ValueError('fallback="share" needs instances, the number of processes, and nothing else does')
        self._fallback = fallback
        self._share = Share(instances, time.monotonic()) if instances else None
        self._offline_until = 0.0
        self._warned = False
        self._learned_at = float("-inf")  # when the policies were asked for
        self._policies: tuple[Policy, ...] = ()
        self._giving_up: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            weakref.WeakKeyDictionary()
        )
        self._not_given_back = 0  # reservations, since the last warning
        self._not_given_back_of = ""
        self._warned_of_holds = float("-inf")
        self._caller = Caller(self._base, token, timeout, transport)

    async def __aenter__(self) -> AsyncLimiter:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Waits for what is done in the background, at most 10 s or `timeout`, and closes connections."""
        await self._caller.aclose()
        if self._not_given_back:
            self._warn_of_holds()

    async def take(
        self,
        policy: Target = "",
        key: Key = "",
        *,
        costs: Mapping[str, int] | None = None,
        priority: int = 0,
        labels: Mapping[str, str] | None = None,
    ) -> Answer:
        """Takes units now, or none. A refusal is an answer: look whether it is true.

        Args:
            policy: by its name; or a list of buckets, all or nothing; or attributes for the rules.
            key: who is counted: text, or an id such as an int or a UUID.
            costs: units by name, such as {"tokens": 400}.
            priority: 0 to 9.
            labels: for the history.
        """
        body = _wire.take_body(policy, key, costs, priority=priority, labels=labels)
        answer, _ = await self._ask(body, _wire.buckets_of(policy, key, costs), 0.0)
        return answer

    async def wait(
        self,
        policy: Target = "",
        key: Key = "",
        *,
        costs: Mapping[str, int] | None = None,
        max_wait: float = 60.0,
        priority: int = 0,
        labels: Mapping[str, str] | None = None,
    ) -> Answer:
        """Takes units, and waits for them in the server's queue for at most max_wait seconds.

        Raises:
            Refused: they were not granted, or will not be in time.
        """
        body = _wire.take_body(policy, key, costs, priority=priority, labels=labels)
        answer, _ = await self._ask(body, _wire.buckets_of(policy, key, costs), max_wait)
        if not answer:
            raise Refused(answer)
        return answer

    def reserve(
        self,
        policy: Target = "",
        key: Key = "",
        *,
        costs: Mapping[str, int] | None = None,
        max_wait: float = 60.0,
        hold: float = 30.0,
        id: str | None = None,  # noqa: A002 - as the protocol calls it
        grant: str | None = None,
        priority: int = 0,
        labels: Mapping[str, str] | None = None,
        cancel_on: type[BaseException] | tuple[type[BaseException], ...] = (),
        breaker: Breaker | None = None,
    ) -> AsyncReservation:
        """Holds units, or slots, while a block runs: see `AsyncReservation`.

        Args:
            policy: as in `take`.
            key: as in `take`.
            costs: an estimate, by unit.
            max_wait: seconds to wait in the server's queue; 0 answers now.
            hold: seconds after which the units of a process that died count as used, and its slots
                are free. While the block runs, the hold is renewed.
            id: a name for the reservation, which no other open one may have; by default random.
            grant: 16 hexadecimal digits, to enter the same reservation again after a crash; by
                default random. Whoever chooses it also has to give it up.
            priority: 0 to 9.
            labels: for the history.
            cancel_on: exceptions which mean that nothing was used.
            breaker: stops calls to an upstream that fails.
        """
        return AsyncReservation(
            self,
            policy,
            key,
            costs,
            max_wait=max_wait,
            hold=hold,
            id=id,
            grant=grant,
            priority=priority,
            labels=labels,
            cancel_on=cancel_on,
            breaker=breaker,
        )

    async def acquire(
        self,
        identifier: Key,
        tokens: int = 1,
        wait: bool = True,
        timeout: float = 60.0,
        *,
        policy: str = "",
        unit: str = "requests",
    ) -> bool:
        """Takes tokens, now or after waiting for at most timeout seconds, and says whether it got them.

        Args:
            identifier: who is counted.
            tokens: how many units.
            wait: whether to wait in the server's queue.
            timeout: seconds, if it waits.
            policy: by its name; "" is the only one of the server.
            unit: what is counted.
        """
        body = _wire.take_body(policy, identifier, {unit: tokens})
        answer, _ = await self._ask(body, [Bucket(policy, identifier, {unit: tokens})], timeout if wait else 0.0)
        return answer.allowed

    async def is_allowed(
        self, identifier: Key, limit: int, window: float, *, policy: str = ""
    ) -> tuple[bool, dict[str, Any]]:
        """Takes one request under the policy that has a rolling limit of `limit` requests in `window` seconds.

        Limits are configured on the server, so these numbers choose one and do not set it. All other
        limits of that policy count as well.

        Returns:
            whether it may pass, and limit, remaining, reset_at and retry_after of that limit.

        Raises:
            LookupError: no policy, or more than one, has this limit.
        """
        deadline = time.monotonic() + self._timeout
        name, limit_name = await self._rolling(limit, window, policy, deadline)
        body = _wire.take_body(name, identifier, {})
        answer, _ = await self._ask(body, [Bucket(name, identifier)], 0.0, deadline=deadline)
        found = next((m for m in answer.limits if m.name == limit_name), None)
        if not answer.fallback and (found is None or found.amount != limit):
            self._policies = ()  # the server's configuration has changed: look again next time
        return answer.allowed, {
            "limit": found.amount if found else limit,
            "remaining": found.remaining if found else 0,
            "reset_at": found.reset_at if found else answer.reset_at,
            "retry_after": answer.retry_after,
        }

    async def _rolling(self, limit: int, window: float, policy: str, deadline: float) -> tuple[str, str]:
        def matches() -> list[tuple[str, str]]:
            return [
                (p.name, m.name)
                for p in self._policies
                if policy in ("", p.name) and not p.shadow
                for m in p.limits
                if (m.kind, m.unit, m.amount, m.window) == ("rolling", UNIT_REQUESTS, limit, window)
            ]

        found = matches()
        if not found:
            if self._offline_until and not await self._reachable(deadline):
                return policy, ""  # the fallback decides
            try:
                self._policies = await self._list(deadline)
            except Unavailable as error:
                if self._fallback == "closed":
                    raise
                self._went_offline(error)
                return policy, ""
            found = matches()
        if len(found) == 1:
            return found[0]
        what = f"a rolling limit of {limit} requests in {window:g} s"
        if found:
            raise LookupError(f"several policies have {what}: name one of {', '.join(p for p, _ in found)} as policy")
        raise LookupError(f"no policy {policy or 'of the server'} has {what}: add one to the server's file")

    async def status(
        self,
        policy: str = "",
        key: Key = "",
        *,
        costs: Mapping[str, int] | None = None,
        priority: int = 0,
        tenant: str = "",
    ) -> Status:
        """Describes a bucket, and what a take of these costs would get. Nothing is spent."""
        body = Bucket(policy, key, {} if costs is None else costs, tenant).body() | (
            {"priority": priority} if priority else {}
        )
        data, _ = await self._caller.call("POST", "/v1/status", body, again=True)
        return self._read(_wire.status, data)

    async def pause(
        self, policy: str, key: Key = "", *, seconds: float, reason: str = "", tenant: str = ""
    ) -> datetime:
        """Makes a bucket refuse every take for a time, for everybody, and returns until when.

        That is later than asked for if the bucket was already paused for longer: only `unpause`
        ends a pause early. For administrators: the server's address is its address for them.
        """
        body = Bucket(policy, key, {}, tenant).body() | {"for_ms": _wire.millis("seconds", seconds), "reason": reason}
        data, _ = await self._caller.call("POST", "/v1/pause", body, again=True)
        return self._read(_wire.paused, data)

    async def unpause(
        self, policy: str, key: Key = "", *, until: datetime, reason: str = "", tenant: str = ""
    ) -> datetime | None:
        """Ends the pause of a bucket that ends at `until`, the `paused_until` of its status.

        A pause with another end is left, because somebody else made it meanwhile: then its end is
        returned. None says that the bucket is not paused now. What is used still counts. For
        administrators, as `pause`.
        """
        if until.tzinfo is None:
            raise ValueError("until has no time zone: give the paused_until of a status")
        body = Bucket(policy, key, {}, tenant).body() | {"until": until.isoformat(), "reason": reason}
        data, _ = await self._caller.call("POST", "/v1/unpause", body, again=True)
        return self._read(lambda d: _wire.instant(d.get("until")), data)

    async def policies(self) -> tuple[Policy, ...]:
        """Lists the server's policies."""
        return await self._list(time.monotonic() + self._timeout)

    async def _list(self, deadline: float) -> tuple[Policy, ...]:
        data, _ = await self._caller.call("GET", "/v1/policies", None, again=True, timeout=_left(deadline))
        return self._read(_wire.policies, data)

    def _read(self, reader: Callable[[Json], T], data: Json) -> T:
        try:
            return reader(data)
        except Exception as error:
            raise ServerUnavailable(
                f"the answer of {self._base} cannot be read: is the server of another version? ({error!r})", maybe=True
            ) from error

    # Takes.

    async def _ask(
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
        closed = self._fallback == "closed"
        deadline = deadline or time.monotonic() + self._timeout
        if self._offline_until and not await self._reachable(deadline):
            return self._without_server(body, buckets)
        try:
            data, unsure = await self._caller.call(
                "POST",
                "/v1/take",
                body,
                again="grant" in body,
                wait_ms=wait_ms,
                timeout=_left(deadline),
                attempts=None if closed else ATTEMPTS,
                times=times,
            )
            answer = self._read(_wire.answer, data)
        except Problem as problem:
            if own and problem.maybe:
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
        self._offline_until = now + self._timeout  # the fallback decides the others meanwhile
        try:
            await self._caller.call("GET", "/healthz", None, again=True, timeout=_left(deadline), attempts=1)
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
        outdated = not self._share.knows(buckets) or self._share.outdated(answer)
        if outdated and not answer.fallback and now > self._learned_at + LEARN_AFTER:
            self._learned_at = now
            self._caller.spawn(self._learn(self._share))
        return self._share.granted(buckets, answer, "hold_ms" in body, now) if answer else []

    async def _learn(self, share: Share) -> None:
        try:
            share.learn(await self.policies())
        except Error as error:
            log.warning(
                "this process does not know its share of the limits, and admits nothing without the server: %s", error
            )

    def _give_up(self, body: Json) -> None:
        """Cancels in the background a take that may be open without anybody knowing its token."""
        gate = self._giving_up.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(MAX_GIVE_UPS))
        self._caller.spawn(self._cancel(body, gate, time.monotonic() + GIVE_UP_TIMEOUT))

    async def _cancel(self, body: Json, gate: asyncio.Semaphore, end: float) -> None:
        given_back = False
        try:
            async with gate:
                if (left := end - time.monotonic()) > 0:
                    await self._settle({"take": body, "cancel": True}, left)
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

    async def _settle(self, body: Json, timeout: float | None = None) -> tuple[Json, bool]:
        return await self._caller.call("POST", "/v1/settle", body, again=True, timeout=timeout)


def _left(deadline: float) -> float:
    """Returns the time until the deadline of a call that needs several requests; at least a bit."""
    return max(deadline - time.monotonic(), LAST_REQUEST)
