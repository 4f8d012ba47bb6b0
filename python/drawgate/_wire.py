"""The server's protocol: writes requests, and reads answers and problems. Nothing here does I/O."""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any
from urllib.parse import urlsplit

from ._errors import Error, Problem, ServerUnavailable, StoreUnavailable
from ._types import (
    Answer,
    Attributes,
    Bucket,
    Json,
    Key,
    Limit,
    LimitSpec,
    LimitStatus,
    Policy,
    Status,
    Target,
    check_costs,
    key_text,
)

DEFAULT_SERVER = "http://127.0.0.1:7878"


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


def bucket_body(bucket: Bucket) -> Json:
    """Returns the fields of a bucket that are set."""
    return _fields(vars(bucket))


def _fields(values: Mapping[str, Any]) -> Json:
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in values.items() if value}


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
        return bucket_body(Bucket(target, key, costs))
    if key_text(key):
        raise ValueError("a key belongs to one policy: put it into each Bucket; of Attributes the rules choose it")
    check_costs(costs)
    if isinstance(target, Attributes):
        return {"attributes": _fields(vars(target))} | ({"costs": dict(costs)} if costs else {})
    if costs:
        raise ValueError("put the costs into each Bucket")
    return {"buckets": [bucket_body(b) for b in target]}


# What servers wrote before 1.0, and still may, by what they write now.
_RETIRED = {"away": "unavailable", "store_away": "store_unavailable"}


def _word(text: str) -> str:
    return _RETIRED.get(text, text)


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
        "max": d["most"],
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
        reason=_word(d.get("reason") or ""),
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
            name=e["name"], unit=e["unit"], amount=e["amount"], max=e["most"], description=e["description"], **_spec(e)
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
        code, detail = _word(body["code"]), body.get("detail", "")
        if code == "store_unavailable":
            return StoreUnavailable(
                f"{base} could not decide, because its store is unavailable: {detail}", may_have_spent=True
            )
        if code == "closing":
            return ServerUnavailable(f"{base} is stopping: try again, or ask another server", may_have_spent=False)
        hints = "".join(f"; {hint}" for what, hint in HINTS.items() if what == code or what in str(detail))
        return Problem(f"{detail} ({code}){hints}", code=code, status=http_status)
    what = f"the answer of {base} to {call} has status {http_status}"
    text = f"{what} and is not from a Drawgate server: is the address (server=, or DRAWGATE_SERVER) right?"
    if http_status >= 500:  # a proxy that has no answer itself
        return ServerUnavailable(text, may_have_spent=True)
    error = Problem(text, code="", status=http_status)
    error.may_have_spent = http_status < 300  # a proxy may have spoilt the answer
    return error
