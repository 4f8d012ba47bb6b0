"""The decorator."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from conftest import Server

from drawgate import AsyncLimiter, Breaker, CircuitOpen, Limiter, Refused, _limited, limited
from drawgate.testing import FakeServer


def test_a_function(server: Server, limiter: Limiter, key: str) -> None:
    """Limiter and breaker around any call. req: C5 C6."""
    breaker = Breaker("the model", failures=1)

    @limited(
        "llm",
        key=key,
        tokens=lambda prompt: 10 * len(prompt),
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


def test_mistakes() -> None:
    with pytest.raises(TypeError, match="is a generator: use reserve inside"):

        @limited("llm")
        def generate() -> Iterator[int]:
            yield 1

    with pytest.raises(TypeError, match="is a generator"):

        @limited("llm")
        async def generate_async() -> AsyncIterator[int]:
            yield 1

    with pytest.raises(TypeError, match="give it an AsyncLimiter"):

        @limited("llm", limiter=Limiter())
        async def call_async() -> None: ...

    with pytest.raises(TypeError, match="give it a Limiter"):

        @limited("llm", limiter=AsyncLimiter())
        def call() -> None: ...

    @limited
    def bare(prompt: str) -> str:
        return prompt

    with pytest.raises(TypeError, match="with parentheses"):
        bare("hello")  # type: ignore[type-var]


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
        with pytest.raises(TypeError, match="give it an AsyncLimiter"):
            limited("llm", limiter=limiter)(functools.partial(work, "hello"))
    assert (fake.used("llm"), fake.open) == ({}, 0)
