"""Takes, statuses and errors, against a real server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import httpx
import pytest
from conftest import Server

from drawgate import (
    AsyncLimiter,
    Attributes,
    Bucket,
    Limiter,
    Problem,
    Refused,
    ServerUnavailable,
    StoreUnavailable,
    _async,
    _call,
    _decide,
)
from drawgate._http import failure, refusal
from drawgate.testing import FakeServer


def test_a_refusal_is_an_answer(limiter: Limiter, server: Server, key: str) -> None:
    assert limiter.take("llm", key, costs={"tokens": 90_000})
    answer = limiter.take("llm", key, costs={"tokens": 20_000})
    assert not answer
    assert (answer.reason, answer.policy, answer.limit, answer.remaining) == ("limited", "llm", "tpm", 10_000)
    assert answer.retry_after is not None
    assert answer.retry_after > 3000
    assert answer.reset_at is not None
    assert answer.reset_at > datetime.now(timezone.utc)
    assert [(m.name, m.unit, m.amount, m.remaining, m.refused) for m in answer.limits] == [
        ("rpm", "requests", 5000, 4999, False),
        ("tpm", "tokens", 100_000, 10_000, True),
    ]
    assert server.used("llm", key) == {"rpm": 1, "tpm": 90_000}


def test_wait_raises_what_refused(limiter: Limiter, key: str) -> None:
    """req: C7."""
    assert limiter.wait("few", key, costs={"requests": 3})
    with pytest.raises(Refused, match=r'limit "hourly" of policy "few" .* has 0 left; this take fits in [^(]*$') as e:
        limiter.wait("few", key, max_wait=0.2)
    assert (e.value.policy, e.value.limit, e.value.reason) == ("few", "hourly", "limited")
    assert e.value.retry_after is not None
    assert e.value.retry_after > 3000
    assert [(m.max, m.remaining) for m in e.value.limits] == [(3, 0)]
    assert not e.value.may_have_spent


def test_several_buckets_all_or_nothing(limiter: Limiter, server: Server, key: str) -> None:
    assert limiter.take([Bucket("few", key, {"requests": 3}), Bucket("llm", key, {"tokens": 5})])
    answer = limiter.take([Bucket("few", key), Bucket("llm", key, {"tokens": 5})])
    assert not answer
    assert [m.bucket for m in answer.limits] == [0, 1, 1]
    assert server.used("llm", key) == {"rpm": 1, "tpm": 5}
    with pytest.raises(ValueError, match="costs into each Bucket"):
        limiter.take([Bucket("few", key)], costs={"tokens": 3})


def test_rules_choose(limiter: Limiter, server: Server, key: str) -> None:
    assert limiter.take(Attributes(path="/upload", user=key), costs={"requests": 2})
    assert server.used("few", key) == {"hourly": 2}
    assert limiter.take(Attributes(path="/other", user=key)).unmatched


def test_status(limiter: Limiter, key: str) -> None:
    limiter.take("llm", key, costs={"tokens": 10})
    with limiter.reserve("llm", key, costs={"tokens": 20}):
        status = limiter.status("llm", key, costs={"tokens": 100_001})
    assert (status.policy, status.key, status.open, status.paused_until) == ("llm", key, 1, None)
    rpm, tpm = status.limits
    assert (tpm.used, tpm.debt, tpm.kind, tpm.window, tpm.remaining) == (30, 0, "rolling", 3600.0, 99_970)
    assert rpm.used == 2
    assert not status.take
    assert status.take.retry_after is None  # it never fits


def test_paused(limiter: Limiter, server: Server, key: str) -> None:
    server.post("/v1/pause", {"policy": "few", "key": key, "for_ms": 60_000, "reason": "a test"})
    assert limiter.take("few", key).reason == "paused"
    status = limiter.status("few", key)
    assert status.paused_until is not None
    assert status.pause_reason == "a test"


def test_unpause(server: Server, key: str) -> None:
    """It ends the pause that it names, and no other."""
    with Limiter(server.admin, timeout=60) as admin:
        until = admin.pause("few", key, seconds=31 * 86_400, reason="a typo")
        assert admin.status("few", key).paused_until == until
        assert admin.pause("few", key, seconds=60) == until
        assert admin.unpause("few", key, until=until - timedelta(microseconds=1)) == until
        assert admin.take("few", key).reason == "paused"
        for _ in range(2):
            assert admin.unpause("few", key, until=until, reason="it was a typo") is None
        assert admin.take("few", key)
        with pytest.raises(ValueError, match="time zone"):
            admin.unpause("few", key, until=until.replace(tzinfo=None))


def test_acquire(limiter: Limiter, server: Server, key: str) -> None:
    """It takes at once, or waits. req: B1."""
    assert limiter.acquire(key, 2, False, policy="few")
    assert not limiter.acquire(key, 2, wait=False, policy="few")
    assert not limiter.acquire(key, tokens=2, wait=True, timeout=0.1, policy="few")
    assert server.used("few", key) == {"hourly": 2}
    assert limiter.acquire(key, 70, policy="llm", unit="tokens")
    assert server.used("llm", key)["tpm"] == 70


def test_wait_ends_when_units_come_back(server: Server, key: str) -> None:
    """req: B1."""

    async def main() -> None:
        async with AsyncLimiter(server.url, timeout=60) as limiter:
            async with limiter.reserve("few", key, costs={"requests": 3}) as r:
                r.cancel()
                waiting = asyncio.create_task(limiter.acquire(key, 3, timeout=600, policy="few"))
                while (await limiter.take("few", key)).reason != "queued":
                    pass
            assert await waiting

    asyncio.run(main())
    assert server.used("few", key) == {"hourly": 3}


def test_is_allowed(limiter: Limiter, key: str) -> None:
    """The numbers choose a policy. req: C3."""
    results = [limiter.is_allowed(key, 3, 3600) for _ in range(4)]
    assert [allowed for allowed, _ in results] == [True, True, True, False]
    assert [m["remaining"] for _, m in results] == [2, 1, 0, 0]
    assert results[3][1]["limit"] == 3
    assert results[3][1]["retry_after"] > 3000
    with pytest.raises(LookupError, match="no policy of the server has a rolling limit of 4 requests in 60 s"):
        limiter.is_allowed(key, 4, 60)


def test_one_limiter_for_many_threads_and_loops(server: Server, key: str) -> None:
    with Limiter(server.url, timeout=60) as limiter, ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda _: limiter.take("llm", key), range(40)))
    limiter_of_loops = AsyncLimiter(server.url, timeout=60)

    async def take_and_close() -> None:
        assert await limiter_of_loops.take("llm", key)
        await limiter_of_loops.aclose()

    for _ in range(3):
        asyncio.run(take_and_close())
    assert server.used("llm", key)["rpm"] == 43


@pytest.mark.parametrize(
    ("call", "code", "says"),
    [
        (lambda limiter: limiter.take("nope"), "unknown_policy", 'unknown policy "nope"'),
        (lambda limiter: limiter.take(), "invalid|unknown_policy", "several policies|policy"),
        (lambda limiter: limiter.take("few", costs={"requests": 4}), "never_fits", "more than|never|at most"),
        (lambda limiter: limiter.take("few", costs={"tokens": 4}), "unknown_unit", "tokens"),
        (lambda limiter: limiter.take("slots"), "needs_hold", "hold"),
        (lambda limiter: limiter.take("few", costs={"requests": "1"}), "bad_json", "must be an integer"),
    ],
)
def test_problems_say_what_to_do(limiter: Limiter, call: Callable[[Limiter], object], code: str, says: str) -> None:
    with pytest.raises(Problem, match=says) as e:
        call(limiter)
    assert e.value.code in code.split("|")
    assert not e.value.may_have_spent


def test_environment(server: Server, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAWGATE_SERVER", server.url + "/")
    monkeypatch.setenv("DRAWGATE_TOKEN", "secret")
    sent: list[str] = []

    class Spy(httpx.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            sent.append(request.headers["Authorization"])
            return await super().handle_async_request(request)

    with Limiter(transport=Spy()) as limiter:
        assert limiter.take("few", key)
    assert sent == ["Bearer secret"]


@pytest.mark.parametrize(
    "url",
    ["localhost:7878", "ftp://host", "http://", "http://host:port", "http://u:pw@h", "u:pw@host:7878", "http://h/?a=b"],
)
def test_addresses_that_cannot_be_right(url: str) -> None:
    with pytest.raises(ValueError, match="the address of a server") as e:
        AsyncLimiter(url)
    assert "pw" not in str(e.value)


def test_not_a_drawgate_server(key: str) -> None:
    def page(status: int) -> Limiter:
        transport = httpx.MockTransport(lambda _: httpx.Response(status, html="<p>It works!</p>"))
        return Limiter("http://example.com", transport=transport)

    for status in (200, 301, 404):
        with (
            pytest.raises(
                Problem, match=r"not from a Drawgate server: is the address \(server=, or DRAWGATE_SERVER\) right"
            ),
            page(status) as limiter,
        ):
            limiter.take("few", key)
    with pytest.raises(ServerUnavailable) as e, page(502) as limiter:
        limiter.take("few", key)
    assert e.value.may_have_spent
    other = httpx.MockTransport(lambda _: httpx.Response(200, json={"ok": True}))
    with pytest.raises(ServerUnavailable, match="of another version"), Limiter(transport=other) as limiter:
        limiter.take("few", key)


@pytest.mark.parametrize(("reason", "code"), [("unavailable", "store_unavailable"), ("away", "store_away")])
def test_the_words_of_older_servers(reason: str, code: str) -> None:
    def refuses(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"allowed": False, "reason": reason, "retry_after_ms": 1000})

    def fails(_: httpx.Request) -> httpx.Response:
        headers = {"Content-Type": "application/problem+json"}
        return httpx.Response(503, json={"code": code, "detail": "the store does not answer"}, headers=headers)

    with Limiter(transport=httpx.MockTransport(refuses)) as limiter:
        answer = limiter.take("few")
    assert answer.reason == "unavailable"
    assert refusal(answer, None).code == "store_unavailable"
    with Limiter(transport=httpx.MockTransport(fails)) as limiter, pytest.raises(StoreUnavailable) as e:
        limiter.take("few")
    assert failure(e.value).code == "store_unavailable"


@pytest.mark.parametrize("oversleep", [0.0, 100.0])
def test_nobody_listens(key: str, oversleep: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error tells of the connection that was refused, though a busy machine slept beyond the deadline."""
    slept = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal slept
        slept += seconds + oversleep

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + slept)
    monkeypatch.setattr(_call, "time", clock)
    monkeypatch.setattr(_call, "asyncio", SimpleNamespace(**vars(asyncio) | {"sleep": sleep}))
    with pytest.raises(
        ServerUnavailable, match=r"running, and is the address \(server=, or DRAWGATE_SERVER\) right"
    ) as e:
        Limiter("http://127.0.0.1:1", timeout=60).take("few", key)
    assert not e.value.may_have_spent


