"""The thread of a Limiter: when it ends, and what ends with it."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from drawgate import Breaker, Limiter
from drawgate.testing import FakeServer


@pytest.fixture
def fake() -> FakeServer:
    return FakeServer(llm={"requests": 100})


async def collect() -> None:
    gc.collect()


def test_a_limiter_is_collected_in_its_own_thread(fake: FakeServer) -> None:
    limiter = Limiter(transport=fake.transport)
    loop: Any = limiter._loop
    assert limiter.take("llm")
    cycle: list[Any] = [limiter]
    cycle.append(cycle)
    thread = loop._thread
    del limiter, cycle
    loop.start(collect())
    thread.join(60)
    assert not thread.is_alive()
    assert thread.loop.is_closed()


def test_a_generator_is_collected_in_the_thread(fake: FakeServer) -> None:
    with Limiter(transport=fake.transport) as limiter:

        def stream() -> Iterator[int]:
            with limiter.reserve("llm"):
                yield 1

        cycle: list[Any] = [stream()]
        assert next(cycle[0]) == 1
        cycle.append(cycle)
        del cycle
        limiter._loop.start(collect()).result(60)
    assert fake.open == 0


def test_a_reservation_keeps_its_limiter(fake: FakeServer) -> None:
    with Limiter(transport=fake.transport).reserve("llm") as r:
        thread = r._loop._thread
        gc.collect()
        assert r._loop._thread is thread is not None
    assert r.outcome == "settled"


class Silent(httpx.AsyncBaseTransport):
    """Never answers. It says when it was asked."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.asked.set()
        await asyncio.Event().wait()
        raise AssertionError


def in_thread(work: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, errors


def test_another_thread_closes() -> None:
    """The call that is in flight ends."""
    silent = Silent()
    limiter = Limiter(transport=silent, timeout=600)
    thread, errors = in_thread(lambda: limiter.take("llm"))
    silent.asked.wait()
    limiter.close()
    thread.join(60)
    assert not thread.is_alive()
    assert [str(e) for e in errors] == ["the limiter was closed during this call"]


def test_closed_in_a_block(fake: FakeServer) -> None:
    limiter = Limiter(transport=fake.transport)
    with limiter.reserve("llm") as r:
        limiter.close()
    assert r.outcome == "settled"
    assert fake.open == 0
    limiter.close()


def test_several_threads_close(fake: FakeServer) -> None:
    limiter = Limiter(transport=fake.transport)
    assert limiter.take("llm")
    for thread, errors in [in_thread(limiter.close) for _ in range(8)]:
        thread.join(60)
        assert not thread.is_alive()
        assert not errors


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_transport_is_not_used_after_a_fork(fake: FakeServer) -> None:
    """Its connections are the parent's."""
    with Limiter(transport=fake.transport) as limiter:
        assert limiter.take("llm")
        child = os.fork()
        if child == 0:
            try:
                limiter.take("llm")
            except RuntimeError as error:
                os._exit(42 if "make a limiter in each process" in str(error) else 2)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
        assert limiter.take("llm")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_starts_one_thread(fake: FakeServer) -> None:
    with Limiter("http://127.0.0.1:1", timeout=0.01) as limiter:
        limiter._loop.run(asyncio.sleep(0))
        child = os.fork()
        if child == 0:
            try:
                together = threading.Barrier(8)
                started = set()

                def use() -> None:
                    together.wait()
                    limiter._loop.run(asyncio.sleep(0))
                    started.add(limiter._loop._thread)

                sys.setswitchinterval(1e-6)
                for thread, errors in [in_thread(use) for _ in range(8)]:
                    thread.join(60)
                    assert not errors
                os._exit(len(started))
            finally:
                os._exit(100)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def test_an_exit_that_is_cancelled_settles(fake: FakeServer) -> None:
    """Also if the cancellation comes before the limiter's thread has begun with it."""
    with Limiter(transport=fake.transport) as limiter:

        async def main(gate: threading.Event) -> str:
            async def busy() -> None:
                gate.wait(60)

            r = limiter.reserve("llm")
            await r.__aenter__()
            limiter._loop.start(busy())
            leaving = asyncio.ensure_future(r.__aexit__(None, None, None))
            await asyncio.sleep(0)  # it waits
            leaving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leaving
            gate.set()
            while not r.outcome:
                await asyncio.sleep(0)
            return r.outcome

        assert asyncio.run(asyncio.wait_for(main(threading.Event()), 60)) == "settled"
    assert fake.open == 0


def test_an_exit_that_is_interrupted_settles(fake: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()

    async def busy() -> None:
        gate.wait(60)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with Limiter(transport=fake.transport) as limiter:
        r = limiter.reserve("llm")
        r.__enter__()
        limiter._loop.start(busy())
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr("concurrent.futures.Future.result", interrupted)
            r.__exit__(None, None, None)
        gate.set()
    assert (r.outcome, fake.open) == ("settled", 0)


def test_a_call_in_the_thread_of_the_limiter_is_refused(fake: FakeServer) -> None:
    """It would wait for itself."""
    with Limiter(transport=fake.transport) as limiter:
        errors: list[BaseException] = []

        def failed(_: Exception) -> bool:
            try:
                limiter.take("llm")
            except RuntimeError as error:
                errors.append(error)
            return True

        with pytest.raises(ValueError, match="of the work"):
            with limiter.reserve("llm", breaker=Breaker(failed=failed)):
                raise ValueError("of the work")
    assert "in its own thread" in str(errors[0])
    assert fake.open == 0
