"""Keeps any number of processes inside one quota: a client for a Drawgate server.

    from drawgate import AsyncLimiter, Limiter, limited

    with Limiter() as limiter:
        with limiter.reserve("gemini", costs={"tokens": 2000}) as r:
            answer = call()
            r.used(tokens=answer.tokens)

The manual is docs/python.md.
"""

from ._async import AsyncLimiter
from ._breaker import Breaker
from ._errors import (
    CircuitOpen,
    Error,
    HoldLost,
    Problem,
    Refused,
    ServerUnavailable,
    StoreUnavailable,
    Unavailable,
)
from ._limited import LimitedAgent, limited
from ._reservation import AsyncReservation
from ._sync import Limiter, Reservation
from ._types import Answer, Attributes, Bucket, Limit, LimitSpec, LimitStatus, Policy, Status

__all__ = [
    "Answer",
    "AsyncLimiter",
    "AsyncReservation",
    "Attributes",
    "Breaker",
    "Bucket",
    "CircuitOpen",
    "Error",
    "HoldLost",
    "Limit",
    "LimitSpec",
    "LimitStatus",
    "LimitedAgent",
    "Limiter",
    "Policy",
    "Problem",
    "Refused",
    "Reservation",
    "ServerUnavailable",
    "Status",
    "StoreUnavailable",
    "Unavailable",
    "limited",
]

__version__ = "0.1.0"
