"""The limiter for threads: it runs the one for asyncio in a thread of its own."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import os
import threading
import weakref
from collections.abc import Collection, Coroutine, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, TypeVar

import httpx

from ._async import AsyncLimiter
from ._breaker import Breaker
from ._decide import Fallback
from ._errors import Error
from ._reservation import ReservationBase
from ._types import Answer, Key, Policy, Status, Target

T = TypeVar("T")

CLOSED = "the limiter was closed during this call"


class _Thread(threading.Thread):
    """Runs an event loop until it is stopped, and closes it."""

    def __init__(self) -> None:
        super().__init__(name="drawgate", daemon=True)
        self.loop = asyncio.new_event_loop()
        self.calls: set[asyncio.Task[Any]] = set()

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.current_task()
        assert task
        self.calls.add(task)
        try:
            return await work
        finally:
            self.calls.discard(task)

    def run(self) -> None:
        self.loop.run_forever()
        self.loop.close()
        _ending.discard(self)


class _Loop:
    """An event loop in a thread, which is started when it is first used, and again in a process that was forked."""

    def __init__(self, inner: AsyncLimiter) -> None:
        self._inner = inner
        self.renew()
        _loops.add(self)

    def renew(self) -> None:
        self._lock = threading.RLock()  # the garbage collector may end a block while its thread holds the lock
        self._thread: _Thread | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs work to its end. If this thread is interrupted meanwhile, the work is cancelled."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("a limiter cannot be called in its own thread, such as by failed= of a breaker")
        future = self.start(work)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise _Closed(CLOSED) from None
        except BaseException:
            future.cancel()
            raise

    async def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs work to its end, for a coroutine of another event loop. If that is cancelled, so is the work."""
        future = self.start(work)
        here = asyncio.wrap_future(future)
        try:
            await asyncio.wait((here,))
        except BaseException:
            future.cancel()
            raise
        if here.cancelled():
            raise _Closed(CLOSED)
        return here.result()

    def start(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Runs work in the background."""
        with self._lock:
            if self._thread is None:
                self._thread = _Thread()
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(self._thread.call(work), self._thread.loop)

    def stop(self) -> _Thread | None:
        """Lets the thread end what it does in the background, and then itself. Nobody may wait in a finalizer."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is None:
            return None
        _ending.add(thread)
        asyncio.run_coroutine_threadsafe(self._end(thread.calls), thread.loop)
        return thread

    async def _end(self, calls: set[asyncio.Task[Any]]) -> None:
        try:
            await _cancel(calls)
            await self._inner.aclose()
            await _cancel(asyncio.all_tasks() - {asyncio.current_task()})
        finally:
            asyncio.get_running_loop().stop()


async def _cancel(tasks: Collection[asyncio.Task[Any] | None]) -> None:
    some = [task for task in tasks if task]
    for task in some:
        task.cancel()
    await asyncio.gather(*some, return_exceptions=True)


class _Closed(RuntimeError):
    """Another thread closed the limiter."""


_loops: weakref.WeakSet[_Loop] = weakref.WeakSet()
_ending: set[_Thread] = set()
_left: list[object] = []  # of the parent process: finalizing it here would disturb it there


def _forked() -> None:
    _left.extend(_ending)
    _ending.clear()
    for loop in list(_loops):
        _left.append(loop._thread)
        loop.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


@atexit.register
def _stop_all() -> None:
    for loop in list(_loops):
        loop.stop()
    for thread in list(_ending):
        thread.join()


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
        self._loop = _Loop(self._inner)
        weakref.finalize(self, self._loop.stop).atexit = False  # then _stop_all waits as well

    def __enter__(self) -> Limiter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Waits for what is done in the background, at most 10 s or `timeout`, and closes connections."""
        if thread := self._loop.stop():
            thread.join()

    def take(
        self,
        policy: Target = "",
        key: Key = "",
        *,
        costs: Mapping[str, int] | None = None,
        priority: int = 0,
        labels: Mapping[str, str] | None = None,
    ) -> Answer:
        """Takes units now, or none: see `AsyncLimiter.take`."""
        return self._loop.run(self._inner.take(policy, key, costs=costs, priority=priority, labels=labels))

    def wait(
        self,
        policy: Target = "",
        key: Key = "",
        *,
        costs: Mapping[str, int] | None = None,
        max_wait: float = 60.0,
        priority: int = 0,
        labels: Mapping[str, str] | None = None,
    ) -> Answer:
        """Takes units, and waits for them: see `AsyncLimiter.wait`."""
        return self._loop.run(
            self._inner.wait(policy, key, costs=costs, max_wait=max_wait, priority=priority, labels=labels)
        )

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
    ) -> Reservation:
        """Holds units, or slots, while a block runs: see `AsyncLimiter.reserve`."""
        return Reservation(
            self,
            self._inner._decider,
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
        identifier: Key,
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
        self, identifier: Key, limit: int, window: float, *, policy: str = ""
    ) -> tuple[bool, dict[str, Any]]:
        """Takes one request under a rolling limit: see `AsyncLimiter.is_allowed`."""
        return self._loop.run(self._inner.is_allowed(identifier, limit, window, policy=policy))

    def status(
        self,
        policy: str = "",
        key: Key = "",
        *,
        costs: Mapping[str, int] | None = None,
        priority: int = 0,
        tenant: str = "",
    ) -> Status:
        """Describes a bucket: see `AsyncLimiter.status`."""
        return self._loop.run(self._inner.status(policy, key, costs=costs, priority=priority, tenant=tenant))

    def pause(self, policy: str, key: Key = "", *, seconds: float, reason: str = "", tenant: str = "") -> datetime:
        """Makes a bucket refuse every take for a time: see `AsyncLimiter.pause`."""
        return self._loop.run(self._inner.pause(policy, key, seconds=seconds, reason=reason, tenant=tenant))

    def unpause(
        self, policy: str, key: Key = "", *, until: datetime, reason: str = "", tenant: str = ""
    ) -> datetime | None:
        """Ends the pause of a bucket that ends at `until`: see `AsyncLimiter.unpause`."""
        return self._loop.run(self._inner.unpause(policy, key, until=until, reason=reason, tenant=tenant))

    def check(self, policy: str | None = None, *, costs: Mapping[str, int] | None = None) -> None:
        """Asks the server whether this limiter may take these units from a policy: see `AsyncLimiter.check`."""
        self._loop.run(self._inner.check(policy, costs=costs))

    def _remember(self, policy: object, costs: Mapping[str, object] | None = None) -> None:
        self._inner._remember(policy, costs)

    def policies(self) -> tuple[Policy, ...]:
        """Lists the server's policies."""
        return self._loop.run(self._inner.policies())


class Reservation(ReservationBase):
    """Units, or slots, that are held while the block of a `with` runs.

    It is as `AsyncReservation`, except that a thread cannot be interrupted: if the reservation is
    lost, the block goes on. Long work looks at `lost` and stops. The same holds in an `async with`,
    which is for objects that programs use with and without asyncio.
    """

    def __init__(self, outer: Limiter, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._outer, self._loop = outer, outer._loop  # the limiter is needed as long as its reservation

    def __enter__(self) -> Reservation:
        self._check_new()
        try:
            self._loop.run(self._start())
        except (Error, _Closed):
            raise
        except BaseException as error:  # the thread was interrupted, perhaps when the take had just been granted
            self._loop.run(self._abandon(error))
            raise
        return self

    async def _abandon(self, error: BaseException) -> None:
        self._abandoned = True  # for a take that is being granted
        if self._answer is not None:
            self.cancel()
            await self._finish(error)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        finish = self._finish(error)
        if isinstance(threading.current_thread(), _Thread):  # the garbage collector ends a generator there
            self._loop.start(finish)
        else:
            with contextlib.suppress(_Closed):  # what has begun is finished in the background
                self._loop.run(finish)

    async def __aenter__(self) -> Reservation:
        self._check_new()
        try:
            await self._loop.wait(self._start())
        except (Error, _Closed):
            raise
        except BaseException as error:
            self._loop.start(self._abandon(error))
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        with contextlib.suppress(_Closed):
            await self._loop.wait(self._finish(error))
