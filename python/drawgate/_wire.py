"""The server's protocol as data: requests, answers and problems. Nothing here does I/O."""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, TypeAlias
from urllib.parse import urlsplit
from uuid import UUID

from ._errors import Error, Problem, ServerUnavailable, StoreUnavailable

Json: TypeAlias = dict[str, Any]

DEFAULT_SERVER = "http://127.0.0.1:7878"
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

    def body(self) -> Json:
        """Returns the fields that are set."""
        fields: Json = {"policy": self.policy, "key": self.key, "costs": dict(self.costs), "tenant": self.tenant}
        return {name: value for name, value in fields.items() if value}


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

    def body(self) -> Json:
        """Returns the fields that are set."""
        return {
            name: dict(value) if isinstance(value, Mapping) else value for name, value in vars(self).items() if value
        }


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
        most: how much of it may be used at this priority.
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
    most: int
    remaining: int
    retry_after: float | None
    reset_at: datetime | None
    refused: bool


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
        every: of a calendar limit: minute, hour, day, week or month.
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
    most: int
    window: float
    every: str
    zone: str
    burst: int
    description: str


@dataclass(frozen=True)
class Policy:
    """A policy of the server. A shadow is evaluated and not enforced."""

    name: str
    limits: tuple[LimitSpec, ...]
    shadow: bool


def server_url(address: str) -> str:
    """Returns the base of all paths. An address that cannot be right is a ValueError."""
    u = urlsplit(address)
    if "@" in address or u.query or u.fragment:
        raise ValueError(
            "the address of a server must not have a user, query or fragment: put an access token into DRAWGATE_TOKEN"
        )
    try:
        right = u.scheme in ("http", "https") and u.hostname and (u.port is None or u.port)
    except ValueError:  # the port
        right = False
    if not right:
        raise ValueError(f"{address!r} is not the address of a server: give one such as {DEFAULT_SERVER}")
    return u.geturl().rstrip("/")  # with a scheme in small letters


