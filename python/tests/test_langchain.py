"""The rate limiter for chat models, with a real server.

Each prompt is a name and a number of tokens. The name is the key of its bucket, and the number is
what the model reports. So a bucket says whether a call was settled with its own usage.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import pytest
from conftest import Server
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import UsageMetadataCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langgraph.graph import END, START, MessagesState, StateGraph

from drawgate import AsyncLimiter, Breaker, CircuitOpen, Limiter, Refused
from drawgate import langchain as adapter
from drawgate.langchain import Call, RateLimiter
from drawgate.testing import FakeServer

ESTIMATE = 1000


def name_of(call: Call) -> str:
    return str(call.messages[-1].content).split()[0] if call.messages else "nobody"


def usage(messages: list[BaseMessage]) -> Any:
    n = int(str(messages[-1].content).split()[1])
    return {"input_tokens": n - 1, "output_tokens": 1, "total_tokens": n}


class Model(BaseChatModel):
    """A chat model whose calls end when the test wants it."""

    gate: Callable[[str], Any] = lambda _: None
    agate: Any = None

    @property
    def _llm_type(self) -> str:
        return "test"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.gate(str(messages[-1].content))
        message = AIMessage("yes", usage_metadata=usage(messages))
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _agenerate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        if self.agate:
            await self.agate(str(messages[-1].content))
        return self._generate(messages)


class Streaming(Model):
    def _stream(self, messages: list[BaseMessage], *_: Any, **__: Any) -> Iterator[ChatGenerationChunk]:
        yield ChatGenerationChunk(message=AIMessageChunk(content="y"))
        self.gate(str(messages[-1].content))
        yield ChatGenerationChunk(message=AIMessageChunk(content="es", usage_metadata=usage(messages)))

    async def _astream(self, messages: list[BaseMessage], *_: Any, **__: Any) -> AsyncIterator[ChatGenerationChunk]:
        yield ChatGenerationChunk(message=AIMessageChunk(content="y"))
        if self.agate:
            await self.agate(str(messages[-1].content))
        yield ChatGenerationChunk(message=AIMessageChunk(content="es", usage_metadata=usage(messages)))


class Bench:
    """A limiter whose calls each have a bucket of their own."""

    def __init__(self, server: Server, limiter: Limiter, key: str) -> None:
        self._server, self._limiter, self._prefix = server, limiter, f"{key}-{random.getrandbits(32)}-"
        self.waits = threading.Semaphore(0)  # released when a call is granted its units

    def limiter(self, policy: str = "llm", **options: Any) -> RateLimiter:
        usual = {"costs": {"tokens": ESTIMATE}} if policy == "llm" else {}
        key = {"key": lambda c: self._prefix + name_of(c)}
        return RateLimiter(policy, limiter=self._limiter, **{**usual, **key, **options})

    def used(self, name: str, policy: str = "llm") -> dict[str, int]:
        """Returns what counts, when everything is settled."""
        self._limiter.close()  # it goes on afterwards
        status = self._server.status(policy, self._prefix + name)
        assert status["open"] == 0, name
        assert not adapter._held
        return {m["name"]: m["used"] for m in status["limits"]}

    def check(self, *names: int | str) -> None:
        """Each prompt named n was settled with n tokens."""
        for n in names:
            assert self.used(f"p{n}") == {"rpm": 1, "tpm": int(n)}, n


@pytest.fixture
def bench(server: Server, limiter: Limiter, key: str) -> Bench:
    return Bench(server, limiter, key)


def prompt(n: int) -> str:
    return f"p{n} {n}"


SOME = range(2, 22)


def all_at_once(parties: int) -> tuple[Callable[[str], None], Callable[[str], Any]]:
    """Gates that open when every call is inside, the last one first."""
    barrier, inside = threading.Barrier(parties), [0]
    opened: dict[str, asyncio.Event] = {}

    def gate(_: str) -> None:
        barrier.wait()

    async def agate(text: str) -> None:
        inside[0] += 1
        opened[text] = asyncio.Event()
        if inside[0] == parties:
            for event in reversed(opened.values()):
                event.set()
        await opened[text].wait()

    return gate, agate


def test_a_call(bench: Bench) -> None:
    """req: C6."""
    model = Model(rate_limiter=bench.limiter())
    assert model.invoke(prompt(7)).content == "yes"
    assert asyncio.run(model.ainvoke(prompt(8))).content == "yes"
    bench.check(7, 8)


def test_concurrent_coroutines(bench: Bench) -> None:
    """Nothing is mixed up, although the first call to begin is the last to end. req: C6."""
    _, agate = all_at_once(len(SOME))
    model = Model(rate_limiter=bench.limiter(), agate=agate)

    async def main() -> None:
        await asyncio.gather(*(model.ainvoke(prompt(n)) for n in SOME))

    asyncio.run(main())
    bench.check(*SOME)


def test_abatch(bench: Bench) -> None:
    _, agate = all_at_once(len(SOME))
    asyncio.run(Model(rate_limiter=bench.limiter(), agate=agate).abatch([prompt(n) for n in SOME]))
    bench.check(*SOME)


def test_threads(bench: Bench) -> None:
    """req: C6."""
    gate, _ = all_at_once(len(SOME))
    model = Model(rate_limiter=bench.limiter(), gate=gate)
    model.batch([prompt(n) for n in SOME], {"max_concurrency": len(SOME)})
    bench.check(*SOME)


def test_streams(bench: Bench) -> None:
    """Two streams in turns, and one that nobody reads to its end: its estimate counts."""
    model = Streaming(rate_limiter=bench.limiter())
    one, two, left = model.stream(prompt(11)), model.stream(prompt(12)), model.stream(prompt(13))
    for stream in (one, two, left):
        next(stream)
    left.close()  # type: ignore[attr-defined]
    assert [c.content for c in two][-2:] == ["es", ""]
    assert [c.content for c in one][-2:] == ["es", ""]

    async def main() -> None:
        one, two, left = model.astream(prompt(14)), model.astream(prompt(15)), model.astream(prompt(16))
        for stream in (one, two, left):
            await anext(stream)
        await left.aclose()  # type: ignore[attr-defined]
        assert [c async for c in two]
        assert [c async for c in one]

    asyncio.run(main())
    bench.check(11, 12, 14, 15)
    assert bench.used("p13") == bench.used("p16") == {"rpm": 1, "tpm": ESTIMATE}


def test_streams_of_events(bench: Bench) -> None:
    model = Streaming(rate_limiter=bench.limiter())

    async def main() -> None:
        async def events(n: int) -> None:
            assert [e async for e in model.astream_events(prompt(n), version="v2")]

        await asyncio.gather(*(events(n) for n in SOME))

    asyncio.run(main())
    bench.check(*SOME)


@pytest.mark.filterwarnings("ignore::langchain_core._api.beta_decorator.LangChainBetaWarning")
def test_streams_of_events_v3(bench: Bench) -> None:
    """These begin apart from taking units. What is not certain is settled as estimated, and never mixed up."""
    model = Streaming(rate_limiter=bench.limiter())
    one, two = (model.stream_events(prompt(n), version="v3") for n in (31, 32))
    assert str(one.text) == "yes"
    assert str(two.text) == "yes"

    async def main() -> None:
        one, two = [await model.astream_events(prompt(n), version="v3") for n in (33, 34)]
        assert [await text for text in (two.text, one.text)] == ["yes", "yes"]
        left = await model.astream_events(prompt(35), version="v3")
        await left.aclose()

    asyncio.run(main())
    bench.check(31, 32, 33, 34)
    assert bench.used("p35")["tpm"] in (0, ESTIMATE)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_graph_with_parallel_branches(bench: Bench, asynchronous: bool) -> None:
    """req: C6."""
    some = range(2, 8)
    gate, agate = all_at_once(len(some))
    gates: Any = {"agate": agate} if asynchronous else {"gate": gate}
    model = Streaming(rate_limiter=bench.limiter(), **gates)
    graph: Any = StateGraph(MessagesState)

    def branch(n: int) -> None:
        def node(_: MessagesState) -> dict[str, Any]:
            return {"messages": [model.invoke(prompt(n))]}

        async def anode(_: MessagesState) -> dict[str, Any]:
            return {"messages": [await model.ainvoke(prompt(n))]}

        graph.add_node(f"n{n}", anode if asynchronous else node)
        graph.add_edge(START, f"n{n}")
        graph.add_edge(f"n{n}", END)

    for n in some:
        branch(n)
    app = graph.compile()
    start = {"messages": [HumanMessage("go")]}
    options = {"max_concurrency": len(some)}
    state = asyncio.run(app.ainvoke(start, options)) if asynchronous else app.invoke(start, options)
    assert len(state["messages"]) == 1 + len(some)
    bench.check(*some)


def test_failures_and_retries(bench: Bench) -> None:
    """A failed call keeps its estimate, as the provider may have carried it out, unless it could not even connect."""

    def gate(text: str) -> None:
        if errors:
            raise errors.pop()

    def wrapped() -> Exception:
        try:
            raise RuntimeError("connection error") from httpx.ConnectError("refused")
        except RuntimeError as error:
            return error

    model = Model(rate_limiter=bench.limiter(cancel_on=PermissionError), gate=gate)
    errors: list[Exception] = [ValueError("lost")]
    with pytest.raises(ValueError, match="lost"):
        model.invoke(prompt(41))
    for error in (wrapped(), ConnectionRefusedError(), PermissionError()):
        errors = [error]
        with pytest.raises(type(error)):
            model.invoke(prompt(42))
        errors = [error]
        with pytest.raises(type(error)):
            asyncio.run(model.ainvoke(prompt(42)))
    assert bench.used("p41") == {"rpm": 1, "tpm": ESTIMATE}
    assert bench.used("p42") == {"rpm": 0, "tpm": 0}
    errors = [TimeoutError(), ConnectionRefusedError()]
    retrying = model.with_retry(wait_exponential_jitter=False, stop_after_attempt=3)
    assert retrying.invoke(prompt(43)).content == "yes"
    assert bench.used("p43") == {"rpm": 2, "tpm": ESTIMATE + 43}
    errors = [TimeoutError()]
    model.with_fallbacks([Model(rate_limiter=model.rate_limiter)]).invoke(prompt(44))
    assert bench.used("p44") == {"rpm": 2, "tpm": ESTIMATE + 44}


def test_a_cache(bench: Bench) -> None:
    """An answer from a cache takes nothing, and the call after it is not mistaken for it."""
    model = Model(rate_limiter=bench.limiter(), cache=InMemoryCache())
    for _ in range(3):
        model.invoke(prompt(51))
    model.invoke(prompt(52))

    async def main() -> None:
        for _ in range(3):
            await asyncio.gather(*(model.ainvoke(prompt(n)) for n in (51, 53, 52)))

    asyncio.run(main())
    bench.check(51, 52, 53)


def test_several_prompts_in_one_call(bench: Bench) -> None:
    """Nobody can tell them apart, above all if some come from a cache. Their estimates count."""
    model = Model(rate_limiter=bench.limiter(key=bench._prefix + "all"), cache=InMemoryCache())
    prompts: list[list[BaseMessage]] = [[HumanMessage(prompt(n))] for n in (61, 62, 63)]
    model.generate(prompts[:1])
    assert bench.used("all") == {"rpm": 1, "tpm": 61}
    model.generate(prompts)
    assert bench.used("all") == {"rpm": 3, "tpm": 61 + 2 * ESTIMATE}
    asyncio.run(model.agenerate([*prompts, [HumanMessage(prompt(64))]]))
    assert bench.used("all") == {"rpm": 4, "tpm": 61 + 3 * ESTIMATE}
    model.invoke(prompt(65))
    assert bench.used("all") == {"rpm": 5, "tpm": 61 + 3 * ESTIMATE + 65}


def test_a_model_inside_of_a_model(bench: Bench) -> None:
    """The outer one has no limiter, so it may seem to wait for units: the inner call counts as estimated."""
    inner = Model(rate_limiter=bench.limiter())
    outer = Model(gate=lambda text: inner.invoke(text))
    outer.invoke(prompt(66))
    assert bench.used("p66") == {"rpm": 1, "tpm": ESTIMATE}
    inner.invoke(prompt(67))
    bench.check(67)


def test_a_cancelled_call(bench: Bench) -> None:
    """LangChain does not report the end of such a call."""

    async def main() -> None:
        inside = asyncio.Event()

        async def agate(_: str) -> None:
            inside.set()
            await asyncio.Event().wait()

        model = Streaming(rate_limiter=bench.limiter(), agate=agate)
        for call in (model.ainvoke(prompt(71)), model.abatch([prompt(72)]), read(model.astream(prompt(73)))):
            inside.clear()
            task = asyncio.ensure_future(call)
            await inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    async def read(stream: AsyncIterator[Any]) -> None:
        async for _ in stream:
            pass

    asyncio.run(main())
    for n in (71, 72, 73):
        assert bench.used(f"p{n}") == {"rpm": 1, "tpm": ESTIMATE}


def test_a_call_that_is_cancelled_while_it_waits() -> None:
    """What it may have been granted is given back."""
    fake = FakeServer(llm={"requests": 1})
    asked = threading.Event()

    async def answer(request: httpx.Request) -> httpx.Response:
        answer = fake.transport.handle_request(request)
        if request.url.path == "/v1/take":
            asked.set()
            await asyncio.Event().wait()  # the answer never comes
        return answer

    async def main() -> None:
        waiting = asyncio.create_task(model.ainvoke(prompt(7)))
        await asyncio.to_thread(asked.wait)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    with Limiter(transport=httpx.MockTransport(answer)) as limiter:
        model = Model(rate_limiter=RateLimiter(limiter=limiter))
        asyncio.run(main())
    assert (fake.open, fake.used("llm")) == (0, {})


def test_a_refusal(bench: Bench) -> None:
    """req: C7."""
    model = Streaming(rate_limiter=bench.limiter("few", max_wait=0))
    for _ in range(3):
        model.invoke("few 1")
    with pytest.raises(Refused) as refused:
        model.invoke("few 1")
    assert refused.value.limit == "hourly"
    with pytest.raises(Refused):
        list(model.stream("few 1"))
    with pytest.raises(Refused):
        asyncio.run(model.ainvoke("few 1"))
    assert bench.used("few", "few") == {"hourly": 3}


def test_by_hand(bench: Bench) -> None:
    limiter = bench.limiter("few", max_wait=0)
    assert all(limiter.acquire() for _ in range(2))
    assert asyncio.run(limiter.aacquire())
    assert not limiter.acquire(blocking=False)
    assert not asyncio.run(limiter.aacquire(blocking=False))
    with pytest.raises(Refused):
        limiter.acquire()
    assert bench.used("nobody", "few") == {"hourly": 3}


def test_a_breaker(bench: Bench) -> None:
    """req: C4 C5."""

    def gate(_: str) -> None:
        raise TimeoutError

    model = Model(rate_limiter=bench.limiter(breaker=Breaker("the model", failures=2)), gate=gate)
    for _ in range(2):
        with pytest.raises(TimeoutError):
            model.invoke(prompt(81))
    with pytest.raises(CircuitOpen):
        model.invoke(prompt(81))
    assert bench.used("p81") == {"rpm": 2, "tpm": 2 * ESTIMATE}


def test_an_estimate_of_the_call_and_the_name_of_the_model() -> None:
    """req: C2 C6."""
    fake = FakeServer(**{"gemini-2.5-flash": {"requests": 9, "input_tokens": 900, "output_tokens": 900}})

    class Gemini(Model):
        model: str = "gemini-2.5-flash"
        max_tokens: int | None = None

    with Limiter(transport=fake.transport) as limiter:
        rate = RateLimiter(
            lambda call: call.model,
            limiter=limiter,
            costs={
                "input_tokens": lambda call: len(call.messages) * 100,
                "output_tokens": lambda call: call.max_tokens or 50,
            },
        )
        Gemini(rate_limiter=rate, max_tokens=20).invoke([HumanMessage("a"), HumanMessage("p 9")])
        Gemini(rate_limiter=rate).invoke("p 9")
        assert Call("", [HumanMessage("x" * 400)]).estimate(1000) > 1100
        assert Call("", [], 30).estimate(1000) < 40
    assert [t["costs"] for t in fake.takes] == [
        {"input_tokens": 200, "output_tokens": 20},
        {"input_tokens": 100, "output_tokens": 50},
    ]
    assert fake.takes[0]["labels"] == {"model": "gemini-2.5-flash"}
    assert fake.used("gemini-2.5-flash") == {"requests": 2, "input_tokens": 16, "output_tokens": 2}


def test_what_counts_can_be_chosen(bench: Bench) -> None:
    limiter = bench.limiter(used=lambda usage: {"tokens": usage["output_tokens"] * 5})
    Model(rate_limiter=limiter).invoke(prompt(91))
    assert bench.used("p91") == {"rpm": 1, "tpm": 5}
    wrong = bench.limiter(used=lambda usage: {"tokens": usage["nothing"]})
    Model(rate_limiter=wrong).invoke(prompt(92))
    assert bench.used("p92") == {"rpm": 1, "tpm": ESTIMATE}


def test_other_callbacks_and_copies(bench: Bench) -> None:
    counted = UsageMetadataCallbackHandler()
    model = Model(rate_limiter=bench.limiter()).model_copy(deep=True)
    bound = model.bind(stop=["x"]).with_config(tags=["t"])
    bound.invoke(prompt(95), {"callbacks": [counted, counted]})
    bench.check(95)


def test_an_end_that_is_never_reported(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not renewed for ever: when the hold ends, the estimate counts."""
    monkeypatch.setattr(adapter, "LONGEST", 0.0)
    monkeypatch.setattr(adapter._Handler, "on_llm_end", lambda *_, **__: None)
    monkeypatch.setattr(adapter._Run, "waits", lambda self: not self.taken)
    Model(rate_limiter=bench.limiter(hold=0.01)).invoke(prompt(97))
    monkeypatch.undo()
    monkeypatch.setattr(adapter, "LONGEST", 0.0)
    Model().invoke(prompt(98))
    while bench._server.status("llm", bench._prefix + "p97")["open"]:
        time.sleep(0.01)
    assert bench.used("p97") == {"rpm": 1, "tpm": ESTIMATE}


