"""The limiter for threads: it runs the one for asyncio in a thread of its own."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Coroutine, Mapping
from types import TracebackType
from typing import Any, TypeVar

import httpx

from ._async import AsyncLimiter, Fallback
from ._breaker import Breaker
from ._errors import Error
from ._reservation import ReservationBase
from ._wire import Answer, Policy, Status, Target

T = TypeVar("T")


class _Loop:
    """An event loop in a thread, which is started when it is first used, and again in a process that was forked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._left: list[object] = []  # of the parent process: finalizing it here would disturb it there

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs work to its end. If this thread is interrupted meanwhile, the work is cancelled."""
        future = asyncio.run_coroutine_threadsafe(work, self._start())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _start(self) -> asyncio.AbstractEventLoop:
        if self._pid != os.getpid():
            self._left += [self._loop, self._thread]
            self._lock, self._loop, self._pid = threading.Lock(), None, os.getpid()
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="drawgate", daemon=True)
                self._thread.start()
            return self._loop

    def stop(self, last: Coroutine[Any, Any, None]) -> None:
        """Runs the last work and ends the thread."""
        if self._loop is None or self._pid != os.getpid():
            last.close()
            return
        self.run(last)
        loop, thread = self._loop, self._thread
        self._loop = None
        loop.call_soon_threadsafe(loop.stop)
        if thread:
            thread.join()
        loop.close()


def _stop(loop: _Loop, inner: AsyncLimiter) -> None:
    loop.stop(inner.aclose())


class Limiter:
    """Asks a Drawgate server for units, from programs without asyncio. It is safe for concurrent use.

    The arguments and methods are those of `AsyncLimiter`. Its calls are made by a thread of its own,
    so that none takes longer than it may, whatever the network does.
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
        self._inner = AsyncLimiter(
            server, token=token, timeout=timeout, fallback=fallback, instances=instances, transport=transport
        )
        self._loop = _Loop()
        self._end = weakref.finalize(self, _stop, self._loop, self._inner)  # at the end of the process at the latest

    def __enter__(self) -> Limiter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Waits for what is done in the background, for a few seconds at most, and closes connections."""
        _stop(self._loop, self._inner)

    def take(
        self,
        policy: Target = "",
        key: str = "",
        *,
        priority: int = 0,
        labels: Mapping[str, str] | None = None,
        **costs: int,
    ) -> Answer:
        """Takes units now, or none: see `AsyncLimiter.take`."""
        return self._loop.run(self._inner.take(policy, key, priority=priority, labels=labels, **costs))

    def wait(
        self,
        policy: Target = "",
        key: str = "",
        *,
        max_wait: float = 60.0,
        priority: int = 0,
        labels: Mapping[str, str] | None = None,
        **costs: int,
    ) -> Answer:
        """Takes units, and waits for them: see `AsyncLimiter.wait`."""
        return self._loop.run(
            self._inner.wait(policy, key, max_wait=max_wait, priority=priority, labels=labels, **costs)
        )

    def reserve(
        self,
        policy: Target = "",
        key: str = "",
        *,
        max_wait: float = 60.0,
        hold: float = 30.0,
        id: str | None = None,  # noqa: A002 - as the protocol calls it
        grant: str | None = None,
        priority: int = 0,
        labels: Mapping[str, str] | None = None,
        cancel_on: type[BaseException] | tuple[type[BaseException], ...] = (),
        breaker: Breaker | None = None,
        **costs: int,
    ) -> Reservation:
        """Holds units, or slots, while a block runs: see `AsyncLimiter.reserve`."""
        return Reservation(
            self._loop,
            self._inner,
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

    def acquire(
        self,
        identifier: str,
        tokens: int = 1,
        wait: bool = True,
        timeout: float = 60.0,
        *,
        policy: str = "",
        unit: str = "requests",
    ) -> bool:
        """Takes tokens, now or after waiting, and says whether it got them: see `AsyncLimiter.acquire`."""
        return self._loop.run(self._inner.acquire(identifier, tokens, wait, timeout, policy=policy, unit=unit))

    def is_allowed(
        self, identifier: str, limit: int, window: float, *, policy: str = ""
    ) -> tuple[bool, dict[str, Any]]:
        """Takes one request under a rolling limit: see `AsyncLimiter.is_allowed`."""
        return self._loop.run(self._inner.is_allowed(identifier, limit, window, policy=policy))

    def status(self, policy: str = "", key: str = "", *, priority: int = 0, tenant: str = "", **costs: int) -> Status:
        """Describes a bucket: see `AsyncLimiter.status`."""
        return self._loop.run(self._inner.status(policy, key, priority=priority, tenant=tenant, **costs))

    def policies(self) -> tuple[Policy, ...]:
        """Lists the server's policies."""
        return self._loop.run(self._inner.policies())


class Reservation(ReservationBase):
    """Units, or slots, that are held while the block of a `with` runs.

    It is as `AsyncReservation`, except that a thread cannot be interrupted: if the reservation is
    lost, the block goes on. Long work looks at `lost` and stops.
    """

    def __init__(self, loop: _Loop, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._loop = loop

    def __enter__(self) -> Reservation:
        self._check_new()
        try:
            self._loop.run(self._start())
        except Error:
            raise
        except BaseException as error:  # the thread was interrupted, perhaps when the take had just been granted
            self._loop.run(self._abandon(error))
            raise
        return self

    async def _abandon(self, error: BaseException) -> None:
        if self._answer is not None:
            self.cancel()
            await self._finish(error)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._loop.run(self._finish(error))
