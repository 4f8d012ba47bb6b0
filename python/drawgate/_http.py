"""What HTTP servers answer: headers, refusals, and whose request it is. Nothing here does I/O."""

from __future__ import annotations

import ipaddress
import json
import logging
import math
import time
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeAlias

from ._errors import CircuitOpen, Error, HoldLost, Problem, Refused, Unavailable
from ._types import Answer, Json, Limit
from ._wire import PROBLEM_TYPE

log = logging.getLogger("drawgate")

QUOTA = "https://iana.org/assignments/http-problem-types#quota-exceeded"
REDUCED = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"

IPV6_BITS = 64  # a subscriber gets at least a /64, and can choose the rest
MAX_HOPS = 64  # entries of a header
WARN_EVERY = 60.0  # seconds at least between warnings of the same outage
UNIX = "unix"  # a peer that connects over a Unix socket

UNKNOWN = -1  # the position of a caller's own bucket, if nobody knows whether there is one
TIGHTEST = "drawgate.tightest"  # the limit that the headers of a request describe, in what belongs to that request

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True)
class Refusal:
    """Why a request is not served.

    Attributes:
        status: of HTTP.
        code: for programs: limited, queued, queue_full, paused, never_fits, store_unavailable, circuit_open or invalid.
        detail: a sentence for people.
        scope: whose limit it is: caller or api.
        after: seconds, as in Retry-After; 0 if waiting does not help.
        violated: the policies that refuse.
    """

    status: int
    code: str
    detail: str
    scope: str = ""
    after: int = 0
    violated: tuple[str, ...] = ()

    def body(self) -> Json:
        """Returns the problem (RFC 9457)."""
        of_quota = {"limited": QUOTA, "queued": QUOTA, "queue_full": QUOTA, "store_unavailable": REDUCED}
        kind = of_quota.get(self.code, "about:blank")
        titles = {QUOTA: "Quota Exceeded", REDUCED: "Temporary Reduced Capacity"}
        fields: Json = {
            "type": kind,
            "title": titles.get(kind) or HTTPStatus(self.status).phrase,
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
            "scope": self.scope,
            "violated-policies": list(self.violated),
            "retry_after": self.after,
        }
        return {name: value for name, value in fields.items() if value}

    def content(self) -> bytes:
        """Returns the problem as the body of an answer."""
        return json.dumps(self.body(), separators=(",", ":")).encode() + b"\n"

    def headers(self) -> dict[str, str]:
        """Returns the headers of an answer with this content."""
        headers = {"Content-Type": PROBLEM_TYPE, "Content-Length": str(len(self.content()))}
        return headers | {"X-Content-Type-Options": "nosniff"} | self.retry()

    def retry(self) -> dict[str, str]:
        """Returns the headers that every answer needs, whatever its content."""
        return {"Cache-Control": "no-store"} | ({"Retry-After": str(self.after)} if self.after else {})


def describe(answer: Answer, own: int | None, request: MutableMapping[str, Any] | None = None) -> dict[str, str]:
    """Returns the X-RateLimit headers. They describe the tightest limit of the bucket at position own.

    Of a refusal of which nobody knows that position they describe what refuses.

    If several takes belong to a request, and each gives what belongs to that, they describe the
    tightest limit of all of them.
    """
    request = {} if request is None else request
    headers = {"X-RateLimit-Fallback": "true"} if answer.fallback else {}
    described = [m for m in answer.limits if (m.refused if own == UNKNOWN else m.bucket == own)]
    limit = tightest([*request.get(TIGHTEST, ()), *described])
    if limit is None:
        return headers
    request[TIGHTEST] = (limit,)
    headers |= {"X-RateLimit-Limit": str(limit.amount), "X-RateLimit-Remaining": str(limit.remaining)}
    if limit.reset_at:
        headers["X-RateLimit-Reset"] = str(math.ceil(limit.reset_at.timestamp()))
    return headers


def tightest(limits: Iterable[Limit]) -> Limit | None:
    """Returns the limit that refuses longest, otherwise the one with the smallest part left."""
    return max(limits, key=lambda m: (m.retry_after or 0.0, -m.remaining / max(1, m.max)), default=None)


def missing(headers: Mapping[str, str], names: Iterable[str]) -> list[tuple[str, str]]:
    """Returns the headers that are not among these names: what an application sets describes a limit further inside."""
    there = {name.lower() for name in names}
    return [(name, value) for name, value in headers.items() if name.lower() not in there]


def refusal(answer: Answer, own: int | None) -> Refusal:
    """Describes a refusal for the caller.

    Args:
        answer: the refusal.
        own: the position of the caller's own bucket. None: all callers share every bucket.
    """
    if answer.retry_after is None:
        return _never_fits()
    after = max(1, math.ceil(answer.retry_after))
    again = f" Try again in {after} s."
    refusing = [m for m in answer.limits if m.refused]
    violated = tuple(dict.fromkeys(m.policy for m in refusing))
    scope = "caller" if own is not None and (not refusing or any(m.bucket == own for m in refusing)) else "api"
    scope = "" if own == UNKNOWN else scope
    texts = {
        "queued": "Other requests are ahead of this one in the queue.",
        "queue_full": "The maximum number of requests is already waiting.",
        "paused": "Requests like this one are paused at the moment.",
    }
    if answer.reason == "unavailable":
        return unavailable()
    if answer.reason == "paused":
        return Refusal(429, "paused", texts["paused"] + again, after=after)
    if answer.reason in texts:
        return Refusal(429, answer.reason, texts[answer.reason] + again, scope, after, violated)
    limited = {
        "caller": "Your limit has been reached.",
        "api": "The limit that all callers of this API share has been reached; it is not your own.",
        "": "A limit has been reached.",
    }
    return Refusal(429, "limited", limited[scope] + again, scope, after, violated)


