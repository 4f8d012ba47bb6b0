"""This process's share of the limits, for the time in which the server cannot be reached. No I/O."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ._types import UNIT_REQUESTS, Answer, Bucket, Limit, LimitSpec, Policy, key_text

# Bounds on what a process keeps. Beyond them it forgets, and then counts too much rather than too little.
MAX_BUCKETS = 10_000
MAX_ENTRIES = 1_000  # of a bucket

# The longest that a calendar window lasts, in seconds, with an hour for a change of the clocks.
_CALENDAR = {
    "minute": 60,
    "hour": 3600,
    "day": (1 * 24 + 1) * 3600,
    "week": (7 * 24 + 1) * 3600,
    "month": (31 * 24 + 1) * 3600,
}

DEFAULT_KEY = "default"  # of a bucket that names none

UNKNOWN = "this version of the package does not know its window, so install a newer one"

_AGAIN = 1.0  # seconds after which to ask again if nobody knows when a take fits


@dataclass
class Entry:
    """Units that this process was granted.

    Attributes:
        costs: by unit.
        at: when they were granted, or settled.
        open: they are held.
    """

    costs: dict[str, int]
    at: float
    open: bool = False


class Share:
    """Counts what this process is granted, and decides without the server within amount ÷ instances.

    Every limit counts over every interval of its window's length, so the share of a calendar limit
    is never more than its windows allow. Of a bucket limit each window admits a share of the burst,
    or of the amount if that is less.

    Nobody knows what a process that ran before with the same share was granted. So a bucket begins
    with what the server's first answer shows as used, be it a refusal or a status. If there was none, it
    begins as if its share had been used when this process started.

    A limit whose window is not known, because the server is newer, has no share: whatever it would
    count is refused, and the refusal says why.
    """

    def __init__(self, instances: int, now: float) -> None:
        self._instances, self._start = instances, now
        self._policies: dict[str, Policy] = {}
        self._unknown: set[str] = set()  # limits that were reported
        self._longest = math.inf  # window
        self._entries: dict[tuple[str, str, str], list[Entry]] = {}
        self._max: dict[tuple[str, str, str], dict[str, int]] = {}  # by limit, of the last answer: overrides

    def learn(self, policies: Sequence[Policy]) -> list[str]:
        """Notes what the policies are. Returns limits that have no share, for people, each once."""
        self._policies = {p.name: p for p in policies}
        entries, self._entries = self._entries, {}
        for (name, key, tenant), old in entries.items():  # "" may have a name by now
            self._entries.setdefault(self._name(Bucket(name, key, tenant=tenant)), []).extend(old)
        self._longest = max((_window(m) or 0.0 for p in policies for m in p.limits), default=math.inf)
        unknown = [_described(p, m) for p in policies if not p.shadow for m in p.limits if _window(m) is None]
        new = [text for text in unknown if text not in self._unknown]
        self._unknown.update(new)
        return new

    def knows(self, buckets: Sequence[Bucket]) -> bool:
        """Says whether the policies of these buckets are known."""
        return all(self._policy(b) for b in buckets)

    def outdated(self, limits: Iterable[Limit]) -> bool:
        """Says whether an answer has other amounts than the policies: they were reloaded, or have an override."""
        amounts = {(p.name, m.name): m.amount for p in self._policies.values() for m in p.limits}
        return any(amounts.get((m.policy, m.name)) != m.amount for m in limits)

    def granted(self, buckets: Sequence[Bucket], answer: Answer, held: bool, now: float) -> list[Entry]:
        """Notes what was granted, by the server or by this share."""
        made = []
        for i, bucket in enumerate(buckets):
            name = self._name(bucket)
            entries = self._entries.get(name)
            if entries is None:
                entries = self._begin(name, self._before(bucket, i, answer, now), now)
            if not answer.fallback:
                self._max[name] = {m.name: min(m.amount, m.max) for m in answer.limits if m.bucket == i}
            while entries and not entries[0].open and entries[0].at + self._longest < now:
                del entries[0]
            made.append(Entry({UNIT_REQUESTS: 1, **bucket.costs}, now, held))
            entries.append(made[-1])
            if len(entries) > MAX_ENTRIES:
                _shorten(entries)
        return made

    def saw(self, buckets: Sequence[Bucket], limits: Sequence[Limit], now: float) -> None:
        """Notes what the server said about buckets without granting anything."""
        for i, bucket in enumerate(buckets):
            own = [m for m in limits if m.bucket == i]
            if own and (name := self._name(bucket)) not in self._entries:
                # Nothing is left may mean that others, whose priority is higher, have used more than max.
                used = [(m.unit, m.max - m.remaining if m.remaining > 0 else max(m.amount, m.max)) for m in own]
                self._begin(name, Entry(_most(used), now), now)
                self._max[name] = {m.name: min(m.amount, m.max) for m in own}

    def settled(self, entries: Sequence[Entry], used: Mapping[str, int] | None, now: float) -> None:
        """Notes how a reservation ended. None means that it was cancelled."""
        for e in entries:
            e.at, e.open = now, False
            if used is None:
                e.costs.clear()
            else:
                e.costs.update(used)

    def take(self, buckets: Sequence[Bucket] | None, now: float) -> Answer:
        """Decides a take without the server. What it grants still has to be noted."""
        if buckets is None or not self.knows(buckets):
            return _refusal("", "", "the server cannot be reached, and this process does not know its share", _AGAIN)
        refusing: list[Limit] = []
        for i, bucket in enumerate(buckets):
            policy = self._policy(bucket)
            assert policy is not None
            if policy.shadow:
                continue
            name = self._name(bucket)
            entries = self._entries.get(name) or [Entry(_everything(policy), self._start)]
            for limit in policy.limits:
                if _window(limit) is None:
                    why = f"{_described(policy, limit)} admits nothing without the server: {UNKNOWN}"
                    return _refusal(policy.name, limit.name, why, _AGAIN)
                allowed = self._max.get(name, {}).get(limit.name, limit.max)
                share = self._of(limit, allowed)
                n = _cost(bucket.costs, limit.unit)
                if n > share:
                    why = f"{n} {limit.unit} are more than this process's share of {_named(policy, limit)}, {share}"
                    return _refusal(policy.name, limit.name, f"without the server, {why}", _AGAIN)
                wait, left = _wait(limit, share, entries, n, now)
                if wait > 0:
                    refusing.append(
                        Limit(
                            bucket=i,
                            policy=policy.name,
                            name=limit.name,
                            unit=limit.unit,
                            amount=limit.amount,
                            max=share,
                            remaining=left,
                            retry_after=wait,
                            reset_at=None,
                            refused=True,
                        )
                    )
        if not refusing:
            return Answer(allowed=True, fallback=True)
        last = max(refusing, key=lambda m: m.retry_after or 0.0)
        why = f'this process\'s share of limit "{last.name}" of policy "{last.policy}" does not admit it'
        return Answer(
            allowed=False,
            reason="limited",
            message=f"without the server, {why}",
            policy=last.policy,
            limit=last.name,
            retry_after=last.retry_after,
            limits=tuple(refusing),
            fallback=True,
        )

    def _begin(self, name: tuple[str, str, str], before: Entry, now: float) -> list[Entry]:
        """Makes a bucket, of which this was used before."""
        if len(self._entries) >= MAX_BUCKETS:
            self._entries = {n: old for n, old in self._entries.items() if any(e.open for e in old)}
            self._max = {n: by_limit for n, by_limit in self._max.items() if n in self._entries}
            self._start = now
        entries = self._entries[name] = [before]
        return entries

    def _before(self, bucket: Bucket, i: int, answer: Answer, now: float) -> Entry:
        policy = self._policy(bucket)
        if answer.fallback:
            return Entry(_everything(policy) if policy else {}, self._start)
        own = [m for m in answer.limits if m.bucket == i]
        return Entry(_most((m.unit, max(0, m.max - m.remaining - _cost(bucket.costs, m.unit))) for m in own), now)

    def _of(self, limit: LimitSpec, allowed: int) -> int:
        """Returns this process's share of a limit, of which so much is allowed in this bucket."""
        return min(allowed, limit.max, limit.amount if limit.kind == "bucket" else limit.max) // self._instances

    def _name(self, bucket: Bucket) -> tuple[str, str, str]:
        """Returns the same for all names of a bucket."""
        policy = self._policy(bucket)
        return policy.name if policy else bucket.policy, key_text(bucket.key) or DEFAULT_KEY, bucket.tenant

    def _policy(self, bucket: Bucket) -> Policy | None:
        if not bucket.policy and len(self._policies) == 1:
            return next(iter(self._policies.values()))
        return self._policies.get(bucket.policy)