def test_everything_at_random(bench: Bench) -> None:
    """Many threads and tasks, each with calls of all kinds. req: C6."""
    total = 48

    def gate(text: str) -> None:
        time.sleep(random.random() / 1000)
        if int(text.split()[1]) % 7 == 0:
            raise ValueError

    async def agate(text: str) -> None:
        await asyncio.sleep(random.random() / 1000)
        if int(text.split()[1]) % 7 == 0:
            raise ValueError

    model = Streaming(rate_limiter=bench.limiter(), gate=gate, agate=agate, cache=InMemoryCache())
    plain = Model(rate_limiter=model.rate_limiter, gate=gate, agate=agate)

    async def one(n: int) -> None:
        with contextlib.suppress(ValueError):
            if n % 3 == 0:
                await model.ainvoke(prompt(n))
            elif n % 3 == 1:
                async for _ in model.astream(prompt(n)):
                    await asyncio.sleep(0)
            else:
                await plain.ainvoke(prompt(n))

    async def tasks(some: range) -> None:
        await asyncio.gather(*(one(n) for n in some))

    def work(some: range) -> None:
        asyncio.run(tasks(some[::2]))
        for n in some[1::2]:
            with contextlib.suppress(ValueError):
                if n % 3 == 0:
                    model.invoke(prompt(n))
                elif n % 3 == 1:
                    list(model.stream(prompt(n)))
                else:
                    plain.batch([prompt(n)])

    threads = [threading.Thread(target=work, args=(range(2 + i, total + 2, 8),)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n in range(2, total + 2):
        assert bench.used(f"p{n}") == {"rpm": 1, "tpm": ESTIMATE if n % 7 == 0 else n}, n


def test_a_stream_that_the_garbage_collector_ends(bench: Bench) -> None:
    """It may run anywhere, even while the handler works."""
    stream = Streaming(rate_limiter=bench.limiter()).stream(prompt(99))
    next(stream)
    with adapter._lock:
        del stream
        gc.collect()
    assert bench.used("p99") == {"rpm": 1, "tpm": ESTIMATE}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_while_a_call_begins() -> None:
    """Another thread holds the adapter's lock at the fork: the child has a lock of its own."""
    held, forked = threading.Event(), threading.Event()

    def hold() -> None:
        with adapter._lock:
            held.set()
            forked.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if adapter._lock.acquire(blocking=False) and not adapter._held else 1)
    forked.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_wrong_limiter() -> None:
    with pytest.raises(TypeError, match="give RateLimiter a Limiter: it serves coroutines as well"):
        RateLimiter("llm", limiter=AsyncLimiter())  # type: ignore[arg-type]
