"""The decorator."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from conftest import Server

from drawgate import AsyncLimiter, Breaker, CircuitOpen, LimitedAgent, Limiter, Refused, _limited, limited
from drawgate.testing import FakeServer


def test_a_function(server: Server, limiter: Limiter, key: str) -> None:
    """Limiter and breaker around any call. req: C5 C6."""
    breaker = Breaker("the model", failures=1)

    @limited(
        "llm",
        key=key,
        costs={"tokens": lambda prompt: 10 * len(prompt)},
        used=lambda answer: {"tokens": len(answer)},
        limiter=limiter,
        breaker=breaker,
        cancel_on=ConnectionRefusedError,
    )
    def ask(prompt: str) -> str:
        """Asks."""
        if not prompt:
            raise ConnectionRefusedError
        return prompt.upper()

    assert ask("hello") == "HELLO"
    assert ask.__doc__ == "Asks."
    assert server.used("llm", key) == {"rpm": 1, "tpm": 5}
    with pytest.raises(ConnectionRefusedError):
        ask("")
    with pytest.raises(CircuitOpen):
        ask("hello")
    assert server.used("llm", key) == {"rpm": 1, "tpm": 5}


def test_a_coroutine_function_that_names_the_model() -> None:
    """req: C6."""
    fake = FakeServer(**{"gemini-2.5-flash": {"requests": 2}, "gemini-2.5-pro": {"requests": 1}})

    async def main() -> None:
        async with AsyncLimiter(transport=fake.transport) as limiter:

            class Agent:
                @limited(model="gemini-2.5-flash", limiter=limiter)
                async def invoke(self, prompt: str) -> str:
                    assert fake.open == 1
                    return prompt

                @limited(model=lambda self, prompt, model: model, key=lambda self, *_, **__: self.name, limiter=limiter)
                async def with_model(self, prompt: str, model: str) -> str:
                    return model

                name = "team"

            agent = Agent()
            assert await agent.invoke("a") == "a"
            assert await agent.invoke(prompt="b") == "b"
            with pytest.raises(Refused) as e:
                await agent.invoke("c")
            assert e.value.policy == "gemini-2.5-flash"
            assert await agent.with_model("a", model="gemini-2.5-pro") == "gemini-2.5-pro"

    asyncio.run(main())
    assert fake.takes[0]["labels"] == {"model": "gemini-2.5-flash"}
    assert fake.used("gemini-2.5-pro", "team") == {"requests": 1}


def test_the_default_limiter(server: Server, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAWGATE_SERVER", server.url)

    @limited("llm", key=key)
    def call() -> None: ...

    @limited("llm", key=key)
    async def call_async() -> None: ...

    async def main() -> None:
        await call_async()
        await _limited.default_async().aclose()

    call()
    _limited.default_sync().close()
    asyncio.run(main())
    asyncio.run(main())
    _limited.default_sync.cache_clear()
    _limited.default_async.cache_clear()
    assert server.used("llm", key)["rpm"] == 3


def test_mistakes(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(TypeError, match="is a generator: use reserve inside"):

        @limited("llm")
        def generate() -> Iterator[int]:
            yield 1

    with pytest.raises(TypeError, match="is a generator"):

        @limited("llm")
        async def generate_async() -> AsyncIterator[int]:
            yield 1

    with pytest.raises(TypeError, match="give it a Limiter"):

        @limited("llm", limiter=AsyncLimiter())
        def call() -> None: ...

    @limited
    def bare(prompt: str) -> str:
        return prompt

    with pytest.raises(TypeError, match="with parentheses"):
        bare("hello")  # type: ignore[type-var]
    with pytest.raises(TypeError, match="with parentheses"):
        bare()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="with parentheses"):
        bare(prompt="hello")  # type: ignore[call-arg]

    with Limiter(transport=FakeServer(llm={"requests": 5}).transport) as limiter:

        @limited("llm", limiter=limiter, used=lambda n: n)
        def work() -> int:
            return 500

        assert work() == 500  # the call was made
    assert "used= returned 500: it has to return units by name, such as {'tokens': 500}" in caplog.text


def test_a_plain_function_that_returns_a_coroutine() -> None:
    fake = FakeServer(llm={"requests": 5})

    async def work(prompt: str) -> str:
        return prompt

    with Limiter(transport=fake.transport) as limiter:

        @limited("llm", limiter=limiter)
        def call() -> Any:
            return work("hello")

        with pytest.raises(TypeError, match="returns an awaitable"):
            call()
        assert asyncio.run(limited("llm", limiter=limiter)(functools.partial(work, "hello"))()) == "hello"
    assert (fake.used("llm"), fake.open) == ({"requests": 1}, 0)


class Agent:
    """The model of it fails if the prompt is empty."""

    def invoke(self, prompt: str) -> str:
        if not prompt:
            raise TimeoutError
        return prompt.upper()

    async def ainvoke(self, prompt: str) -> str:
        await asyncio.sleep(0)
        return self.invoke(prompt)


def test_an_agent(server: Server, limiter: Limiter, key: str) -> None:
    """Limiter and breaker around any agent's calls. req: C5 C6."""
    agent = LimitedAgent(
        Agent(),
        "llm",
        limiter=limiter,
        key=key,
        costs={"tokens": 100},
        used=lambda answer: {"tokens": len(answer)},
        breaker=Breaker("the model", failures=2),
    )
    assert agent.invoke("hello") == "HELLO"
    assert asyncio.run(agent.ainvoke("hi")) == "HI"
    for _ in range(2):
        with pytest.raises(TimeoutError):
            agent.invoke("")
    with pytest.raises(CircuitOpen):
        asyncio.run(agent.ainvoke("hi"))
    assert server.used("llm", key) == {"rpm": 4, "tpm": 207}
    assert server.status("llm", key)["open"] == 0