@pytest.mark.parametrize("token", ["secret\n", " secret", "sécret"])
def test_a_token_that_no_header_can_have(token: str) -> None:
    with pytest.raises(ValueError, match="access token") as e:
        Limiter(token=token)
    assert "cret" not in str(e.value)


def test_only_an_unknown_field_is_of_another_version(limiter: Limiter) -> None:
    with pytest.raises(Problem) as e:
        limiter.take("llm", costs={"tokens": "4"})  # type: ignore[dict-item]
    assert e.value.code == "bad_json"
    assert "version" not in str(e.value)
    with pytest.raises(Problem, match="is the server of another version"):
        limiter._loop.run(limiter._inner._decider.ask({"policy": "llm", "newer": 1}, None, 0))


def test_several_event_loops_begin_at_once() -> None:
    """Another thread adds its loop while this one looks for loops that have ended."""
    limiter = AsyncLimiter()
    clients: dict[Any, Any] = limiter._caller._clients

    class Ended:
        def is_closed(self) -> bool:
            clients[Ended()] = None
            return True

    clients[Ended()] = None

    async def main() -> None:
        limiter._caller.prepare()
        await limiter.aclose()

    asyncio.run(main())
    assert len(clients) == 1


def test_one_deadline_for_all_requests_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, timeouts = SimpleNamespace(now=1000.0), []
    fake = FakeServer(few={"requests": 3})

    def answer(request: httpx.Request) -> httpx.Response:
        clock.now += 3
        return fake.transport.handle_request(request)

    async def main() -> None:
        limiter = AsyncLimiter(transport=httpx.MockTransport(answer), timeout=10)
        limiter._decider._offline_until = 1.0
        call = limiter._caller.call

        async def recorded(*args: Any, **kwargs: Any) -> Any:
            timeouts.append(kwargs["timeout"])
            return await call(*args, **kwargs)

        monkeypatch.setattr(limiter._caller, "call", recorded)
        for module in (_async, _decide):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))
        assert await limiter.is_allowed("ada", 3, 60)

    asyncio.run(main())
    assert timeouts == [10, 7, 4]


