"""The limiter for asyncio: the one for threads calls it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import httpx

from . import _wire
from ._breaker import Breaker
from ._call import Caller
from ._decide import Decider, Fallback
from ._errors import Problem, Refused
from ._reservation import AsyncReservation
from ._types import UNIT_REQUESTS, Answer, Bucket, Key, Policy, Status, Target


class AsyncLimiter:
    """Asks a Drawgate server for units, from programs with asyncio.

    A call takes at most `timeout` seconds, in addition to the time for which it may wait in the
    server's queue. Calls that do no harm when they are carried out twice are sent again within that
    time: reservations, settlements and queries. A plain take is sent once; if its answer is lost,
    its units may be spent (`Error.may_have_spent`).

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
        base = _wire.server_url(server or os.environ.get("DRAWGATE_SERVER") or _wire.DEFAULT_SERVER)
        token = token if token is not None else os.environ.get("DRAWGATE_TOKEN", "")
        if not all("!" <= c <= "~" for c in token):  # its text must not be part of any error
            raise ValueError("the access token has a character that no header can have, such as a space or a line end")
        if not 0 < timeout < float("inf"):
            raise ValueError(f"timeout is {timeout}: give a number of seconds")
        if fallback not in ("closed", "open", "share"):
            raise ValueError(f'fallback is {fallback!r}: give "closed", "open" or "share"')
        if (fallback == "share") != (instances is not None) or (instances is not None and instances < 1):
            raise ValueError('fallback="share" needs instances, the number of processes, and nothing else does')
        self._caller = Caller(base, token, timeout, transport)
        self._decider = Decider(self._caller, timeout, fallback, instances)
        self._policies: tuple[Policy, ...] = ()  # those that is_allowed knows
        self._named: list[tuple[Bucket, str]] = []  # what check asks for, and by what it is named

    async def __aenter__(self) -> AsyncLimiter:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Waits for what is done in the background, at most 10 s or `timeout`, and closes connections."""
        await self._decider.aclose()

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
        answer, _ = await self._decider.ask(body, _wire.buckets_of(policy, key, costs), 0.0)
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
        answer, _ = await self._decider.ask(body, _wire.buckets_of(policy, key, costs), max_wait)
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
            self._decider,
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
        bucket = Bucket(policy, identifier, {unit: tokens})
        answer, _ = await self._decider.ask(_wire.bucket_body(bucket), [bucket], timeout if wait else 0.0)
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
        self._caller.prepare()
        deadline = time.monotonic() + self._decider.timeout
        name, limit_name = await self._rolling(limit, window, policy, deadline)
        body = _wire.take_body(name, identifier, {})
        answer, _ = await self._decider.ask(body, [Bucket(name, identifier)], 0.0, deadline=deadline)
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
            policies = await self._decider.policies_if_reachable(deadline)
            if policies is None:
                return policy, ""  # the fallback decides
            self._policies = policies
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
        bucket = Bucket(policy, key, {} if costs is None else costs, tenant)
        body = _wire.bucket_body(bucket)
        if priority:
            body["priority"] = priority
        return await self._decider.status(bucket, body)

    async def pause(
        self, policy: str, key: Key = "", *, seconds: float, reason: str = "", tenant: str = ""
    ) -> datetime:
        """Makes a bucket refuse every take for a time, for everybody, and returns until when.

        That is later than asked for if the bucket was already paused for longer: only `unpause`
        ends a pause early. For administrators: the server's address is its address for them.
        """
        body = _wire.bucket_body(Bucket(policy, key, {}, tenant))
        body |= {"for_ms": _wire.millis("seconds", seconds), "reason": reason}
        data, _ = await self._caller.call("POST", "/v1/pause", body, again=True)
        return self._decider.read(_wire.paused, data)

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
        body = _wire.bucket_body(Bucket(policy, key, {}, tenant))
        body |= {"until": until.isoformat(), "reason": reason}
        data, _ = await self._caller.call("POST", "/v1/unpause", body, again=True)
        return self._decider.read(lambda d: _wire.instant(d.get("until")), data)

    async def check(self, policy: str | None = None, *, costs: Mapping[str, int] | None = None) -> None:
        """Asks the server whether this limiter may take these units from a policy. Nothing is spent.

        How many they are makes no difference. It takes at most 10 s, or `timeout` if that is longer.

        Without a policy it asks for all that the middleware, the decorators and the dependencies of
        this limiter name. Call it when the program starts.

        Raises:
            Problem: the policy or a unit does not exist, or the token may not take.
            Unavailable: nobody answers. If takes have a fallback then, that is logged instead.
            ValueError: there is no policy, and nothing names one.
        """
        asked = self._named if policy is None else [(Bucket(policy, costs=costs or {}), "")]
        if not asked:
            raise ValueError("no middleware, decorator or dependency of this limiter names a policy: name one here")
        deadline = self._decider.check_deadline()
        for bucket, by in asked:
            try:
                await self._decider.check(_wire.bucket_body(bucket), deadline)
            except Problem as problem:
                if by:
                    problem.args = (f"{problem} (named by {by})",)
                raise

    def _remember(self, policy: object, costs: Mapping[str, object] | None = None, by: str = "") -> None:
        """Notes what check asks for, and by what it is named. What functions choose is known only later."""
        known = {unit: n if isinstance(n, int) else 0 for unit, n in (costs or {}).items()}
        if isinstance(policy, str) and (bucket := Bucket(policy, costs=known)) not in [b for b, _ in self._named]:
            self._named.append((bucket, by))

    async def policies(self) -> tuple[Policy, ...]:
        """Lists the server's policies."""
        return await self._decider.policies(time.monotonic() + self._decider.timeout)