def test_an_agent_whose_invoke_is_a_coroutine_function(server: Server, limiter: Limiter, key: str) -> None:
    """req: C6."""

    class Remote:
        async def invoke(self, prompt: str) -> str:
            assert server.status("slots", key)["open"] == 1
            return prompt

    agent = LimitedAgent(Remote(), "slots", limiter=limiter, key=key)
    assert asyncio.run(agent.invoke("hello")) == "hello"
    assert server.status("slots", key)["open"] == 0
    with pytest.raises(AttributeError):
        asyncio.run(agent.ainvoke("hello"))


@pytest.mark.parametrize("granted", [False, True])
def test_an_agent_that_is_cancelled_while_it_waits(granted: bool) -> None:
    """What it may have been granted is given back. req: C6."""
    fake = FakeServer(slots={"requests": 1})
    asked = threading.Event()

    async def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path != "/v1/take":
            return fake.transport.handle_request(request)
        if granted:
            fake.transport.handle_request(request)
        asked.set()
        await asyncio.Event().wait()  # the answer never comes
        raise AssertionError

    async def main(agent: LimitedAgent) -> None:
        waiting = asyncio.create_task(agent.ainvoke("x"))
        await asyncio.to_thread(asked.wait)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    with Limiter(transport=httpx.MockTransport(answer)) as limiter:
        asyncio.run(main(LimitedAgent(Agent(), "slots", limiter=limiter)))
    assert (fake.open, fake.used("slots")) == (0, {})


def test_an_agent_that_is_cancelled_while_it_is_granted_its_units() -> None:
    """req: C6."""
    fake = FakeServer(slots={"requests": 1})

    async def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/take":
            await reservation._abandon(asyncio.CancelledError())  # as if it had been cancelled just now
        return fake.transport.handle_request(request)

    with Limiter(transport=httpx.MockTransport(answer)) as limiter:
        reservation = limiter.reserve("slots")
        reservation._check_new()
        limiter._loop.run(reservation._start())
    assert (fake.open, fake.used("slots")) == (0, {})
    assert reservation.outcome == "cancelled"


def test_an_agent_that_is_cancelled_while_it_runs() -> None:
    """req: C6."""
    fake = FakeServer(slots={"requests": 1})

    class Busy:
        async def ainvoke(self) -> None:
            inside.set()
            await asyncio.Event().wait()

    async def main() -> None:
        running = asyncio.create_task(LimitedAgent(Busy(), "slots", limiter=limiter).ainvoke())
        await inside.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    with Limiter(transport=fake.transport) as limiter:
        inside = asyncio.Event()
        asyncio.run(main())
    assert (fake.open, fake.used("slots")) == (0, {"requests": 1})


def test_an_agent_when_its_limiter_is_closed() -> None:
    asked = threading.Event()

    async def answer(_: httpx.Request) -> httpx.Response:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def main() -> None:
        waiting = asyncio.create_task(agent.ainvoke("x"))
        await asyncio.to_thread(asked.wait)
        limiter._loop.stop()
        with pytest.raises(RuntimeError, match="was closed during this call"):
            await waiting

    limiter = Limiter(transport=httpx.MockTransport(answer), timeout=0.5)
    agent = LimitedAgent(Agent(), "few", limiter=limiter)
    asyncio.run(main())


@pytest.mark.parametrize(
    "used",
    [lambda answer: {"tokens": answer.missing}, lambda answer: {"tokens": 1.5}, lambda answer: {"tokenz": 3}, len],
)
def test_a_count_that_fails_does_not_fail_the_work(
    limiter: Limiter, server: Server, key: str, used: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, and the estimate counts."""

    @limited("llm", key=key, costs={"tokens": 100}, used=used, limiter=limiter)
    def ask() -> str:
        return "done"

    @limited("llm", key=key, costs={"tokens": 100}, used=used, limiter=limiter)
    async def ask_async() -> str:
        return "done"

    assert ask() == asyncio.run(ask_async()) == "done"
    assert server.used("llm", key)["tpm"] == 200
    assert caplog.text.count("so the estimate counts") == 2
