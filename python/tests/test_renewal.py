"""Renewals and settlements that fail in strange ways, as behind a proxy."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from drawgate import AsyncLimiter, Problem, Refused, ServerUnavailable, _reservation

Settle = Callable[[dict[str, Any]], httpx.Response]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_reservation, "RENEW_AFTER", 1e-5)
    monkeypatch.setattr(_reservation, "RENEW_AGAIN", 0.0)


def server(settle: Settle) -> AsyncLimiter:
    """A limiter whose takes are granted."""

    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/take":
            return httpx.Response(200, json={"allowed": True, "reservation": "token"})
        return settle(json.loads(request.content))

    return AsyncLimiter(transport=httpx.MockTransport(handle))


def renewed() -> httpx.Response:
    return httpx.Response(200, json={"outcome": "renewed", "reservation": "token"})


def problem(status: int, code: str) -> httpx.Response:
    return httpx.Response(status, json={"code": code}, headers={"Content-Type": "application/problem+json"})


def compressed() -> httpx.Response:
    return httpx.Response(200, stream=httpx.ByteStream(b"no zip"), headers={"Content-Encoding": "gzip"})


@pytest.mark.parametrize(
    "strange",
    [
        compressed,
        lambda: httpx.Response(200, json={"outcome": "renewed"}),
        lambda: httpx.Response(429, text="slow down"),
        lambda: problem(401, "unauthorized"),
    ],
)
def test_a_strange_answer_does_not_end_the_renewals(strange: Callable[[], httpx.Response]) -> None:
    calls = 0

    async def main() -> None:
        again = asyncio.Event()

        def settle(body: dict[str, Any]) -> httpx.Response:
            nonlocal calls
            if "renew_ms" not in body:
                return httpx.Response(200, json={"outcome": "settled"})
            calls += 1
            if calls == 1:
                return strange()
            again.set()
            return renewed()

        async with server(settle) as limiter, limiter.reserve("llm", hold=600) as r:
            await asyncio.wait_for(again.wait(), 60)
        assert (r.lost, r.outcome) == (False, "settled")

    asyncio.run(main())


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"allowed": False, "reason": None, "message": None}, Refused),
        ({"allowed": False, "retry_after_ms": 10**400}, ServerUnavailable),
        ({"allowed": False, "limits": [1]}, ServerUnavailable),
    ],
)
def test_strange_values(answer: dict[str, Any], error: type[Exception]) -> None:
    async def main() -> None:
        transport = httpx.MockTransport(lambda _: httpx.Response(200, json=answer))
        async with AsyncLimiter(transport=transport) as limiter:
            with pytest.raises(error):
                await limiter.wait("llm")
            with pytest.raises(ServerUnavailable, match="another version"):
                await limiter.status("llm")

    asyncio.run(main())


@pytest.mark.parametrize(
    "answer",
    [httpx.Response(404, text="no"), problem(401, "unauthorized"), problem(422, "bad_token")],
)
def test_only_a_wrong_settlement_fails_work_that_was_done(answer: httpx.Response) -> None:
    async def main() -> None:
        async with server(lambda _: answer) as limiter:
            async with limiter.reserve("llm", hold=600) as r:
                pass
        assert r.outcome == "unknown"

    asyncio.run(main())


def test_nobody_renews_what_nobody_has() -> None:
    """As after a KeyboardInterrupt at the end of a block."""

    async def main() -> None:
        async with server(lambda _: renewed()) as limiter:
            r = limiter.reserve("llm", hold=600)
            await r.__aenter__()
            keeper = r._keeper
            assert keeper
            del r
            gc.collect()
            await asyncio.wait_for(keeper, 60)

    asyncio.run(main())


def test_errors_are_of_the_package() -> None:
    answers = [compressed(), httpx.Response(200, content=b"[" * 100_000, headers={"Content-Type": "application/json"})]

    async def main() -> None:
        async with server(lambda _: compressed()) as limiter:
            async with limiter.reserve("llm") as r:
                limiter._decider.timeout = limiter._caller._timeout = 0.1
            assert r.outcome == "unknown"
        async with AsyncLimiter(transport=httpx.MockTransport(lambda _: answers.pop(0))) as limiter:
            with pytest.raises(ServerUnavailable) as e:
                await limiter.take("llm")
            assert e.value.may_have_spent
            with pytest.raises(Problem, match="not from a Drawgate server"):
                await limiter.take("llm")

    asyncio.run(main())


def test_a_spoilt_answer_may_have_been_a_grant() -> None:
    """What it may hold is given up, and the caller hears of it."""
    cancelled = []

    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/take":
            return httpx.Response(200, text="<html>", headers={"Content-Type": "text/html"})
        cancelled.append(json.loads(request.content)["cancel"])
        return httpx.Response(200, json={"outcome": "cancelled"})

    async def main() -> None:
        async with AsyncLimiter(transport=httpx.MockTransport(handle)) as limiter:
            with pytest.raises(Problem) as e:
                await limiter.reserve("llm").__aenter__()
            assert e.value.may_have_spent
        assert cancelled == [True]
        redirect = httpx.MockTransport(lambda _: httpx.Response(307, headers={"Location": "http://other/"}))
        async with AsyncLimiter(transport=redirect) as limiter:
            with pytest.raises(Problem) as e:
                await limiter.take("llm")
            assert not e.value.may_have_spent

    asyncio.run(main())


@pytest.mark.parametrize(("wait", "hold_ms"), [(0.0, 5_000), (60.0, 80_000)])
def test_a_hold_ends_when_the_server_says(monkeypatch: pytest.MonkeyPatch, wait: float, hold_ms: int) -> None:
    """Not a whole hold after the answer: it may have begun with an earlier take, or before a slow answer."""
    monkeypatch.setattr(_reservation, "RENEW_AFTER", 1 / 3)
    sent: list[float] = []

    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/take":
            sent.append(time.monotonic())
            return httpx.Response(200, json={"allowed": True, "reservation": "token", "hold_ms": hold_ms})
        return httpx.Response(200, json={"outcome": "settled"})

    async def main() -> None:
        limiter = AsyncLimiter(transport=httpx.MockTransport(handle))
        async with limiter.reserve("slots", max_wait=wait, hold=60) as r:
            assert sent[0] + hold_ms / 2000 < r._end <= sent[0] + hold_ms / 1000

    asyncio.run(main())
