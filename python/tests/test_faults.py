"""Lost answers, a server that dies, and calls that are given up."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import threading
import time
from typing import Any

import httpx
import pytest
from conftest import Proxy, Server

from drawgate import AsyncLimiter, Limiter, ServerUnavailable, _decide


@pytest.mark.parametrize(("end", "want"), [("used", 30), ("more", 300), ("cancel", 0)])
def test_lost_answers_cost_nothing(server: Server, proxy: Proxy, key: str, end: str, want: int) -> None:
    with Limiter(proxy.url, timeout=60) as limiter:
        proxy.lose = 2
        with limiter.reserve("llm", key, max_wait=5, costs={"tokens": 100}) as r:
            assert r.answer.replayed
            assert server.used("llm", key) == {"rpm": 1, "tpm": 100}
            if end == "cancel":
                r.cancel()
            else:
                r.used(tokens=want)
            proxy.lose = 2
        assert r.outcome == ("cancelled" if end == "cancel" else "settled")
    assert server.used("llm", key)["tpm"] == want
    assert server.status("llm", key)["open"] == 0


def test_a_plain_take_is_sent_once(server: Server, proxy: Proxy, key: str) -> None:
    with Limiter(proxy.url, timeout=60) as limiter:
        proxy.lose = 1
        with pytest.raises(ServerUnavailable, match="it may have been carried out") as e:
            limiter.take("llm", key, costs={"tokens": 100})
        assert e.value.may_have_spent
        assert key not in str(e.value)
        assert proxy.requests == 1
        assert server.used("llm", key)["tpm"] == 100
        proxy.lose = 2
        assert limiter.status("llm", key).limits[1].used == 100  # a query is sent again


def test_given_up_holds_are_reported_once(
    key: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """However many cannot be cancelled: one warning at once, and one that counts the others, without a key."""
    monkeypatch.setattr(_decide, "GIVE_UP_TIMEOUT", 0.01)

    async def silent(_: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async def one(limiter: AsyncLimiter) -> None:
        with pytest.raises(ServerUnavailable):
            async with limiter.reserve("llm", key, max_wait=0, hold=1, costs={"tokens": 1}):
                raise AssertionError

    async def main() -> None:
        async with AsyncLimiter(transport=httpx.MockTransport(silent), timeout=0.1) as limiter:
            await asyncio.gather(*(one(limiter) for _ in range(300)))

    asyncio.run(main())
    lines = [r.getMessage() for r in caplog.records if "could not be cancelled" in r.getMessage()]
    assert len(lines) == 2
    assert sum(int(line.split()[0]) for line in lines) == 300
    assert all("of policy llm:" in line and key not in line for line in lines)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_no_call_outlives_its_deadline(server: Server, proxy: Proxy, key: str, asynchronous: bool) -> None:
    """The server takes every request and never answers. What may be held is given back when it answers again."""
    proxy.silent = 1000

    async def main() -> None:
        async with AsyncLimiter(proxy.url, timeout=0.5) as limiter:
            for call in (limiter.take("llm", key), limiter.wait("llm", key, max_wait=0.1), limiter.status("llm", key)):
                with pytest.raises(ServerUnavailable, match="did not answer within"):
                    await call
            with pytest.raises(ServerUnavailable):
                async with limiter.reserve("llm", key, max_wait=0, hold=600, costs={"tokens": 100}):
                    raise AssertionError
            proxy.silent = 0

    if asynchronous:
        asyncio.run(main())
    else:
        with Limiter(proxy.url, timeout=0.5) as limiter:
            with pytest.raises(ServerUnavailable, match="did not answer within"):
                limiter.take("llm", key)
            with (
                pytest.raises(ServerUnavailable),
                limiter.reserve("llm", key, max_wait=0, hold=600, costs={"tokens": 100}),
            ):
                raise AssertionError
            proxy.silent = 0
    await_nothing_held(server, key)
    assert server.used("llm", key)["tpm"] == 0


def test_the_settlement_is_not_answered(server: Server, proxy: Proxy, key: str) -> None:
    with Limiter(proxy.url, timeout=0.5) as limiter:
        with limiter.reserve("llm", key, costs={"tokens": 100}) as r:
            r.used(tokens=10)
            proxy.silent = 1000
        assert r.outcome == "unknown"  # and the work is not failed
    assert server.used("llm", key)["tpm"] == 10


def test_the_server_is_killed_and_started_again(own_server: Server, key: str) -> None:
    server = own_server
    with Limiter(server.url, timeout=600) as limiter:
        assert limiter.take("llm", key, costs={"tokens": 50})
        with limiter.reserve("llm", key, hold=600, costs={"tokens": 100}) as r:
            r.used(tokens=30)
            server.kill()
            again = threading.Thread(target=server.start)
            again.start()
        assert r.outcome == "settled"
        assert limiter.take(
            "llm", key, costs={"tokens": 7}
        )  # nothing was sent while nobody listened, so it was tried again
        again.join()
    assert server.used("llm", key) == {"rpm": 3, "tpm": 87}


# A connection that is cancelled while it is being made is closed by the garbage collector, with a warning of its own.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_cancelled_coroutines_leak_nothing(server: Server, proxy: Proxy, key: str) -> None:
    """Many are cancelled at random points, while answers are lost. Only the blocks that have begun count."""
    entered = 0
    rounds = 25 if os.environ.get("DRAWGATE_LONG") else 8
    chance = random.Random(1)

    async def work(limiter: AsyncLimiter) -> None:
        nonlocal entered
        async with limiter.reserve("llm", key, hold=600, costs={"tokens": 10}):
            entered += 1
            await asyncio.sleep(chance.random() / 100)

    async def main() -> None:
        async with AsyncLimiter(proxy.url, timeout=60) as limiter:
            for _ in range(rounds):
                tasks = [asyncio.create_task(work(limiter)) for _ in range(40)]
                for task in tasks:
                    if chance.random() < 0.05:
                        proxy.lose += 1
                    await asyncio.sleep(chance.random() / 500)
                    task.cancel()
                results = await asyncio.gather(*tasks, return_exceptions=True)
                assert {type(r) for r in results} <= {asyncio.CancelledError, type(None)}
            await limiter.aclose()
            proxy.lose = 0
            assert await limiter.take("llm", key, costs={"tokens": 0})
            pool: Any = limiter._caller.prepare()._transport
            assert all(c.is_idle() for c in pool._pool.connections)

    asyncio.run(main())
    await_nothing_held(server, key)
    gc.collect()  # here, where the warnings are expected
    assert 0 < entered < 40 * rounds
    assert server.used("llm", key) == {"rpm": entered + 1, "tpm": 10 * entered}


def await_nothing_held(server: Server, key: str) -> None:
    """A take that arrives after its cancellation is cancelled by the server, within seconds."""
    end = time.monotonic() + 180
    while (held := server.status("llm", key)["open"]) and time.monotonic() < end:
        time.sleep(0.01)
    assert held == 0


@pytest.mark.parametrize("scheme", ["https", "HTTPS"])
def test_certificates_are_checked(scheme: str) -> None:
    limiter = Limiter(f"{scheme}://127.0.0.1:1")

    async def verifies() -> bool:
        transport: Any = limiter._inner._caller.prepare()._transport
        return bool(transport._pool._ssl_context.check_hostname)

    with limiter:
        assert limiter._loop.run(verifies())


def test_everything_that_is_given_up_is_given_back() -> None:
    takes = settlements = 0

    async def handle(request: httpx.Request) -> httpx.Response:
        nonlocal takes, settlements
        if request.url.path == "/v1/take":
            takes += 1
            await asyncio.Event().wait()
        settlements += 1
        return httpx.Response(200, json={"outcome": "cancelled"})

    async def main() -> None:
        async with AsyncLimiter(transport=httpx.MockTransport(handle), timeout=600) as limiter:
            tasks = [asyncio.create_task(limiter.reserve("llm").__aenter__()) for _ in range(300)]
            while takes < len(tasks):
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())
    assert settlements == takes
