"""What happens while the server cannot be reached."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import ANY

import httpx
import pytest

from drawgate import AsyncLimiter, Bucket, Limiter, LimitSpec, Policy, Refused, ServerUnavailable, _decide
from drawgate._share import MAX_BUCKETS, MAX_ENTRIES, Share
from drawgate._types import Answer, Limit
from drawgate.testing import FakeServer


@pytest.fixture
def fake() -> FakeServer:
    return FakeServer(llm={"requests": 10, "tokens": 100})


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_decide, "OFFLINE", 0.0)  # every call tries the server


def test_closed(fake: FakeServer) -> None:
    with Limiter(transport=fake.transport, timeout=0.1) as limiter:
        fake.unavailable = True
        with pytest.raises(ServerUnavailable):
            limiter.take("llm")
        with pytest.raises(ServerUnavailable), limiter.reserve("llm"):
            raise AssertionError
        fake.unavailable = False
        assert limiter.take("llm")


def test_open(fake: FakeServer, caplog: pytest.LogCaptureFixture) -> None:
    with Limiter(transport=fake.transport, timeout=1, fallback="open") as limiter:
        fake.unavailable = True
        for _ in range(2):
            answer = limiter.take("llm", costs={"tokens": 1000})
            assert answer
            assert answer.fallback
        with limiter.reserve("llm", costs={"tokens": 5}) as r:
            r.used(tokens=3)
        assert r.outcome == "local"
        fake.unavailable = False
        assert limiter.take("llm", costs={"requests": 10})
        assert not limiter.take("llm")
    assert fake.used("llm") == {"requests": 10}
    assert [r.levelno for r in caplog.records if "fallback open" in r.message] == [logging.WARNING]


def test_the_server_is_not_asked_every_time(fake: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with Limiter(transport=fake.transport, timeout=1, fallback="open") as limiter:
        fake.unavailable = True
        monkeypatch.setattr(_decide, "OFFLINE", 1000.0)
        assert limiter.take("llm").fallback
        fake.unavailable = False
        assert limiter.take("llm").fallback
        limiter._inner._decider._offline_until = 1.0  # that time has passed
        assert not limiter.take("llm").fallback
    assert fake.used("llm") == {"requests": 1}


def test_a_proxy_without_the_path_for_health() -> None:
    up = True

    def handle(request: httpx.Request) -> httpx.Response:
        if not up:
            raise httpx.ConnectError("down")
        return httpx.Response(200, json={"allowed": True}) if request.url.path == "/v1/take" else httpx.Response(404)

    with Limiter(transport=httpx.MockTransport(handle), timeout=1, fallback="open") as limiter:
        up = False
        assert limiter.take("llm").fallback
        up = True
        assert not limiter.take("llm").fallback


def test_is_allowed(fake: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_decide, "OFFLINE", 1000.0)
    with Limiter(transport=fake.transport, timeout=0.1, fallback="open") as limiter:
        fake.unavailable = True
        for _ in range(3):
            assert limiter.is_allowed("user", 10, 60)[0]
        fake.unavailable = False
        limiter._inner._decider._offline_until = 1.0  # that time has passed
        assert limiter.is_allowed("user", 10, 60) == (True, ANY)
        fake.unavailable = True
        assert limiter.is_allowed("user", 10, 60)[0]
        assert limiter._inner._policies
    assert fake.used("llm", "user") == {"requests": 1}


def test_share(fake: FakeServer) -> None:
    """A process of two has five of ten requests, less what it was granted before."""
    with Limiter(transport=fake.transport, timeout=1, fallback="share", instances=2) as limiter:
        assert limiter.take("llm", "a", costs={"tokens": 10})
        assert limiter.take("llm", "a", costs={"requests": 2})
        fake.unavailable = True
        with limiter.reserve("llm", "a", costs={"tokens": 10}) as r:
            r.used(tokens=40)  # with the 10 before, nothing of the 50 is left
        assert not limiter.take("llm", "a", costs={"tokens": 1})
        assert limiter.take("llm", "a")
        answer = limiter.take("llm", "a")
        assert (answer.reason, answer.policy, answer.limit) == ("limited", "llm", "requests")
        (limit,) = answer.limits
        assert (limit.amount, limit.max, limit.remaining, limit.refused) == (10, 5, 0, True)
        assert limit.retry_after == answer.retry_after is not None
        large = limiter.take("llm", "a", costs={"requests": 6})  # no wait makes it fit in a share of 5
        assert (large.reason, large.policy, large.limit) == ("unavailable", "llm", "requests")
        with pytest.raises(Refused, match="this process's share of limit"):
            limiter.wait("llm", "a")
        assert not limiter.take("llm", "b")  # never seen: a process before this one may have used it
        fake.unavailable = False
        assert limiter.take("llm", "b")
    assert fake.used("llm", "a") == {"requests": 3, "tokens": 10}


@pytest.mark.parametrize("ask", ["check", "policies", "status", "is_allowed"])
def test_the_share_is_learned_without_a_take(fake: FakeServer, monkeypatch: pytest.MonkeyPatch, ask: str) -> None:
    """Whatever was asked before: when a window has passed since the start, the process has its share."""
    questions: dict[str, Callable[[Limiter], object]] = {
        "check": lambda limiter: limiter.check("llm"),
        "policies": lambda limiter: limiter.policies(),
        "status": lambda limiter: limiter.status("llm", "another"),
        "is_allowed": lambda limiter: limiter.is_allowed("another", 10, 60),
    }
    limiter = Limiter(transport=fake.transport, timeout=1, fallback="share", instances=2)
    questions[ask](limiter)
    limiter.close()  # waits for what is done in the background
    fake.unavailable = True
    share = limiter._inner._decider._share
    assert share
    with limiter:
        refused = limiter.take("llm", "a")
        assert (refused.reason, refused.limit) == ("limited", "requests")
        share._start -= 60
        assert [limiter.take("llm", "a").allowed for _ in range(6)] == [True] * 5 + [False]


def test_the_share_is_learned_by_an_async_check(fake: FakeServer) -> None:
    async def main() -> None:
        async with AsyncLimiter(transport=fake.transport, timeout=1, fallback="share", instances=2) as limiter:
            await limiter.check("llm")
            fake.unavailable = True
            assert (await limiter.take("llm", "a")).limit == "requests"

    asyncio.run(main())


def test_a_refusal_and_a_status_say_what_was_used(fake: FakeServer) -> None:
    with Limiter(transport=fake.transport) as other:
        for key in ("a", "b"):
            assert other.take("llm", key, costs={"requests": 2})
        assert other.take("llm", "used up", costs={"requests": 10})
    with Limiter(transport=fake.transport, timeout=1, fallback="share", instances=2) as limiter:
        limiter.check("llm")
        assert limiter.status("llm", "a").limits[0].used == 2
        assert not limiter.take("llm", "b", costs={"requests": 9})
        assert not limiter.take("llm", "used up")
        fake.unavailable = True
        for key in ("a", "b"):
            assert [limiter.take("llm", key).allowed for _ in range(4)] == [True] * 3 + [False]
        assert not limiter.take("llm", "used up")
        assert not limiter.take("llm", "never seen")


def test_two_limits_of_a_unit() -> None:
    """What was used before is what the limit with the longer window shows, wherever it stands."""

    def limit(name: str, amount: int, remaining: int) -> Limit:
        return Limit(0, "p", name, "requests", amount, amount, remaining, 0.0, None, False)

    day = LimitSpec("day", "requests", "rolling", 10, 10, 86400, "", "UTC", 0, "")
    second = LimitSpec("second", "requests", "rolling", 5, 5, 1, "", "UTC", 0, "")
    for specs in ((day, second), (second, day)):
        share = Share(1, 0)
        share.learn([Policy("p", specs, shadow=False)])
        seen = {"day": limit("day", 10, 1), "second": limit("second", 5, 4)}
        answer = Answer(allowed=True, limits=tuple(seen[s.name] for s in specs))
        one = [Bucket("p", "k")]
        share.granted(one, answer, False, 100)  # eight were used before it
        assert share.take(one, 102)
        share.granted(one, Answer(allowed=True, fallback=True), False, 102)
        assert not share.take(one, 104)


def test_what_a_low_priority_sees_is_not_all_that_is_used() -> None:
    """Of ten a low priority may use five: if nothing is left for it, others may have used all ten."""
    share = Share(1, 0)
    share.learn([policy("p", "rolling", 10, 60)])
    one = [Bucket("p", "k")]
    share.saw(one, [Limit(0, "p", "limit", "requests", 10, 5, 0, 30.0, None, True)], 100)
    share.granted(one, unused(10), False, 130)  # of priority 0
    assert not share.take(one, 130)
    assert share.take(one, 161)


def test_the_policies_are_learned_again(fake: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_decide, "LEARN_AFTER", -1.0)
    asked: list[object] = []
    learn = Share.learn

    def count(self: Share, policies: Sequence[Policy]) -> list[str]:
        asked.append(policies)
        return learn(self, policies)

    monkeypatch.setattr(Share, "learn", count)
    limiter = Limiter(transport=fake.transport, timeout=1, fallback="share", instances=1)
    for amount in (10, 10, 6):
        fake._policies = {"llm": {"requests": amount}}
        assert limiter.take("llm")
        limiter.close()  # waits for what is done in the background
    assert len(asked) == 2


@pytest.mark.parametrize(("fallback", "instances"), [("share", None), ("closed", 2), ("share", 0), ("perhaps", None)])
def test_settings(fallback: str, instances: int | None) -> None:
    with pytest.raises(ValueError, match="fallback"):
        Limiter(fallback=fallback, instances=instances)  # type: ignore[arg-type]


def policy(name: str, kind: str, amount: int, window: float = 0.0, every: str = "", burst: int = 0) -> Policy:
    spec = LimitSpec("limit", "requests", kind, amount, burst or amount, window, every, "UTC", burst, "")
    return Policy(name, (spec,), shadow=False)


def unused(most: int) -> Answer:
    limit = Limit(0, "p", "limit", "requests", most, most, most, 0.0, None, False)
    return Answer(allowed=True, limits=(limit,))


@pytest.mark.parametrize(
    ("p", "want"),
    [
        (policy("p", "rolling", 9, 60), [3, 0, 3]),
        (policy("p", "calendar", 9, every="minute"), [3, 0, 3]),
        (policy("p", "bucket", 60, 60, burst=9), [3, 0, 3]),
        (policy("p", "another", 9, 60), [0, 0, 0]),  # of a server of another version
        (policy("p", "calendar", 9, every="decade"), [0, 0, 0]),
        (policy("p", "rolling", 2, 60), [0, 0, 0]),  # a share of less than one unit is nothing
    ],
)
def test_the_share_is_never_exceeded_in_a_window(p: Policy, want: list[int]) -> None:
    share = Share(3, 0)
    share.learn([p])
    bucket = [Bucket("p", "k", {"requests": 0})]
    share.granted(bucket, unused(p.limits[0].max), False, 0)
    one = [Bucket("p", "k")]
    got = []
    for now in (100.0, 159.0, 160.0):
        n = 0
        while answer := share.take(one, now):
            share.granted(one, answer, False, now)
            n += 1
        got.append(n)
        assert answer.retry_after
    assert got == want


@pytest.mark.parametrize(
    ("kind", "every", "what"), [("calendar", "decade", 'calendar, every "decade"'), ("leaky", "", "leaky, 60 s")]
)
def test_a_limit_of_a_newer_server(
    kind: str,
    every: str,
    what: str,
    fake: FakeServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its window is not known: it is named once when the policies are learned, and in each refusal."""
    monkeypatch.setattr(_decide, "LEARN_AFTER", -1.0)
    listed = fake._list

    def newer(body: Any) -> Any:
        policies = listed(body)
        policies["policies"][0]["limits"][1] |= {"kind": kind, "every": every}
        return policies

    monkeypatch.setattr(fake, "_list", newer)
    limiter = Limiter(transport=fake.transport, timeout=1, fallback="share", instances=1)
    for amount in (10, 11):  # each time the policies are learned
        fake._policies = {"llm": {"requests": amount, "tokens": 100}}
        assert limiter.take("llm")
        limiter.close()  # waits for what is done in the background
    named = f'limit "tokens" of policy "llm" ({what})'
    warnings = [r.getMessage() for r in caplog.records if named in r.getMessage()]
    assert len(warnings) == 1
    assert "does not know its window" in warnings[0]
    fake.unavailable = True
    with limiter:
        answer = limiter.take("llm")
    assert (answer.allowed, answer.fallback, answer.reason) == (False, True, "unavailable")
    assert (answer.policy, answer.limit, answer.retry_after) == ("llm", "tokens", 1.0)
    assert f"{named} admits nothing without the server" in answer.message


