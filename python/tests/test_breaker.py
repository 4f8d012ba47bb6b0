"""The circuit breaker."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from types import SimpleNamespace

import pytest

from drawgate import AsyncLimiter, Breaker, CircuitOpen, Limiter, Refused, _breaker
from drawgate.testing import FakeServer


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(_breaker, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def fail(limiter: Limiter, breaker: Breaker, error: type[BaseException] = OSError) -> None:
    with pytest.raises(error), limiter.reserve("llm", breaker=breaker):
        raise error


def succeed(limiter: Limiter, breaker: Breaker) -> None:
    with limiter.reserve("llm", breaker=breaker):
        pass


def test_states(clock: SimpleNamespace) -> None:
    """closed, open, half-open, closed; an open breaker spends nothing. req: C4 C7."""
    fake = FakeServer(llm={"requests": 100})
    breaker = Breaker("gemini")
    with Limiter(transport=fake.transport) as limiter:
        for _ in range(4):
            fail(limiter, breaker)
        succeed(limiter, breaker)  # the failures have to be in a row
        for _ in range(5):
            assert breaker.state == "closed"
            fail(limiter, breaker)
        assert breaker.state == "open"
        used = fake.used("llm")
        clock.now += 59
        with pytest.raises(CircuitOpen, match=r"calls to gemini have failed.*try again in 1 s") as e:
            succeed(limiter, breaker)
        assert e.value.retry_after == pytest.approx(1)
        assert fake.used("llm") == used
        clock.now += 1
        assert breaker.state == "half-open"
        with limiter.reserve("llm", breaker=breaker), pytest.raises(CircuitOpen):  # one at a time
            succeed(limiter, breaker)
        fail(limiter, breaker)
        assert breaker.state == "open"
        clock.now += 60
        succeed(limiter, breaker)
        assert breaker.state == "half-open"
        succeed(limiter, breaker)
        assert breaker.state == "closed"


def test_what_is_no_failure() -> None:
    fake = FakeServer(llm={"requests": 100}, none={"requests": 1})
    breaker = Breaker(failures=1, failed=lambda error: not isinstance(error, ValueError))
    with Limiter(transport=fake.transport) as limiter:
        assert limiter.take("none")
        with pytest.raises(Refused), limiter.reserve("none", breaker=breaker):
            raise AssertionError
        for error in (ValueError, KeyboardInterrupt, asyncio.CancelledError):
            fail(limiter, breaker, error)
        assert breaker.state == "closed"
        fail(limiter, breaker)
        assert breaker.state == "open"


def test_it_opens_while_a_call_waits(clock: SimpleNamespace) -> None:
    """What that call was granted comes back."""
    fake = FakeServer(llm={"requests": 100})
    breaker = Breaker(failures=1)

    async def main() -> None:
        async with AsyncLimiter(transport=fake.transport) as limiter:
            first = limiter.reserve("llm", breaker=breaker)
            second = limiter.reserve("llm", breaker=breaker)
            check = breaker._check
            breaker._check = lambda: None  # type: ignore[method-assign]
            await first.__aenter__()
            await first.__aexit__(OSError, OSError(), None)
            with pytest.raises(CircuitOpen):
                await second.__aenter__()
            breaker._check = check  # type: ignore[method-assign]

    asyncio.run(main())
    assert (fake.used("llm"), fake.open) == ({"requests": 1}, 0)


def test_failed_raises(clock: SimpleNamespace, caplog: pytest.LogCaptureFixture) -> None:
    """It counts as a failure: the work's own error is raised, and the breaker goes on."""
    fake = FakeServer(llm={"requests": 100})
    breaker = Breaker("gemini", failures=1, successes=1, failed=lambda error: error.nothing)  # type: ignore[attr-defined]
    with Limiter(transport=fake.transport) as limiter:
        for _ in range(2):
            fail(limiter, breaker)
            assert (breaker.state, fake.open) == ("open", 0)
            clock.now += 60
        succeed(limiter, breaker)
    assert breaker.state == "closed"
    assert "failed= of the breaker for gemini raised" in caplog.text


def test_old_failures(clock: SimpleNamespace) -> None:
    """Calls that began before it opened do not open it again."""
    fake = FakeServer(llm={"requests": 100})
    breaker = Breaker(failures=2, successes=1)
    with Limiter(transport=fake.transport) as limiter:
        old = [limiter.reserve("llm", breaker=breaker) for _ in range(4)]
        for r in old:
            r.__enter__()
        for r in old[:2]:
            r.__exit__(OSError, OSError(), None)
        assert breaker.state == "open"
        clock.now += 60
        succeed(limiter, breaker)
        for r in old[2:]:
            r.__exit__(OSError, OSError(), None)
        assert breaker.state == "closed"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_has_its_own_trial() -> None:
    """It also has a lock of its own: another thread may have held the parent's."""
    breaker = Breaker(failures=1, successes=1, open_for=0)
    breaker._begin().end(ValueError())
    trial = breaker._begin()
    with breaker._lock:
        child = os.fork()
        if child == 0:
            try:
                signal.alarm(60)  # it waits for nobody
                breaker._begin().end(None)
                os._exit(0 if breaker.state == "closed" else 2)
            finally:
                os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with pytest.raises(CircuitOpen):  # as long as the parent's own trial runs
        breaker._begin()
    trial.end(None)
    assert breaker.state == "closed"


def test_a_trial_whose_end_nobody_reports() -> None:
    """As of a stream of LangChain that was dropped: the next call may try."""
    breaker = Breaker(failures=1, successes=1, open_for=0)
    breaker._begin().end(ValueError())
    trial = breaker._begin()
    with pytest.raises(CircuitOpen):
        breaker._begin()
    del trial
    gc.collect()
    breaker._begin().end(None)
    assert breaker.state == "closed"
