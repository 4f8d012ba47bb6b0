"""The thread of a Limiter: when it ends, and what ends with it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from drawgate import Limiter
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
