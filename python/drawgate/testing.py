"""Servers for tests of programs that use this package.

FakeServer is in the same process, and needs neither a program nor a network. Server is a real one.

    server = FakeServer(gemini={"requests": 2, "tokens": 1000})
    with Limiter(transport=server.transport) as limiter:
        ...
    assert server.used("gemini") == {"requests": 1, "tokens": 321}

The limiter is the real one. Nothing comes back with time: a test that wants full buckets makes a new
server. A take that may wait does so while others hold something, and gets what they give back, in no
particular order.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from . import _program
from ._async import AsyncLimiter
from ._sync import Limiter
from ._types import UNIT_REQUESTS, Json
from ._wire import PROBLEM_TYPE

__all__ = ["FakeServer", "Server"]

RETRY_AFTER_MS = 60_000
LOOK_AGAIN = 0.005  # seconds after which a take that waits looks again


class Server:
    """A real server, on free ports of this machine, for as long as a block runs.

        with Server("policies: {api: {limits: [{name: rpm, rolling: 1m, amount: 10}]}}") as server:
            with server.limiter() as limiter:
                assert limiter.take("api", "me")

    It also ends with this process, however that ends. The program is that of the package drawgate-server, or
    else the one on the PATH. Variables named DRAWGATE_* do not reach it. It serves neither Envoy nor the gateway.

    Args:
        config: the path of a file, or, as a str, the text of one. Without it there is the policy "sample".
        store: where it keeps the counts; None leaves that to the configuration.

    Attributes:
        url: its address for programs.
        admin_url: its address for administrators.

    Raises:
        RuntimeError: on entering the block: the program is missing, or the server does not start.
    """

    url: str
    admin_url: str

    def __init__(self, config: Path | str | None = None, *, store: str | None = "memory:") -> None:
        self._config, self._store = config, store
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Server:
        arguments = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--grpc", "off", "--gateway", "off"]
        if self._store is not None:
            arguments += ["--store", self._store]
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="drawgate-")))
            file = self._config
            if isinstance(file, str):
                (folder / "drawgate.yaml").write_text(file, encoding="utf-8")
                file = folder / "drawgate.yaml"
            if file is not None:
                arguments += ["--config", str(file.absolute())]
            self.url, self.admin_url = stack.enter_context(_program.serving(arguments, folder))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def limiter(self, **options: Any) -> Limiter:
        """Returns a client, with the options of Limiter. Close it, or use it as a block."""
        return Limiter(self.url, **options)

    def async_limiter(self, **options: Any) -> AsyncLimiter:
        """Returns a client, with the options of AsyncLimiter. Close it, or use it as a block."""
        return AsyncLimiter(self.url, **options)


class FakeServer:
    """Answers takes, settlements and statuses. It is safe for concurrent use.

    Args:
        **policies: how much of each unit there is for each key, by the policy's name.

    Attributes:
        transport: give it to a limiter.
        takes: all takes, as they were sent.
        unavailable: while it is true, no request arrives.
    """

    def __init__(self, **policies: Mapping[str, int]) -> None:
        self._policies = policies
        self._lock = threading.Lock()
        self._open: dict[str, _Held] = {}  # by token
        self._used: dict[tuple[str, str], dict[str, int]] = {}
        self.transport = _Transport(self)
        self.takes: list[Json] = []
        self.unavailable = False

    def used(self, policy: str, key: str = "default") -> dict[str, int]:
        """Returns what counts in a bucket, by unit, with what is held."""
        with self._lock:
            return {unit: n for unit, n in self._used.get((policy, key), {}).items() if n}

    @property
    def open(self) -> int:
        """How many reservations are open."""
        with self._lock:
            return len(self._open)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if self.unavailable:
            raise httpx.ConnectError("the fake server is unavailable", request=request)
        paths = {
            "/v1/take": self._take,
            "/v1/settle": self._settle,
            "/v1/status": self._status,
            "/v1/policies": self._list,
            "/healthz": self._health,
        }
        body: Json = json.loads(request.content or b"{}")
        try:
            with self._lock:
                return httpx.Response(200, json=paths[request.url.path](body))
        except _ProblemAnswer as p:
            return httpx.Response(
                p.status,
                json={"status": p.status, "code": p.code, "detail": p.detail},
                headers={"Content-Type": PROBLEM_TYPE},
            )

    def _take(self, body: Json) -> Json:
        self.takes.append(body)
        for token, held in self._open.items():
            if body.get("id") == held.take.get("id"):
                if body.get("grant") != held.take.get("grant"):
                    raise _ProblemAnswer(409, "id_open", f"the id {body['id']!r} is open")
                return self._granted(held.take, token) | {"replayed": True}
        buckets = self._buckets(body)
        for policy, _, costs in buckets:
            for unit, n in costs.items():
                if n > (most := self._policies[policy][unit]):
                    detail = (
                        f'{n} {unit} can never fit limit "{unit}" of policy "{policy}", which grants at most {most}'
                    )
                    raise _ProblemAnswer(422, "never_fits", detail)
        refused = self._refused(buckets)
        if refused:
            i, unit = refused[0]
            policy = buckets[i][0]
            return {
                "allowed": False,
                "reason": "limited",
                "message": f'limit "{unit}" of policy "{policy}" is used up',
                "refused_by": {"policy": policy, "limit": unit},
                "retry_after_ms": RETRY_AFTER_MS,
                "reset_at": _instant(RETRY_AFTER_MS),
                "remaining": 0,
                "limits": self._limits(buckets, refused),
            }
        for policy, key, costs in buckets:
            used = self._used.setdefault((policy, key), {})
            for unit, n in costs.items():
                used[unit] = used.get(unit, 0) + n
        token = ""
        if "hold_ms" in body:
            token = f"reservation-{len(self.takes)}"
            self._open[token] = _Held(body, buckets)
        return self._granted(body, token)

    def _refused(self, buckets: list[tuple[str, str, dict[str, int]]]) -> list[tuple[int, str]]:
        """Returns the limits that refuse, by position of the bucket and by unit."""
        return [
            (i, unit)
            for i, (policy, key, costs) in enumerate(buckets)
            for unit, n in costs.items()
            if n > self._left(policy, key, unit)
        ]

    def _waits(self, body: Json) -> bool:
        """Says whether a take would be refused now, and something may come back."""
        with self._lock:
            if not self._open or body.get("id") in [held.take.get("id") for held in self._open.values()]:
                return False
            try:
                return bool(self._refused(self._buckets(body)))
            except _ProblemAnswer:
                return False

    def _granted(self, body: Json, token: str) -> Json:
        answer = {"allowed": True, "retry_after_ms": 0, "limits": self._limits(self._buckets(body))}
        if token:
            answer |= {"reservation": token, "grant": body.get("grant", "")}
            answer |= {"hold_end": _instant(body["hold_ms"]), "hold_ms": body["hold_ms"]}
        return answer

    def _settle(self, body: Json) -> Json:
        token = body.get("reservation", "")
        if "take" in body:
            self._buckets(body["take"])  # says what is wrong with it
            same = [t for t, held in self._open.items() if held.take.get("grant") == body["take"]["grant"]]
            token = same[0] if same else ""
        held = self._open.get(token)
        if held is None:
            return {"outcome": "gone"}
        if "renew_ms" in body:
            return {"outcome": "renewed", "reservation": token, "hold_end": _instant(body["renew_ms"])}
        actual = body.get("used", {})
        if unknown := actual.keys() - {unit for policy, _, _ in held.buckets for unit in self._units(policy, actual)}:
            raise _ProblemAnswer(422, "unknown_unit", f"no limit of these policies counts {sorted(unknown)}")
        del self._open[token]
        for policy, key, costs in held.buckets:
            for unit in self._units(policy, {**costs, **actual}):
                n = costs.get(unit, 0)
                self._used[policy, key][unit] = (
                    self._used[policy, key].get(unit, 0) - n + (0 if "cancel" in body else actual.get(unit, n))
                )
        return {"outcome": "cancelled" if "cancel" in body else "settled"}

    def _status(self, body: Json) -> Json:
        buckets = self._buckets(body)
        policy, key, _ = buckets[0]
        kind = {"kind": "rolling", "window_ms": RETRY_AFTER_MS, "held": 0, "debt": 0}
        limits = [m | kind | {"used": m["most"] - m["remaining"]} for m in self._limits(buckets)]
        opened = sum((policy, key) == b[:2] for held in self._open.values() for b in held.buckets)
        return {
            "policy": policy,
            "key": key,
            "at": _instant(0),
            "open": opened,
            "take": {"allowed": True},
            "limits": limits,
        }

    def _list(self, _: Json) -> Json:
        def spec(unit: str, n: int) -> Json:
            return {
                "name": unit,
                "unit": unit,
                "kind": "rolling",
                "amount": n,
                "most": n,
                "window_ms": RETRY_AFTER_MS,
                "description": f"{n} {unit}",
            }

        return {
            "policies": [
                {"name": p, "limits": [spec(u, n) for u, n in units.items()]} for p, units in self._policies.items()
            ]
        }

    def _health(self, _: Json) -> Json:
        return {"status": "ok"}

    def _buckets(self, body: Json) -> list[tuple[str, str, dict[str, int]]]:
        if "attributes" in body:
            raise _ProblemAnswer(501, "not_supported", "the fake server has no rules")
        return [self._bucket(b) for b in body.get("buckets", [body])]

    def _bucket(self, body: Json) -> tuple[str, str, dict[str, int]]:
        policy = body.get("policy") or (next(iter(self._policies)) if len(self._policies) == 1 else "")
        if policy not in self._policies:
            raise _ProblemAnswer(
                422, "unknown_policy", f"unknown policy {policy!r} (have: {', '.join(self._policies)})"
            )
        for unit, n in body.get("costs", {}).items():
            if not isinstance(n, int):
                raise _ProblemAnswer(400, "bad_json", f"costs.{unit} must be an integer")
            if n < 0:
                raise _ProblemAnswer(422, "invalid", f"costs.{unit} is {n}, which is negative")
        costs = {UNIT_REQUESTS: 1} | body.get("costs", {})
        if unknown := body.get("costs", {}).keys() - self._policies[policy].keys():
            raise _ProblemAnswer(422, "unknown_unit", f"policy {policy!r} does not count {sorted(unknown)}")
        return policy, body.get("key", "default"), {unit: costs[unit] for unit in self._units(policy, costs)}

    def _units(self, policy: str, costs: Mapping[str, int]) -> list[str]:
        return [unit for unit in self._policies[policy] if unit in costs]

    def _left(self, policy: str, key: str, unit: str) -> int:
        return self._policies[policy][unit] - self._used.get((policy, key), {}).get(unit, 0)

    def _limits(
        self, buckets: list[tuple[str, str, dict[str, int]]], refused: Sequence[tuple[int, str]] = ()
    ) -> list[Json]:
        return [
            {
                "bucket": i,
                "policy": policy,
                "name": unit,
                "unit": unit,
                "amount": n,
                "most": n,
                "remaining": self._left(policy, key, unit),
                "retry_after_ms": RETRY_AFTER_MS if (i, unit) in refused else 0,
                "reset_at": _instant(RETRY_AFTER_MS),
                "refused": (i, unit) in refused,
            }
            for i, (policy, key, _) in enumerate(buckets)
            for unit, n in self._policies[policy].items()
        ]


class _Transport(httpx.MockTransport):
    def __init__(self, server: FakeServer) -> None:
        super().__init__(server._answer)
        self._server = server

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body: Json = json.loads(await request.aread() or b"{}")
        end = time.monotonic() + body.get("wait_ms", 0) / 1000
        waits = self._server._waits if request.url.path == "/v1/take" else lambda _: False
        while time.monotonic() < end and waits(body):  # noqa: ASYNC110 - an event belongs to one loop
            await asyncio.sleep(LOOK_AGAIN)
        return self.handle_request(request)


@dataclass
class _Held:
    take: Json
    buckets: list[tuple[str, str, dict[str, int]]] = field(default_factory=list)


class _ProblemAnswer(Exception):
    def __init__(self, status: int, code: str, detail: str) -> None:
        self.status, self.code, self.detail = status, code, detail


def _instant(ms: int) -> str:
    return (datetime.now(timezone.utc) + timedelta(milliseconds=ms)).isoformat().replace("+00:00", "Z")
