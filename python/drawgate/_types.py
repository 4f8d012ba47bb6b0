"""What programs give and get: buckets, answers and descriptions, as values. Imports nothing of the package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

Json: TypeAlias = dict[str, Any]

UNIT_REQUESTS = "requests"  # counts 1 if a take does not name it

Key: TypeAlias = str | int | UUID
"""Who is counted. Any object that can be made text by its own `__str__` is taken as well."""


def key_text(key: Any) -> str:
    """Returns a key as text."""
    if isinstance(key, str):
        return key
    if isinstance(key, int) and not isinstance(key, bool):
        return str(int(key))
    # Values without a text of their own have Python's notation, such as "[1, 2]" or "<object at 0x…>".
    notation: Any = object.__str__
    if key is None or isinstance(key, bool | float | bytes | bytearray) or type(key).__str__ is notation:
        raise TypeError(
            f"key is of type {type(key).__name__}: give text, an int or a UUID, or leave it out for the default key"
        )
    return str(key)


def check_costs(costs: Any) -> None:
    """Raises a TypeError if costs are not by unit."""
    if not isinstance(costs, Mapping):
        raise TypeError(f"costs is {costs!r}: give units by name, such as {{'tokens': 400}}")


@dataclass(frozen=True)
class Bucket:
    """A bucket, and what to take from it.

    Attributes:
        policy: its policy; "" is the only one of the server.
        key: who is counted: text, or an id such as an int or a UUID, which becomes text; "" is the
            default key. None is an error: who has no key must not share a bucket by accident.
        costs: units by name. `requests` counts 1 if it is not named, any other unit 0.
        tenant: "" is the server's own, or the one that the access token is bound to.
    """

    policy: str = ""
    key: Key = ""
    costs: Mapping[str, int] = field(default_factory=dict)
    tenant: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", key_text(self.key))
        check_costs(self.costs)


@dataclass(frozen=True)
class Attributes:
    """What is known about a request: the server's rules choose policies and keys from it."""

    method: str = ""
    path: str = ""
    host: str = ""
    route: str = ""
    ip: str = ""
    user: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    attrs: Mapping[str, str] = field(default_factory=dict)


Target: TypeAlias = str | Sequence[Bucket] | Attributes
"""What to take from: a policy by its name; several buckets, all or nothing; or what the rules choose."""


@dataclass(frozen=True)
class Limit:
    """What an answer says about one limit.

    Attributes:
        bucket: the position of its bucket in the take.
        policy: its policy.
        name: its name in the policy.
        unit: what it counts.
        amount: as configured.
        max: how much of it may be used at this priority.
        remaining: how much a take of the same priority would get right now.
        retry_after: seconds; 0 if it passes, None if waiting never helps.
        reset_at: when nothing of it will be used.
        refused: whether it refuses.
    """

    bucket: int
    policy: str
    name: str
    unit: str
    amount: int
    max: int
    remaining: int
    retry_after: float | None
    reset_at: datetime | None
    refused: bool

    @property
    def most(self) -> int:
        """The same as max, by its name before 1.0."""
        return self.max


@dataclass(frozen=True)
class Answer:
    """The answer to a take. It is true if the take is allowed.

    Attributes:
        allowed: may it pass?
        reason: why not: see `Refused`.
        message: the same as a sentence for people.
        policy: the policy of the limit that refuses longest.
        limit: that limit.
        retry_after: seconds after which the same take fits, if nothing else happens; None if waiting never helps.
        reset_at: when nothing of that limit, or else of the tightest, will be used.
        remaining: what is left of the tightest limit.
        limits: bucket by bucket.
        replayed: a take with this grant was open already, and this is its answer.
        fallback: decided without the store by the server, or without the server by this process.
        exempt: a rule exempts the request.
        unmatched: no rule applies a policy to it.
        reservation: the token to settle with.
        hold_end: by when to settle, on the server's clock.
        hold: the same in seconds from when the take was sent; 0 if the server does not say it.
    """

    allowed: bool
    reason: str = ""
    message: str = ""
    policy: str = ""
    limit: str = ""
    retry_after: float | None = 0.0
    reset_at: datetime | None = None
    remaining: int = 0
    limits: tuple[Limit, ...] = ()
    replayed: bool = False
    fallback: bool = False
    exempt: bool = False
    unmatched: bool = False
    reservation: str = field(default="", repr=False)
    hold_end: datetime | None = None
    hold: float = 0.0

    def __bool__(self) -> bool:
        return self.allowed


@dataclass(frozen=True)
class LimitStatus(Limit):
    """A limit of a bucket, in full.

    Attributes:
        kind: bucket, rolling, calendar or concurrency.
        window: seconds of a rolling limit, or the period of a bucket's amount; 0 for the others.
        every: of a calendar limit: its window, such as month.
        zone: of a calendar limit.
        burst: of a bucket.
        used: units that count now, with those that are held.
        held: those of them that are held and do not age.
        debt: by how much use exceeds the limit.
    """

    kind: str
    window: float
    every: str
    zone: str
    burst: int
    used: int
    held: int
    debt: int


@dataclass(frozen=True)
class Status:
    """A bucket.

    Attributes:
        policy: its policy.
        key: who is counted.
        tenant: "" is the server's own.
        at: the store's time, as of which everything holds.
        open: how many reservations are open.
        paused_until: until when it refuses every take.
        pause_reason: why, for people.
        take: what a take of the given costs would get now.
        limits: in the policy's order.
    """

    policy: str
    key: str
    tenant: str
    at: datetime
    open: int
    paused_until: datetime | None
    pause_reason: str
    take: Answer
    limits: tuple[LimitStatus, ...]


@dataclass(frozen=True)
class LimitSpec:
    """A limit as it was configured. The fields are those of `LimitStatus`."""

    name: str
    unit: str
    kind: str
    amount: int
    max: int
    window: float
    every: str
    zone: str
    burst: int
    description: str

    @property
    def most(self) -> int:
        """The same as max, by its name before 1.0."""
        return self.max


@dataclass(frozen=True)
class Policy:
    """A policy of the server. A shadow is evaluated and not enforced."""

    name: str
    limits: tuple[LimitSpec, ...]
    shadow: bool
