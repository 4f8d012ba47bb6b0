"""Reservations, against a real server."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time

import pytest
from conftest import Server

from drawgate import AsyncLimiter, HoldLost, Limiter, Problem, Refused, _reservation
from drawgate.testing import FakeServer


def test_what_counts_after_the_block(limiter: Limiter, server: Server, key: str) -> None:
    used = 0

    def check(more: int) -> None:
        nonlocal used
        used += more
        assert server.used("llm", key)["tpm"] == used

    with limiter.reserve("llm", key, costs={"tokens": 100}) as r:
        check(100)
        r.used(tokens=10)
        r.used(tokens=30)
    assert r.outcome == "settled"
    check(-70)
    with limiter.reserve("llm", key, costs={"tokens": 100}):
        pass
    check(100)  # the estimate
    with limiter.reserve("llm", key, costs={"tokens": 100}) as r:
        r.used(tokens=250)
    check(250)  # more than the estimate
    with limiter.reserve("llm", key, costs={"tokens": 100}) as r:
        r.used(tokens=0)
    assert server.used("llm", key)["rpm"] == 4
    with limiter.reserve("llm", key, costs={"tokens": 100}) as r:
        r.cancel()
    assert r.outcome == "cancelled"
    check(0)
    assert server.used("llm", key)["rpm"] == 4
    assert server.status("llm", key)["open"] == 0


def test_used_after_the_block(limiter: Limiter, server: Server, key: str, caplog: pytest.LogCaptureFixture) -> None:
    """It changes nothing any more, and says so."""
    with limiter.reserve("llm", key, costs={"tokens": 100}) as r:
        r.used(tokens=20)
    assert not caplog.messages
    r.used(tokens=30)
    assert [m for m in caplog.messages if "used was called after the reservation had ended" in m]
    assert server.used("llm", key)["tpm"] == 20


class NotSent(Exception):
    pass


def test_a_failed_block_keeps_its_estimate(limiter: Limiter, server: Server, key: str) -> None:
    """The call may have been carried out, unless it is certain that it was not."""
    for error, used, want in [
        (ValueError, None, 100),
        (ValueError, 20, 20),
        (KeyboardInterrupt, None, 100),
        (NotSent, None, 0),
        (NotSent, 20, 20),
    ]:
        before = server.used("llm", key)["tpm"]
        with pytest.raises(error), limiter.reserve("llm", key, costs={"tokens": 100}, cancel_on=NotSent) as r:
            if used is not None:
                r.used(tokens=used)
            raise error
        assert server.used("llm", key)["tpm"] - before == want, error


def test_entering_may_be_refused(limiter: Limiter, server: Server, key: str) -> None:
    with limiter.reserve("slots", key) as r, pytest.raises(Refused) as e:
        with limiter.reserve("slots", key, max_wait=0):
            raise AssertionError
    assert e.value.limit == "at-once"
    with pytest.raises(RuntimeError, match="entered once"), r:
        pass
    with limiter.reserve("slots", key, max_wait=0):
        pass
    assert server.used("slots", key) == {"at-once": 0}


def test_a_wrong_settlement_is_raised(limiter: Limiter, server: Server, key: str) -> None:
    with pytest.raises(Problem, match="tokenz"), limiter.reserve("llm", key, costs={"tokens": 5}) as r:
        r.used(tokenz=3)
    with pytest.raises(ValueError, match="of the work"), limiter.reserve("llm", key, costs={"tokens": 5}) as r:
        r.used(tokenz=3)
        raise ValueError("of the work")
    assert server.used("llm", key)["tpm"] == 10


def test_id_and_grant(limiter: Limiter, server: Server, key: str) -> None:
    with limiter.reserve("llm", key, costs={"tokens": 5}, id=key) as r:
        with pytest.raises(Problem) as e, limiter.reserve("llm", key, costs={"tokens": 5}, id=key):
            raise AssertionError
        assert e.value.code == "id_open"
        with limiter.reserve("llm", key, costs={"tokens": 5}, id=r.id, grant=r.grant) as again:  # as after a crash
            assert again.answer.replayed
            again.used(tokens=4)
    assert server.used("llm", key) == {"rpm": 1, "tpm": 4}


def test_the_hold_is_renewed(server: Server, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_reservation, "RENEW_AFTER", 1e-5)

    async def main() -> None:
        async with AsyncLimiter(server.url, timeout=60) as limiter:
            async with limiter.reserve("slots", key, hold=600) as r:
                for _ in range(3):
                    end = r._end
                    while r._end == end:
                        await asyncio.sleep(0.001)
                assert server.status("slots", key)["open"] == 1
            assert r.outcome == "settled"
            assert r._keeper
            await asyncio.wait([r._keeper])

    asyncio.run(main())
    assert server.status("slots", key)["open"] == 0
    with Limiter(server.url, timeout=60) as limiter:
        with limiter.reserve("slots", key, hold=600) as r:
            end = r._end
            while r._end == end:
                time.sleep(0.001)
        assert r.outcome == "settled"


def test_work_stops_when_the_reservation_is_lost(server: Server, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_reservation, "RENEW_AFTER", 1e-5)

    def lose() -> None:
        server.post("/v1/reset", {"policy": "slots", "key": key})

    async def main() -> None:
        async with AsyncLimiter(server.url, timeout=60) as limiter:
            with pytest.raises(HoldLost, match="the work was stopped"):
                async with limiter.reserve("slots", key, hold=600) as r:
                    lose()
                    await asyncio.Event().wait()
            assert (r.lost, r.outcome) == (True, "gone")
            task = asyncio.current_task()
            assert task
            if hasattr(task, "cancelling"):
                assert task.cancelling() == 0
            async with limiter.reserve("slots", key, hold=600) as r:  # work that ends at the same moment
                r._lose("a test")
            await asyncio.sleep(0)

    asyncio.run(main())
    with Limiter(server.url, timeout=60) as limiter, limiter.reserve("slots", key, hold=600) as r:
        lose()
        while not r.lost:
            time.sleep(0.001)
    assert r.outcome == "gone"


def test_a_cancellation_is_not_a_loss(server: Server, key: str) -> None:
    async def main() -> None:
        async with AsyncLimiter(server.url, timeout=60) as limiter:
            entered = asyncio.Event()

            async def work() -> None:
                async with limiter.reserve("llm", key, costs={"tokens": 7}):
                    entered.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(work())
            await entered.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert server.used("llm", key)["tpm"] == 7
    assert server.status("llm", key)["open"] == 0


def test_a_signal_interrupts_a_thread_that_waits(server: Server, key: str) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it
    with Limiter(server.url, timeout=60) as limiter, limiter.reserve("slots", key):

        def interrupt() -> None:
            take = {"policy": "slots", "key": key, "hold_ms": 1000}
            while server.post("/v1/take", take)["reason"] != "queued":
                pass
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt), limiter.reserve("slots", key, max_wait=600):
            raise AssertionError
        thread.join()
    signal.signal(signal.SIGINT, before)
    assert server.status("slots", key)["open"] == 0


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_has_its_own_connection(limiter: Limiter, server: Server, key: str) -> None:
    assert limiter.take("llm", key)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with limiter.reserve("llm", key, costs={"tokens": 5}) as r:
                r.used(tokens=3)
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert limiter.take("llm", key)
    assert server.used("llm", key) == {"rpm": 3, "tpm": 3}


def test_a_reservation_that_is_being_given_up_is_not_entered_again() -> None:
    """It would have the same grant, so it would be given up as well, or two blocks would share one slot."""
    fake = FakeServer(slots={"requests": 1})

    async def main() -> None:
        async with AsyncLimiter(transport=fake.transport) as limiter, limiter.reserve("slots"):
            r = limiter.reserve("slots")
            first = asyncio.create_task(r.__aenter__())
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="entered once"):
                await r.__aenter__()
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            with pytest.raises(RuntimeError, match="entered once"):
                await r.__aenter__()

    asyncio.run(main())
    assert fake.open == 0


def test_a_reservation_that_is_never_entered(caplog: pytest.LogCaptureFixture) -> None:
    """It limits nothing, and does not do so in silence."""
    server = FakeServer(llm={"requests": 1, "tokens": 10})
    with Limiter(transport=server.transport) as limiter:
        r = limiter.reserve("llm", costs={"tokens": 5})
        with pytest.raises(RuntimeError, match="before the reservation was entered"):
            r.used(tokens=3)
        with pytest.raises(RuntimeError, match="before the reservation was entered"):
            r.cancel()
        with pytest.raises(RuntimeError, match="has not been entered"):
            _ = r.answer
        with pytest.warns(ResourceWarning, match="a reservation was never entered, so it limited nothing"):
            del r  # nobody else has it
        assert "never entered" in caplog.text
        caplog.clear()
        with limiter.reserve("llm", costs={"tokens": 5}):
            pass
        with pytest.raises(Refused), limiter.reserve("llm", max_wait=0):
            pass
        with pytest.raises(TypeError):
            limiter.reserve("llm", None)  # type: ignore[arg-type]
        gc.collect()
        assert "never entered" not in caplog.text