def _never_fits() -> Refusal:
    text = "This request costs more than a limit ever allows: sending it again will not help."
    return Refusal(413, "never_fits", text)


def unavailable() -> Refusal:
    """Says that nothing was decided."""
    return Refusal(
        503, "store_unavailable", "The server cannot check its limits at the moment. Try again in 1 s.", after=1
    )


def failure(error: Error) -> Refusal:
    """Describes an error of the limiter."""
    if isinstance(error, Refused):
        return refusal(error.answer, UNKNOWN)
    if isinstance(error, Unavailable | HoldLost):
        return unavailable()
    if isinstance(error, CircuitOpen):
        after = max(1, math.ceil(error.retry_after))
        text = f"The service behind this one fails. Try again in {after} s."
        return Refusal(503, "circuit_open", text, after=after)
    if isinstance(error, Problem) and error.code == "never_fits":
        return _never_fits()
    return Refusal(500, "invalid", "The server's limits are not set up correctly.")


class Failures:
    """Logs why requests are not decided: an outage once a minute until it ends, and a mistake each time."""

    def __init__(self) -> None:
        self._warned = float("-inf")  # when

    def report(self, error: Error) -> None:
        """Logs an error of the limiter, unless it is no mistake, or the request's own: one that costs too much."""
        status = failure(error).status
        if isinstance(error, Unavailable):
            if (now := time.monotonic()) >= self._warned + WARN_EVERY:
                self._warned = now
                log.warning("requests are answered with %d, because nobody decides: %s", status, error)
        elif isinstance(error, Problem) and status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            log.error("requests are answered with %d, because limits cannot be checked: %s", status, error)

    def decided(self) -> None:
        """Ends an outage."""
        self._warned = float("-inf")


class Proxies:
    """Finds the address of a request's client.

    Args:
        trusted: networks of proxies that append to the header, or replace it, such as 10.0.0.0/8;
            "unix" trusts peers without an address.
        header: which one.
    """

    def __init__(self, trusted: Sequence[str], header: str) -> None:
        if isinstance(trusted, str):
            raise TypeError(f"trusted proxies are {trusted!r}: give a list, such as [{trusted!r}]")
        self._unix = UNIX in trusted
        self._networks = [_network(t) for t in trusted if t != UNIX]
        self._header = header.lower().encode()
        self._variable = "HTTP_" + header.upper().replace("-", "_")
        self._is_list = self._header == b"x-forwarded-for"

    def key_of(self, environ: Mapping[str, Any]) -> str:
        """Returns what the client of a WSGI request is counted by.

        The server has joined the lines of the header with commas.
        """
        lines = str(environ.get(self._variable, "")).split(",")
        headers = [(self._header, line.encode("latin-1", "replace")) for line in lines]
        return self.key(str(environ.get("REMOTE_ADDR", "")), headers)

    def key(self, peer: str, headers: Sequence[tuple[bytes, bytes]]) -> str:
        """Returns what a client is counted by: an IPv4 address, or an IPv6 network; "" if it has no address."""
        address = self._client(parse(peer), headers)
        if address is None or address.version == 4:
            return str(address or "")
        return str(ipaddress.ip_network((address, IPV6_BITS), strict=False))

    def _client(self, address: Address | None, headers: Sequence[tuple[bytes, bytes]]) -> Address | None:
        """Goes from the peer to the left of the header, until it finds an address that is not trusted."""
        if not self._trusts(address):
            return address
        lines = [value.decode("latin-1") for name, value in headers if name.lower() == self._header]
        entries = ",".join(lines).split(",") if self._is_list else lines[-1:]
        for entry in [e for e in map(str.strip, entries) if e][: -MAX_HOPS - 1 : -1]:
            found = parse(entry)
            if found is None:
                return address  # the proxy hides its client
            address = found
            if not self._trusts(address):
                break
        return address

    def _trusts(self, address: Address | None) -> bool:
        return self._unix if address is None else any(address in network for network in self._networks)


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a network of proxies: give addresses such as 10.0.0.0/8 ({error})") from None


def parse(text: str) -> Address | None:
    """Reads an address, with or without port, brackets and zone. An IPv4 address in IPv6 form is that IPv4 address."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return (address.version == 6 and address.ipv4_mapped) or address


class Exempt:
    """Knows the exempt paths: "/health" is that path, "/health/*" what is below, "/health*" what starts with it."""

    def __init__(self, patterns: Sequence[str]) -> None:
        if isinstance(patterns, str):
            raise TypeError(f"exempt is {patterns!r}: give a list, such as [{patterns!r}]")
        for p in patterns:
            if not p.startswith("/") or "*" in p[:-1]:
                raise ValueError(f"exempt: {p!r} is not a path such as /health, or the start of some such as /health/*")
        self._whole = frozenset(p for p in patterns if not p.endswith("*"))
        self._starts = tuple(p[:-1] for p in patterns if p.endswith("*"))

    def __contains__(self, path: str) -> bool:
        if path in self._whole:
            return True
        # The application may shorten a path with .. or //: such a path is never exempt.
        return path.startswith(self._starts) and not any(p in ("", ".", "..") for p in path.rstrip("/").split("/")[1:])
