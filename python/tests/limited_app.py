"""The tasks of the tests. Each writes down what it does, with the machine's clock."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from celery import Celery

from drawgate import Limiter
from drawgate.celery import LimitedTask

folder = Path(os.environ["LIMITED_FOLDER"])
broker = os.environ["LIMITED_BROKER"]
app = Celery("limited_app", broker=broker, backend=os.environ.get("LIMITED_BACKEND"))
redis_options = {
    "queue_order_strategy": "priority",
    "visibility_timeout": int(os.environ.get("LIMITED_VISIBILITY", "3600")),
}
app.conf.update(
    task_default_queue=os.environ["LIMITED_QUEUE"],
    worker_prefetch_multiplier=1,
    task_queue_max_priority=10 if broker.startswith("amqp:") else None,
    broker_transport_options=redis_options if broker.startswith("redis:") else {},
    broker_connection_retry_on_startup=True,
)
limiter = Limiter(timeout=float(os.environ.get("LIMITED_TIMEOUT", "60")))
if "LIMITED_FORK" in os.environ:  # the worker's processes are forked from one that has connections
    assert limiter.take("llm", "before the fork")


def note(event: str, task: Any, **more: Any) -> None:
    """Appends a line, in one write."""
    line = json.dumps({"event": event, "id": task.request.id, "at": time.monotonic(), "pid": os.getpid(), **more})
    fd = os.open(folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, line.encode() + b"\n")
    os.close(fd)


class Task(LimitedTask):
    """Writes down how it ends."""

    acks_late = True
    reject_on_worker_lost = True
    limiter = limiter
    hold = float(os.environ.get("LIMITED_HOLD", "300"))  # longer than a busy machine may pause
    requeue_delay = 1.0

    def on_retry(self, exc: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        note("retry", self, why=type(exc).__name__, text=str(exc))

    def on_failure(self, exc: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        note("failure", self, why=type(exc).__name__, text=str(exc))


@app.task(base=Task, bind=True, policy="fast", max_wait=3600)
def mark(self: Any) -> None:
    note("run", self)
    time.sleep(float(os.environ.get("LIMITED_PAUSE", "0")))


@app.task(base=Task, bind=True, policy="few", key=lambda key: key, max_wait=0)
def few(self: Any, key: str) -> str:
    note("run", self)
    return key


@app.task(base=Task, bind=True, policy="few", key=lambda key: key, max_wait=0, max_requeues=1000)
def patient(self: Any, key: str) -> str:
    note("run", self)
    return key


@app.task(base=Task, bind=True, policy="llm", key=lambda key: key, max_wait=0, max_requeues=0)
def once(self: Any, key: str) -> None:
    note("run", self)


@app.task(base=Task, bind=True, policy="llm", key=lambda key, fail: key, costs={"tokens": 10}, retries=3)
def flaky(self: Any, key: str, fail: int) -> None:
    note("run", self)
    self.reservation.used(tokens=3)
    if self.request.retries < fail:
        raise ValueError("it fails")


@app.task(base=Task, bind=True, policy="llm", key=lambda key: key, cancel_on=ConnectionError, retries=3)
def unreachable(self: Any, key: str) -> None:
    raise ConnectionError("nothing was sent")


@app.task(base=Task, bind=True, policy="llm", key=lambda key: key)
def failing(self: Any, key: str) -> None:
    note("run", self)
    raise ValueError("it fails")


@app.task(base=Task, bind=True, policy="slots", key=lambda key: key, max_wait=3600, hold=10)
def gated(self: Any, key: str) -> None:
    """Runs until the test opens the gate."""
    note("begin", self)
    while not (folder / "gate").exists():
        time.sleep(0.02)
    note("end", self)


@app.task(base=Task, bind=True, policy="llm", key=lambda key: key, max_wait=3600)
def ranked(self: Any, key: str) -> None:
    r = self.reservation
    note("run", self, priority=r._body.get("priority", 0), max_wait=r._max_wait)


@app.task(base=Task, policy="llm", key=lambda numbers: "chord")
def total(numbers: list[str]) -> int:
    return len(numbers)


@app.task(base=Task, policy=lambda: "nowhere")
def wrong() -> None:
    pass
