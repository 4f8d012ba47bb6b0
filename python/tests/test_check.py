"""What limiters ask the server when a program starts."""

from __future__ import annotations

import asyncio
import hashlib
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from conftest import CONFIG, Server
from fastapi import Depends, FastAPI

from drawgate import AsyncLimiter, Bucket, Limiter, Problem, ServerUnavailable, _decide, limited
from drawgate.asgi import RateLimitMiddleware
from drawgate.fastapi import reserve, take
from drawgate.testing import FakeServer


@pytest.fixture(params=["real", "fake"])
def limiter_of_both(request: pytest.FixtureRequest, server: Server) -> Limiter:
    if request.param == "real":
        return Limiter(server.url, timeout=60)
    return Limiter(transport=FakeServer(llm={"requests": 9, "tokens": 100_000}, few={"requests": 3}).transport)


def test_what_is_right_costs_nothing(server: Server) -> None:
    with Limiter(server.url, timeout=60) as limiter:
        limiter.check("llm")
        limiter.check("llm", costs={"tokens": 400, "requests": 0})
        limiter.check("slots")
    assert server.used("llm", "default") == {"rpm": 0, "tpm": 0}
    assert server.status("slots", "default")["open"] == 0


def test_what_is_wrong_is_said(limiter_of_both: Limiter) -> None:
    with limiter_of_both as limiter:
        limiter.check("llm", costs={"tokens": 400})
        for policy, costs, why in (
            ("lm", {}, "unknown policy .lm.*llm"),
            ("llm", {"token": 1}, "token"),
            ("", {}, "llm"),  # there are several
        ):
            with pytest.raises(Problem, match=why):
                limiter.check(policy, costs=costs)


def test_a_near_name_is_proposed(server: Server) -> None:
    with Limiter(server.url, timeout=60) as limiter, pytest.raises(Problem, match='did you mean "slots"'):
        limiter.check("slot")


def test_what_the_token_may(tmp_path: Path) -> None:
    tokens = [
        f'{{name: {role}, role: {role}, sha256: "{hashlib.sha256(role.encode()).hexdigest()}"}}'
        for role in ("take", "read")
    ]
    s = Server(tmp_path, f"{CONFIG}server: {{tokens: [{', '.join(tokens)}]}}\n")
    try:
        with Limiter(s.url, token="take", timeout=60) as limiter:
            limiter.check("llm")
        with Limiter(s.url, token="take", timeout=60, fallback="share", instances=2) as limiter:
            with pytest.raises(Problem, match="role"):  # it could never learn its share
                limiter.check("llm")
        with Limiter(s.url, token="read", timeout=60) as limiter, pytest.raises(Problem, match="role"):
            limiter.check("llm")
        with Limiter(s.url, token="", timeout=60) as limiter, pytest.raises(Problem, match="DRAWGATE_TOKEN"):
            limiter.check("llm")
    finally:
        s.kill()


def test_all_that_a_limiter_names() -> None:
    fake = FakeServer(ip={"requests": 9}, user={"requests": 9, "tokens": 100}, llm={"requests": 9})

    async def main() -> None:
        async with AsyncLimiter(transport=fake.transport) as limiter:
            with pytest.raises(ValueError, match="name one here"):
                await limiter.check()
            app = FastAPI()
            app.add_middleware(RateLimitMiddleware, limiter=limiter, api="")
            app.get("/", dependencies=[Depends(take(limiter, "user", costs={"tokens": lambda: 5}))])(lambda: None)
            limited("llm", limiter=limiter)
            limited("llm", limiter=limiter)
            limited(lambda: "chosen later", limiter=limiter)
            app.build_middleware_stack()
            assert [bucket for bucket, _ in limiter._named] == [
                Bucket("user", costs={"tokens": 0}),
                Bucket("llm"),
                Bucket("ip"),
            ]
            await limiter.check()
            reserve(limiter, "users")
            with pytest.raises(Problem, match="unknown policy 'users'"):
                await limiter.check()

    asyncio.run(main())
    assert fake.takes == []


def test_what_names_a_policy_is_said() -> None:
    fake = FakeServer(ip={"requests": 9})

    async def main() -> None:
        async with AsyncLimiter(transport=fake.transport) as limiter:
            app = FastAPI()
            app.add_middleware(RateLimitMiddleware, limiter=limiter)
            app.build_middleware_stack()
            with pytest.raises(Problem, match=r"unknown policy 'api'.* \(named by RateLimitMiddleware \(api=\)\)$"):
                await limiter.check()

    asyncio.run(main())


def test_a_check_has_time_although_takes_have_little(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_decide, "CHECK_TIMEOUT", 60)
    with Limiter(server.url, timeout=0.0001) as limiter:
        limiter.check("llm")


def test_a_check_without_an_answer_spent_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(_: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(_decide, "CHECK_TIMEOUT", 0.2)
    text = "did not answer within .* s to the question whether takes of policy llm are possible: nothing was spent"
    with Limiter(transport=httpx.MockTransport(silent), timeout=0.1) as limiter:
        with pytest.raises(ServerUnavailable, match=text) as e:
            limiter.check("llm")
        assert not e.value.may_have_spent


@pytest.mark.parametrize("ask", ["check", "take", "status"])
def test_preparing_the_client_takes_no_time_of_a_call(
    server: Server, monkeypatch: pytest.MonkeyPatch, key: str, ask: str
) -> None:
    late, real = 0.0, time.monotonic

    class Slow(httpx.AsyncClient):
        def __init__(self, **options: Any) -> None:
            nonlocal late
            late += 600
            super().__init__(**options)

    monkeypatch.setattr(httpx, "AsyncClient", Slow)
    monkeypatch.setattr(time, "monotonic", lambda: real() + late)

    async def main() -> None:
        async with AsyncLimiter(server.url, timeout=60) as limiter:
            await (limiter.check("llm") if ask == "check" else getattr(limiter, ask)("llm", key))

    asyncio.run(main())
    assert late == 600


def test_nobody_answers(own_server: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    own_server.kill()
    monkeypatch.setattr(_decide, "CHECK_TIMEOUT", 0.2)
    with Limiter(own_server.url, timeout=0.2) as closed, pytest.raises(ServerUnavailable, match="cannot be reached"):
        closed.check("llm")
    with Limiter(own_server.url, timeout=0.2, fallback="open") as opened:
        opened.check("llm")  # the program starts, as it serves without the server as well
    assert [r.getMessage()[:30] for r in caplog.records if r.name == "drawgate"] == ["policy llm was not checked: ht"]