def test_what_was_used_before(caplog: pytest.LogCaptureFixture) -> None:
    p = policy("p", "rolling", 10, 60)
    share = Share(2, now=1000)
    assert not share.take([Bucket("p")], 1000)  # the policies are not known
    share.learn([p])
    answer = share.take([Bucket("p")], 1010)
    assert answer.retry_after == pytest.approx(50)  # one window after the start
    assert share.take([Bucket("p")], 1060)
    seen = Answer(allowed=True, limits=(Limit(0, "p", "limit", "requests", 10, 10, 6, 0.0, None, False),))
    share.granted([Bucket("p", "k")], seen, False, 1010)  # three were used by others, or by a process before this one
    share.granted([Bucket("p", "k")], seen, False, 1010)
    assert not share.take([Bucket("p", "k")], 1011)
    assert share.take([Bucket("p", "k")], 1070)


def test_slots_are_shared() -> None:
    share = Share(2, 0)
    share.learn([policy("p", "concurrency", 4)])
    one = [Bucket("p")]
    held = [share.granted(one, share.take(one, 1), True, 1) for _ in range(2)]
    assert not share.take(one, 100)
    share.settled(held[0], {}, 100)
    assert share.take(one, 100)


def test_what_is_kept_is_bounded() -> None:
    share = Share(1, 0)
    share.learn([policy("p", "rolling", 1_000_000, 1e6)])
    one = [Bucket("p")]
    for i in range(10 * MAX_ENTRIES):
        share.granted(one, unused(1_000_000), False, i)
    entries = share._entries["p", "default", ""]
    assert len(entries) <= MAX_ENTRIES
    assert sum(e.costs["requests"] for e in entries if e.costs) == 10 * MAX_ENTRIES - 1 + 1