def millis(name: str, seconds: float) -> int:
    """Converts seconds for the wire, rounded up."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"{name} is {seconds!r}: give a number of seconds")
    if not 0 <= seconds * 1000 < math.inf:
        raise ValueError(f"{name} is {seconds}: give a number of seconds that is not negative")
    return math.ceil(seconds * 1000)


def new_grant() -> str:
    """Returns a grant: 16 random hexadecimal digits, not all zero."""
    return f"{1 + secrets.randbelow(2**64 - 1):016x}"


def buckets_of(target: Target, key: Key, costs: Mapping[str, int] | None) -> list[Bucket] | None:
    """Returns what a take takes from; None if the rules choose."""
    if isinstance(target, Attributes):
        return None
    if isinstance(target, str):
        return [Bucket(target, key, {} if costs is None else costs)]
    return list(target)


def take_body(
    target: Target,
    key: Key,
    costs: Mapping[str, int] | None,
    *,
    priority: int = 0,
    labels: Mapping[str, str] | None = None,
) -> Json:
    """Makes a take that neither waits nor holds."""
    body = _target_body(target, key, {} if costs is None else costs)
    if priority:
        body["priority"] = priority
    if labels:
        body["labels"] = dict(labels)
    return body


def _target_body(target: Target, key: Key, costs: Mapping[str, int]) -> Json:
    if isinstance(target, str):
        return Bucket(target, key, costs).body()
    if key_text(key):
        raise ValueError("a key belongs to one policy: put it into each Bucket; of Attributes the rules choose it")
    check_costs(costs)
    if isinstance(target, Attributes):
        return {"attributes": target.body()} | ({"costs": dict(costs)} if costs else {})
    if costs:
        raise ValueError("put the costs into each Bucket")
    return {"buckets": [b.body() for b in target]}


_INSTANT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?Z")


def instant(text: str | None) -> datetime | None:
    """Reads an instant. datetime.fromisoformat reads neither Z nor nanoseconds before Python 3.11."""
    if text is None:
        return None
    m = _INSTANT.fullmatch(text)
    if not m:
        raise ValueError(f"{text!r} is not an instant")
    return datetime.fromisoformat(f"{m[1]}.{(m[2] or '0')[:6]:0<6}").replace(tzinfo=timezone.utc)


def policies_of(take: Json) -> str:
    """Names the policies of a take, for people."""
    names = {take.get("policy", ""), *(b.get("policy", "") for b in take.get("buckets", ()))} - {""}
    if "attributes" in take:
        return "the policies that the rules chose"
    return f"policy {', '.join(sorted(names))}" if names else "the server's only policy"


def paused(d: Json) -> datetime:
    """Reads the answer to a pause: until when it lasts."""
    until = instant(d["until"])
    if until is None:
        raise ValueError("no instant")
    return until


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def _limit(d: Json) -> dict[str, Any]:
    return {
        "bucket": d.get("bucket", 0),
        "policy": d.get("policy", ""),
        "name": d["name"],
        "unit": d["unit"],
        "amount": d["amount"],
        "most": d["most"],
        "remaining": d["remaining"],
        "retry_after": _seconds(d.get("retry_after_ms", 0)),
        "reset_at": instant(d.get("reset_at")),
        "refused": d.get("refused", False),
    }


def _spec(d: Json) -> dict[str, Any]:
    return {
        "kind": d["kind"],
        "window": d.get("window_ms", 0) / 1000,
        "every": d.get("every", ""),
        "zone": d.get("zone", ""),
        "burst": d.get("burst", 0),
    }


def answer(d: Json) -> Answer:
    """Reads the answer to a take."""
    by = d.get("refused_by") or {}
    return Answer(
        allowed=d["allowed"] is True,
        reason=d.get("reason") or "",
        message=d.get("message") or "",
        policy=by.get("policy", ""),
        limit=by.get("limit", ""),
        retry_after=_seconds(d.get("retry_after_ms", 0)),
        reset_at=instant(d.get("reset_at")),
        remaining=d.get("remaining", 0),
        limits=tuple(Limit(**_limit(e)) for e in d.get("limits") or ()),
        replayed=d.get("replayed", False),
        fallback=d.get("fallback", False),
        exempt=d.get("exempt", False),
        unmatched=d.get("unmatched", False),
        reservation=d.get("reservation", ""),
        hold_end=instant(d.get("hold_end")),
        hold=d.get("hold_ms", 0) / 1000,
    )


def status(d: Json) -> Status:
    """Reads the answer to a status."""
    at = instant(d["at"])
    if at is None:
        raise ValueError("no instant")
    paused = d.get("paused") or {}
    return Status(
        policy=d["policy"],
        key=d["key"],
        tenant=d.get("tenant", ""),
        at=at,
        open=d["open"],
        paused_until=instant(paused.get("until")),
        pause_reason=paused.get("reason", ""),
        take=answer(d["take"]),
        limits=tuple(
            LimitStatus(**_limit(e), **_spec(e), used=e["used"], held=e["held"], debt=e["debt"]) for e in d["limits"]
        ),
    )


def policies(d: Json) -> tuple[Policy, ...]:
    """Reads the list of policies."""

    def spec(e: Json) -> LimitSpec:
        return LimitSpec(
            name=e["name"], unit=e["unit"], amount=e["amount"], most=e["most"], description=e["description"], **_spec(e)
        )

    return tuple(Policy(p["name"], tuple(map(spec, p["limits"])), p.get("shadow", False)) for p in d["policies"])


JSON_TYPE = "application/json"
PROBLEM_TYPE = "application/problem+json"

HINTS = {
    "unauthorized": "set DRAWGATE_TOKEN, or the argument token, to an access token of the server",
    "not_found": "this server does not have the path: is it of another version?",
    "unknown field": "is the server of another version?",
}


def problem(base: str, call: str, http_status: int, content_type: str, body: Json | None) -> Error | None:
    """Says what is wrong with an answer; None if nothing is. body is None if it is no JSON object."""
    media = content_type.partition(";")[0].strip()
    if media == JSON_TYPE and http_status == 200 and body is not None:
        return None
    if media == PROBLEM_TYPE and body is not None and isinstance(body.get("code"), str):
        code, detail = body["code"], body.get("detail", "")
        if code == "store_away":
            return StoreUnavailable(f"{base} could not decide, because its store is unavailable: {detail}", maybe=True)
        if code == "closing":
            return ServerUnavailable(f"{base} is stopping: try again, or ask another server", maybe=False)
        hints = "".join(f"; {hint}" for what, hint in HINTS.items() if what == code or what in str(detail))
        return Problem(f"{detail} ({code}){hints}", code=code, status=http_status)
    what = f"the answer of {base} to {call} has status {http_status}"
    text = f"{what} and is not from a Drawgate server: is the address (server=, or DRAWGATE_SERVER) right?"
    if http_status >= 500:  # a proxy that has no answer itself
        return ServerUnavailable(text, maybe=True)
    error = Problem(text, code="", status=http_status)
    error.maybe = http_status < 300  # a proxy may have spoilt the answer
    return error