def test_an_error_says_how_long_it_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_decide, "GIVE_UP_TIMEOUT", 0.0)  # what was given up cannot be cancelled either

    def broken(_: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("broken")

    with (
        Limiter(transport=httpx.MockTransport(broken), timeout=0.3) as limiter,
        pytest.raises(ServerUnavailable, match=r"may have been carried out \(\d+ attempts in [\d.]+ s\)$"),
        limiter.reserve("few"),
    ):
        raise AssertionError


def test_closing_ends_what_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_call, "CLOSE_TIMEOUT", 0.01)

    async def main() -> None:
        async with AsyncLimiter(timeout=0.01) as limiter:
            task = limiter._caller.spawn(asyncio.Event().wait())
        assert task.cancelled()

    asyncio.run(main())


class Ident:
    def __str__(self) -> str:
        return "abc"


@pytest.mark.parametrize(
    ("key", "text"), [(7, "7"), (UUID(int=1), str(UUID(int=1))), (Ident(), "abc"), ("", "default")]
)
def test_keys_are_made_text(key: Any, text: str) -> None:
    server = FakeServer(few={"requests": 1})
    with Limiter(transport=server.transport) as limiter:
        assert limiter.take("few", key)
        assert limiter.acquire(key, policy="few") is False
        assert limiter.status("few", key).key == text
    assert server.used("few", text) == {"requests": 1}


