"""Compares takes by 64 coroutines on one limiter with bare httpx on the same path. Needs a server at DRAWGATE_SERVER.

python benchmark.py POLICY
"""

import asyncio
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import httpx

from drawgate import AsyncLimiter

COROUTINES, CALLS, ROUNDS = 64, 1_000, 5
SERVER = os.environ.get("DRAWGATE_SERVER", "http://127.0.0.1:7878")


async def rate(call: Callable[[], Awaitable[Any]]) -> float:
    """Returns calls per second."""
    calls = iter(range(CALLS))

    async def work() -> None:
        for _ in calls:
            await call()

    start = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(COROUTINES)))
    return CALLS / (time.perf_counter() - start)


async def main(policy: str) -> None:
    """Measures both in turn."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=256)
    async with AsyncLimiter(SERVER) as limiter, httpx.AsyncClient(limits=limits) as client:
        body = {"policy": policy, "key": "benchmark"}
        rates: dict[str, list[float]] = {"httpx": [], "drawgate": []}
        for _ in range(ROUNDS):
            rates["httpx"].append(await rate(lambda: client.post(SERVER + "/v1/take", json=body)))
            rates["drawgate"].append(await rate(lambda: limiter.take(policy, "benchmark")))
    for name, found in rates.items():
        print(f"{name}: {statistics.median(found):.0f} takes/s, of {', '.join(f'{r:.0f}' for r in found)}")
    part = statistics.median(a / b for a, b in zip(rates["drawgate"], rates["httpx"], strict=True))
    print(f"drawgate reaches {part:.0%} of httpx")


asyncio.run(main(sys.argv[1]))