def test_slots_are_kept_when_buckets_are_forgotten() -> None:
    share = Share(1, 0)
    share.learn([policy("p", "concurrency", 1)])
    one = [Bucket("p", "k")]
    share.granted(one, unused(1), True, 1)
    for i in range(MAX_BUCKETS):
        share.granted([Bucket("p", str(i))], unused(1), False, 1)
    assert not share.take(one, 2)
    assert len(share._entries) < MAX_BUCKETS


def test_what_counts_no_longer_is_dropped() -> None:
    share = Share(1, 0)
    share.learn([policy("p", "rolling", 1000, 60)])
    one = [Bucket("p")]
    for i in range(100):
        share.granted(one, unused(1000), False, 50.0 * i)
    (entries,) = share._entries.values()
    assert len(entries) == 2


def test_a_shadow_policy_refuses_nothing() -> None:
    share = Share(2, 0)
    share.learn([policy("p", "rolling", 4, 60), Policy("s", policy("s", "rolling", 1, 60).limits, shadow=True)])
    assert share.take([Bucket("p", "k"), Bucket("s", "k")], 100)


def test_a_bucket_has_one_share_by_all_of_its_names() -> None:
    share = Share(1, 0)
    share.granted([Bucket()], unused(4), False, 100)  # before the policies are known
    share.learn([policy("p", "rolling", 4, 60)])
    for bucket in (Bucket("p"), Bucket("p", "default"), Bucket("", "default")):
        answer = share.take([bucket], 100)
        assert answer
        share.granted([bucket], answer, False, 100)
    assert not share.take([Bucket()], 100)


def test_an_override_lowers_the_share() -> None:
    share = Share(2, 0)
    share.learn([policy("p", "rolling", 100, 60)])
    one = [Bucket("p", "k")]
    share.granted(one, unused(4), False, 0)
    assert share.take([Bucket("p", "k", {"requests": 2})], 60)
    assert not share.take([Bucket("p", "k", {"requests": 3})], 60)


@pytest.mark.parametrize("wrong", [None, -50, 4.5, "4"])
def test_wrong_numbers_are_not_counted(fake: FakeServer, wrong: Any) -> None:
    with Limiter(transport=fake.transport, timeout=1, fallback="share", instances=1) as limiter:
        with pytest.raises(ValueError, match="give a whole number"), limiter.reserve("llm", costs={"tokens": 5}) as r:
            r.used(tokens=wrong)
        fake.unavailable = True
        assert limiter.take("llm", costs={"tokens": 95})
        assert not limiter.take("llm", costs={"tokens": 1})