@pytest.mark.parametrize("key", [None, True, 1.5, b"alice", ["alice"], object()])
def test_keys_that_are_no_names(key: Any) -> None:
    server = FakeServer(few={"requests": 1})
    with Limiter(transport=server.transport) as limiter:
        calls: list[Callable[[], Any]] = [
            lambda: limiter.take("few", key),
            lambda: limiter.wait("few", key),
            lambda: limiter.reserve("few", key),
            lambda: limiter.status("few", key),
            lambda: limiter.acquire(key, policy="few"),
            lambda: limiter.take([Bucket("few", key)]),
        ]
        for call in calls:
            with pytest.raises(TypeError, match=r"key is of type .*: give text, an int or a UUID"):
                call()
    assert not server.takes


def test_misspelt_arguments_are_no_units() -> None:
    server = FakeServer(few={"requests": 1})
    with Limiter(transport=server.transport) as limiter:
        for wrong in ({"tenant": "a"}, {"priorty": 3}, {"tokens": 5}):
            for call in (limiter.take, limiter.wait, limiter.reserve):
                with pytest.raises(TypeError, match=f"unexpected keyword argument '{next(iter(wrong))}'"):
                    call("few", **wrong)
        with pytest.raises(TypeError, match="costs is 5: give units by name"):
            limiter.take("few", costs=5)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="costs is 5: give units by name"):
            limiter.take(Attributes(path="/"), costs=5)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="max_wait is None: give a number of seconds"):
            limiter.wait("few", max_wait=None)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="hold is '3': give a number of seconds"):
            limiter.reserve("few", hold="3")  # type: ignore[arg-type]
    assert not server.takes