def _wait(limit: LimitSpec, share: int, entries: list[Entry], n: int, now: float) -> tuple[float, int]:
    """Returns after how many seconds n units fit, and how many would now."""
    window = _window(limit) or 0.0
    ends: list[tuple[float, int]] = []  # when units leave the window, and how many
    for e in entries:
        lasts = 0.0 if limit.kind == "concurrency" and not e.open else window
        end = (now if e.open else e.at) + lasts
        if end > now:
            ends.append((end, e.costs.get(limit.unit, 0)))
    left = share - sum(units for _, units in ends)
    excess, wait = n - left, 0.0
    for end, units in sorted(ends):
        if excess <= 0:
            break
        excess, wait = excess - units, end - now
    return wait, max(0, left)


def _window(limit: LimitSpec) -> float | None:
    """Returns for how long units count, in seconds; None if only newer versions of this package know."""
    windows = {
        "bucket": limit.window,
        "rolling": limit.window,
        "calendar": _CALENDAR.get(limit.every, 0.0),
        "concurrency": _AGAIN,  # while a slot is held
    }
    return windows.get(limit.kind) or None


def _described(policy: Policy, limit: LimitSpec) -> str:
    what = limit.kind + (f', every "{limit.every}"' if limit.every else f", {limit.window:g} s" if limit.window else "")
    return f"{_named(policy, limit)} ({what})"


