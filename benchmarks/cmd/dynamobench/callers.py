"""Callers of zae-limiter, in one process.

Arguments: the service's URL, the kind of limits, the number of callers. With 0 callers it only makes
the table and the limits. Otherwise they call as long as each line of the input says, in seconds, and
print what they saw."""

import asyncio
import collections
import json
import sys
import time

from zae_limiter import Limit, RateLimiter, Repository

URL, KIND, CALLERS = sys.argv[1], sys.argv[2], int(sys.argv[3])
WHERE = {"region": "us-east-1", "endpoint_url": URL}
NAME = "bench"
FAR = 100_000_000
LIMITS, COSTS = {
    "bucket": ([Limit.per_minute("rpm", FAR)], {"rpm": 1}),
    "three": (
        [Limit.per_minute("rpm", FAR), Limit.per_minute("tpm", 100 * FAR), Limit.per_day("rpd", FAR)],
        {"rpm": 1, "tpm": 100, "rpd": 1},
    ),
}[KIND]


async def open_limiter():
    where = Repository.builder().stack(NAME).region(WHERE["region"]).endpoint_url(URL)
    return RateLimiter(repository=await where.auto_update(False).build())


async def set_up():
    table = Repository(name=NAME, **WHERE)
    await table.create_table()
    await table.close()
    limiter = await open_limiter()
    await limiter.create_entity(entity_id="k", name="k")
    await limiter.set_limits("k", LIMITS)  # stored, so that a take needs one update


async def take(limiter):
    async with limiter.acquire(entity_id="k", resource="api", consume=COSTS):
        pass


async def call(limiter, until, errors, times):
    while time.perf_counter() < until:
        began = time.perf_counter()
        try:
            await take(limiter)
        except Exception as e:  # refusals too: there should be none
            errors[f"{type(e).__name__}: {e}"[:160]] += 1
        times.append(int((time.perf_counter() - began) * 1e6))


async def serve():
    limiter = await open_limiter()
    await take(limiter)  # makes the item
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        errors, times = collections.Counter(), []
        began = time.perf_counter()
        await asyncio.gather(*(call(limiter, began + float(line), errors, times) for _ in range(CALLERS)))
        failed = errors.total()
        seen = {"seconds": time.perf_counter() - began, "granted": len(times) - failed, "failed": failed}
        print(json.dumps(seen | {"errors": dict(errors.most_common(3)), "us": times}), flush=True)


asyncio.run(serve() if CALLERS else set_up())
