"""The fake behaves like a server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from conftest import Server

from drawgate import Bucket, Limiter, Problem, Refused
from drawgate.testing import FakeServer


@pytest.fixture(params=["fake", "real"])
def either(request: pytest.FixtureRequest, server: Server) -> Iterator[Limiter]:
    fake = FakeServer(llm={"requests": 5000, "tokens": 100_000}, few={"requests": 3})
    limiter = Limiter(transport=fake.transport) if request.param == "fake" else Limiter(server.url, timeout=60)
    with limiter:
        yield limiter


def test_the_fake_is_like_a_server(either: Limiter, key: str) -> None:
    def used(policy: str) -> list[int]:
        return [m.used for m in either.status(policy, key).limits]

    assert either.take("few", key, costs={"requests": 2})
    answer = either.take([Bucket("llm", key, {"tokens": 5}), Bucket("few", key, {"requests": 2})])
    assert (answer.allowed, answer.reason, answer.policy) == (False, "limited", "few")
    assert used("llm") == [0, 0]
    with either.reserve("llm", key, costs={"tokens": 50}) as r:
        assert used("llm") == [1, 50]
        assert either.status("llm", key).open == 1
        r.used(tokens=20)
    assert used("llm") == [1, 20]
    with either.reserve("llm", key, costs={"tokens": 50}, id=key) as r:
        with either.reserve("llm", key, costs={"tokens": 50}, id=key, grant=r.grant) as again:
            assert again.answer.replayed
            again.cancel()
        with pytest.raises(Problem) as e, either.reserve("nope"):
            raise AssertionError
        assert e.value.code == "unknown_policy"
        r.cancel()
    assert (again.outcome, r.outcome) == ("cancelled", "gone")
    assert used("llm") == [1, 20]
    with pytest.raises(Problem) as e, either.reserve("few", key, costs={"tokens": 1}):
        raise AssertionError
    assert e.value.code == "unknown_unit"
    with pytest.raises(Problem) as e:
        either.take("few", key, costs={"requests": 4})
    assert e.value.code == "never_fits"
    assert [m.refused for m in either.take("few", key, costs={"requests": 2}).limits] == [True]
    assert [p.name for p in either.policies()][:1] in (["few"], ["llm"])


@pytest.mark.parametrize(("tokens", "code"), [(-5, "invalid"), (4.5, "bad_json"), (None, "bad_json")])
def test_wrong_numbers(either: Limiter, key: str, tokens: Any, code: str) -> None:
    with pytest.raises(Problem) as e:
        either.take("llm", key, costs={"tokens": tokens})
    assert e.value.code == code


def test_what_a_test_looks_at() -> None:
    fake = FakeServer(llm={"requests": 2, "tokens": 100})
    with Limiter(transport=fake.transport) as limiter:
        with limiter.reserve("llm", costs={"tokens": 10}, labels={"task": "x"}):
            assert fake.open == 1
        assert fake.used("llm") == {"requests": 1, "tokens": 10}
        assert fake.takes[0]["labels"] == {"task": "x"}


def test_a_take_waits_for_what_others_hold(either: Limiter, key: str) -> None:
    with ThreadPoolExecutor() as pool:
        with either.reserve("few", key, costs={"requests": 3}) as r:
            waiting = pool.submit(either.wait, "few", key, max_wait=60)
            while not (either._loop._thread and either._loop._thread.calls):
                time.sleep(0)
            r.cancel()
        assert waiting.result()
    with pytest.raises(Refused):
        either.wait("few", key, costs={"requests": 3}, max_wait=0.01)