def _named(policy: Policy, limit: LimitSpec) -> str:
    return f'limit "{limit.name}" of policy "{policy.name}"'


def _most(used: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Returns the most of each unit: several limits may count the same one, over different windows."""
    return dict(sorted(used, key=lambda u: u[1]))  # the last one of each counts


def _cost(costs: Mapping[str, int], unit: str) -> int:
    return costs.get(unit, 1 if unit == UNIT_REQUESTS else 0)


def _everything(policy: Policy) -> dict[str, int]:
    """Returns so much that nothing is left, except slots: the process that held them has ended."""
    return {limit.unit: sum(m.max for m in policy.limits if m.unit == limit.unit) for limit in policy.limits}


def _shorten(entries: list[Entry]) -> None:
    """Joins old entries with the next one, as if all had been granted later than they were."""
    closed = [e for e in entries if not e.open]
    for older, newer in zip(closed[: MAX_ENTRIES // 2 : 2], closed[1 : MAX_ENTRIES // 2 : 2], strict=False):
        for unit, n in older.costs.items():
            newer.costs[unit] = newer.costs.get(unit, 0) + n
        newer.at = max(newer.at, older.at)
        entries.remove(older)


def _refusal(policy: str, limit: str, message: str, wait: float) -> Answer:
    """Refuses what no wait makes fit while the server is unavailable."""
    return Answer(
        allowed=False,
        reason="unavailable",
        message=message,
        policy=policy,
        limit=limit,
        retry_after=wait,
        fallback=True,
    )
