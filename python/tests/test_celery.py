"""Tasks of real Celery workers, with real brokers and a real server."""

from __future__ import annotations

import concurrent.futures
import itertools
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from brokers import HANG, Workers, rabbitmq_broker, redis_broker, until
from celery import Celery, chord
from celery.app.trace import trace_task
from conftest import CONFIG, Server

import drawgate.celery
from drawgate import Limiter, Refused
from drawgate.celery import BrokerUnavailable, GivenUp, LimitedTask, QueueFull, QueueGuard
from drawgate.celery import _begin as signals_begin
from drawgate.testing import FakeServer

LONG = bool(os.environ.get("DRAWGATE_LONG"))
TASKS = 500 if LONG else 120
RATE = 50  # in a second


def nothing(*_: Any) -> None:
    """The body of a task that is only sent."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    # What is held does not age, so that a body counts from before it begins until a second after it has ended.
    fast = "  fast:\n    limits:\n      - {name: rate, rolling: 1s, amount: 50, charge: end, precision: exact}\n"
    s = Server(tmp_path_factory.mktemp("server"), CONFIG.replace("rules:", fast + "rules:"))
    yield s
    s.kill()


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_broker(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture(scope="module")
def rabbitmq_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with rabbitmq_broker(tmp_path_factory.mktemp("rabbitmq")) as url:
        yield url


@pytest.fixture(params=["redis", "rabbitmq"])
def broker(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def workers(
    tmp_path: Path, broker: str, server: Server, redis_url: str, request: pytest.FixtureRequest
) -> Iterator[Workers]:
    backend = redis_url.removesuffix("0") + "1"
    with Workers(tmp_path, broker, server.url, request.node.name, LIMITED_BACKEND=backend) as w:
        yield w
        w.app.close()


def waiting(server: Server) -> int:
    return int(httpx.get(server.admin + "/readyz", timeout=60).json()["waiting"])


# req: B5 B7
def test_never_over(workers: Workers) -> None:
    """Workers run every task once, and never more of them in a second than the limit admits."""
    for _ in range(4):
        workers.start("-c", "4", LIMITED_FORK="1")
    sent = [workers.send("mark") for _ in range(TASKS)]
    until(lambda: len(workers.log("run")) >= TASKS, "all tasks have run")
    until(lambda: QueueGuard(workers.app, policy="few").depth(workers.queue) == 0, "the queue is empty")
    assert Counter(run["id"] for run in workers.log("run")) == Counter(sent)
    assert not workers.log("retry", "failure")
    check_rate(workers)


def check_rate(workers: Workers) -> None:
    runs = workers.log("run")
    times = sorted(run["at"] for run in runs)
    window = 0.999  # the store's clock may be adjusted meanwhile
    most = max(sum(start <= t < start + window for t in times) for start in times)
    processes = len({run["pid"] for run in runs})
    took = times[-1] - times[0]
    print(f"{len(runs)} runs of {TASKS} tasks in {took:.1f} s, in {processes} processes: at most {most} in a second")
    assert most <= RATE


def ran(workers: Workers, n: int) -> Callable[[], bool]:
    return lambda: len(workers.log("run")) >= n


if LONG:
    # req: B5
    def test_many_are_killed(workers: Workers, broker: str) -> None:
        """Three of four workers are killed, one after the other, with all of their processes, while they run tasks."""
        settings = {"LIMITED_VISIBILITY": "10", "LIMITED_PAUSE": "0.05", "LIMITED_HOLD": "5"}
        running = [workers.start("-c", "4", **settings) for _ in range(4)]
        sent = [workers.send("mark") for _ in range(TASKS)]
        for kills, worker in enumerate(running[:3], 1):
            until(ran(workers, kills * TASKS // 5), "tasks run")
            os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()
            workers.start("-c", "4", **settings)
        until(lambda: {run["id"] for run in workers.log("run")} == set(sent), "every task has run")
        again = len(workers.log("run")) - TASKS
        print(f"{kills} workers of 4 processes were killed, and {again} tasks had to run again")
        assert again <= kills * 4
        check_rate(workers)


# req: B5 B7
def test_counts_of_attempts(workers: Workers, server: Server) -> None:
    """Queueing again for lack of units, and retries of failures, have counts of their own."""
    key = workers.queue
    workers.start("-c", "4")
    few = {workers.send("few", key) for _ in range(8)}
    twice = workers.send("flaky", key + "-twice", 2)
    always = workers.send("flaky", key + "-always", 99)
    unreachable = workers.send("unreachable", key + "-unreachable")
    failing = workers.send("failing", key + "-failing")
    wrong = workers.send("wrong")
    until(lambda: len(workers.log("failure")) == 5 + 4, "nine tasks fail")
    until(lambda: len(workers.log("run")) == 3 + 3 + 4 + 1, "eleven runs")

    runs, retries, failures = (Counter(e["id"] for e in workers.log(name)) for name in ("run", "retry", "failure"))
    why = {e["id"]: e["why"] for e in workers.log("failure")}
    admitted = {i for i in few if runs[i]}
    assert len(admitted) == 3  # as many as the limit has
    for i in few - admitted:  # at once, and three times again
        assert (retries[i], failures[i], why[i]) == (3, 1, "GivenUp")
    assert (runs[twice], retries[twice], failures[twice]) == (3, 2, 0)
    assert (runs[always], retries[always], failures[always], why[always]) == (4, 3, 1, "ValueError")
    assert (retries[unreachable], why[unreachable]) == (3, "ConnectionError")
    # A limit changes no retry of its task.
    assert (runs[failing], retries[failing], why[failing]) == (1, 0, "ValueError")
    assert (retries[wrong], why[wrong]) == (0, "Problem")
    # What the body said counts; if nothing was used, nothing counts.
    until(lambda: server.status("llm", key + "-always")["open"] == 0, "the last run is settled")
    assert server.used("llm", key + "-twice") == {"rpm": 3, "tpm": 9}
    assert server.used("llm", key + "-always") == {"rpm": 4, "tpm": 12}
    until(lambda: server.used("llm", key + "-unreachable") == {"rpm": 0, "tpm": 0}, "it was cancelled")
    assert server.used("few", key) == {"hourly": 3}
    # After 1, 2 and 4 seconds.
    times = [e["at"] for e in workers.log("run") if e["id"] == always]
    assert [later - earlier >= pause for earlier, later, pause in zip(times, times[1:], (1, 2, 4), strict=False)] == [
        True
    ] * 3


# req: B5
def test_killed(workers: Workers, server: Server, broker: str) -> None:
    """A worker that is killed loses no task, and holds its slot no longer than the hold."""
    key = workers.queue
    worker = workers.start("-c", "2")
    sent = [workers.send("gated", key) for _ in range(2)]
    until(lambda: workers.log("begin") and waiting(server) == 1, "one task runs, and the other one waits")
    killed = workers.log("begin")[0]
    if broker.startswith("amqp:"):
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
        workers.start("-c", "2")
    else:  # Redis delivers the tasks of a whole worker again after its visibility_timeout
        os.kill(killed["pid"], signal.SIGKILL)
    other = until(lambda: [e for e in workers.log("begin") if e["at"] > killed["at"]], "a task has the slot")[0]
    assert server.status("slots", key)["open"] == 1
    (workers.folder / "gate").touch()
    until(lambda: len(workers.log("end")) == 2, "both tasks end")
    assert {e["id"] for e in workers.log("end")} == set(sent)
    assert Counter(e["id"] for e in workers.log("begin")) == Counter([*sent, killed["id"]])
    assert other["pid"] != killed["pid"]
    events = [e["event"] for e in workers.log("begin", "end")]
    assert events == ["begin", "begin", "end", "begin", "end"]  # one at a time
    until(lambda: server.status("slots", key)["open"] == 0, "the slot is free")


# req: B5
@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_warm_shutdown(workers: Workers, server: Server, pool: str) -> None:
    """Tasks that wait go back to the broker at once, although they may wait for an hour."""
    key = workers.queue
    with Limiter(server.url, timeout=60) as limiter:
        with limiter.reserve("slots", key):
            worker = workers.start("-c", "2", "-P", pool)
            sent = [workers.send("gated", key) for _ in range(3)]
            until(lambda: waiting(server) == 2, "two tasks wait")
            worker.terminate()
            worker.wait(HANG)
            until(lambda: waiting(server) == 0, "no task waits")
        guard = QueueGuard(workers.app, limiter, policy="few")
        until(lambda: guard.depth(workers.queue) == 3, "the tasks are in the queue")
    assert server.status("slots", key)["open"] == 0
    (workers.folder / "gate").touch()
    workers.start("-c", "2", "-P", pool)
    until(lambda: len(workers.log("end")) == 3, "the tasks end")
    assert Counter(e["id"] for e in workers.log("begin")) == Counter(sent)


# req: B5
def test_delivered_twice(workers: Workers, server: Server) -> None:
    """Two deliveries of a task do not run at the same time, and each run has its own unit."""
    key = workers.queue
    workers.start("-c", "2")
    task = workers.send("gated", key)
    until(lambda: workers.log("begin"), "it runs")
    workers.send("gated", key, task_id=task)
    until(lambda: f"[{task}] ignored" in workers.output, "the second delivery goes back")
    assert server.status("slots", key)["open"] == 1
    (workers.folder / "gate").touch()
    until(lambda: len(workers.log("end")) == 2, "both end")
    assert [(e["event"], e["id"]) for e in workers.log("begin", "end")] == [("begin", task), ("end", task)] * 2
    assert not workers.log("retry", "failure")


@pytest.mark.parametrize("broker", ["redis"], indirect=True)
def test_revoked_while_it_waits(workers: Workers, server: Server) -> None:
    key = workers.queue
    with Limiter(server.url, timeout=60) as limiter, limiter.reserve("slots", key):
        workers.start("-c", "1")
        task = workers.send("gated", key)
        until(lambda: waiting(server) == 1, "it waits")
        workers.app.control.revoke(task, terminate=True, signal="SIGKILL")
        until(lambda: waiting(server) == 0, "it waits no more")
        until(lambda: workers.app.AsyncResult(task).state == "REVOKED", "it is revoked")
    (workers.folder / "gate").touch()
    next_one = workers.send("gated", key)
    until(lambda: workers.log("end"), "the next task ends")
    assert {e["id"] for e in workers.log("begin")} == {next_one}
    until(lambda: server.status("slots", key)["open"] == 0, "the slot is free")


@pytest.mark.parametrize("broker", ["redis"], indirect=True)
def test_chord(workers: Workers, server: Server) -> None:
    """A task that is queued again is still part of its chord."""
    key = workers.queue
    workers.start("-c", "2")
    with Limiter(server.url, timeout=60) as limiter, limiter.reserve("few", key) as held:
        parts = [workers.app.signature("limited_app.patient", (key,), queue=workers.queue) for _ in range(3)]
        result = chord(parts, app=workers.app)(workers.app.signature("limited_app.total", queue=workers.queue))
        until(lambda: workers.log("retry"), "a part is queued again")
        held.cancel()
    assert result.get(timeout=HANG) == 3
    assert len(workers.log("run")) == 3


def test_without_the_server(tmp_path: Path, own_server: Server, redis_url: str) -> None:
    """An outage uses up no attempts."""
    with Workers(tmp_path, redis_url, own_server.url, "outage", LIMITED_TIMEOUT="0.5") as workers:
        own_server.kill()
        workers.start("-c", "1")
        task = workers.send("once", "outage")
        until(lambda: workers.log("retry"), "it is queued again")
        own_server.start()
        until(lambda: workers.log("run"), "it runs")
        assert {e["why"] for e in workers.log("retry")} == {"ServerUnavailable"}
        assert [e["id"] for e in workers.log("run")] == [task]
        assert not workers.log("failure")
        workers.app.close()


# req: B6
def test_priorities(workers: Workers, broker: str) -> None:
    """9 is the highest on RabbitMQ, and 0 on Redis."""
    workers.start("-c", "1")
    amqp = broker.startswith("amqp:")
    want = {workers.send("ranked", "ranked", priority=p): p if amqp else 9 - p for p in (0, 3, 9)}
    want[workers.send("ranked", "ranked")] = 0 if amqp else 9
    until(lambda: len(workers.log("run")) == 4, "they run")
    assert {e["id"]: e["priority"] for e in workers.log("run")} == want


@pytest.mark.parametrize("broker", ["redis"], indirect=True)
@pytest.mark.parametrize("options", [["--time-limit=600"], ["--soft-time-limit=600", "--time-limit=6000"]])
def test_time_limits_of_the_command_line(workers: Workers, options: list[str]) -> None:
    """A task waits for at most half of them, as for those of the configuration."""
    workers.start("-c", "1", *options)
    workers.send("ranked", workers.queue)
    until(lambda: workers.log("run"), "it runs")
    assert [e["max_wait"] for e in workers.log("run")] == [300.0]


# Queues.


# req: B6 B8
def test_guard(workers: Workers, server: Server) -> None:
    task = workers.app.task(nothing, name="nothing", shared=False)
    queue = workers.queue
    with Limiter(server.url, timeout=60) as limiter:
        guard = QueueGuard(workers.app, limiter, policy="llm")
        assert guard.depth(queue) == 0  # there is none
        assert guard.can_submit(queue)
        for n in range(50):
            workers.app.send_task("nothing", queue=queue, priority=n % 10)
        until(lambda: guard.depth(queue) == 50, "the broker has them")
        assert guard.can_submit(queue)
        guard.submit(task, queue=queue, priority=9)
        until(lambda: guard.depth(queue) == 51, "the broker has it")
        used = server.used("llm", queue)["rpm"]
        assert used == 3
        assert not guard.can_submit(queue)
        with pytest.raises(QueueFull, match=r"has 51 waiting messages, and at most 50 may wait") as full:
            guard.submit(task, queue=queue)
        assert (full.value.queue, full.value.depth, full.value.max_depth) == (queue, 51, 50)
        assert server.used("llm", queue)["rpm"] == used  # a refusal takes nothing

        small = QueueGuard(workers.app, limiter, policy="few", max_depth=1000)
        for named in (task, "nothing", "of another program"):
            small.submit(named, queue=queue)
        with pytest.raises(Refused):
            small.submit("of another program", queue=queue)
        assert not small.can_submit(queue)
        until(lambda: guard.depth(queue) == 54, "the broker has three more")


# req: B6
@pytest.mark.parametrize("broker", ["redis"], indirect=True)
def test_status_of_the_queues(workers: Workers, server: Server) -> None:
    with Limiter(server.url, timeout=60) as limiter:
        guard = QueueGuard(workers.app, limiter, policy="few")
        workers.start("-c", "1")
        task = workers.send("gated", workers.queue)
        until(lambda: workers.log("begin"), "it runs")
        longer = (0.3 * 2**n for n in itertools.count())  # until a busy machine's worker is in time
        status = until(lambda: all((s := guard.status(timeout=next(longer))).values()) and s, "the worker answers")
    assert list(status) == ["active_queues", "scheduled", "active", "reserved"]
    assert [q["name"] for q in status["active_queues"]["w1@localhost"]] == [workers.queue]
    assert [t["id"] for t in status["active"]["w1@localhost"]] == [task]


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "amqp://me:secret@127.0.0.1:1//", "nothing://127.0.0.1"])
def test_no_broker(url: str) -> None:
    server = FakeServer(task={"requests": 10})
    app = Celery(broker=url)
    app.conf.broker_transport_options = {"socket_connect_timeout": 1}
    with Limiter(transport=server.transport) as limiter:
        guard = QueueGuard(app, limiter, policy="task")
        for call in (
            lambda: guard.depth("celery"),
            lambda: guard.can_submit("celery"),
            lambda: guard.submit(app.task(nothing, name="nothing", shared=False)),
        ):
            with pytest.raises(BrokerUnavailable, match="is it running, and is broker_url right") as error:
                call()
            assert "secret" not in str(error.value)
    assert server.used("task", "celery") == {}


def test_a_mistake_of_the_caller_is_no_broker_that_is_down() -> None:
    """A KeyError of the caller's own options stays one, and the unit is given back."""
    server = FakeServer(task={"requests": 10})
    app = Celery(broker="memory://")
    with Limiter(transport=server.transport) as limiter:
        guard = QueueGuard(app, limiter, policy="task")
        with pytest.raises(KeyError, match="nope"):
            guard.submit(app.task(nothing, name="nothing", shared=False), compression="nope")
    assert server.used("task", "celery").get("requests", 0) == 0


def test_a_task_that_was_not_sent_gives_its_unit_back() -> None:
    server = FakeServer(task={"requests": 10})
    app = Celery(broker="memory://")
    with Limiter(transport=server.transport) as limiter:
        task = app.task(nothing, name="nothing", shared=False, serializer="json")
        with pytest.raises(Exception, match="serializ"):
            QueueGuard(app, limiter, policy="task").submit(task, [object()])
    assert server.used("task", "celery") == {}
    assert server.open == 0


@pytest.mark.parametrize(("attribute", "why"), [("policy", 'unknown policy "feww".*"few"'), ("costs", "token")])
def test_a_worker_with_a_wrong_name_does_not_start(server: Server, attribute: str, why: str) -> None:
    """Its tasks would be lost. What a function chooses is not checked."""
    app = Celery(broker="memory://")
    with Limiter(server.url, timeout=60) as limiter:
        base = type("Task", (LimitedTask,), {"limiter": limiter, "policy": "few"})
        app.task(nothing, name="right", base=base, shared=False)
        app.task(nothing, name="chosen", base=base, shared=False, policy=lambda: "nowhere", costs=lambda: {"x": 1})
        worker = SimpleNamespace(app=app, pool_cls="prefork", time_limit=None, soft_time_limit=None)
        signals_begin(worker)
        app.task(
            nothing,
            name="wrong",
            base=base,
            shared=False,
            **{attribute: {"policy": "feww", "costs": {"token": 1}}[attribute]},
        )
        with pytest.raises(SystemExit, match=f"task wrong cannot run: .*{why}"):
            signals_begin(worker)


def test_a_worker_starts_without_the_server(own_server: Server, caplog: pytest.LogCaptureFixture) -> None:
    own_server.kill()
    app = Celery(broker="memory://")
    with Limiter(own_server.url, timeout=0.2) as limiter:
        base = type("Task", (LimitedTask,), {"limiter": limiter, "policy": "few"})
        for name in ("one", "two"):
            app.task(nothing, name=name, base=base, shared=False)
        signals_begin(SimpleNamespace(app=app, pool_cls="prefork", time_limit=None, soft_time_limit=None))
    assert sum("the policies of tasks were not checked" in m for m in caplog.messages) == 1


# Without a worker.


@pytest.fixture
def fake() -> FakeServer:
    return FakeServer(llm={"requests": 2, "tokens": 100})


@pytest.fixture
def app(fake: FakeServer) -> Iterator[Any]:
    with Limiter(transport=fake.transport) as limiter:
        app = Celery(broker="memory://")
        app.Task = type("Task", (LimitedTask,), {"limiter": limiter, "policy": "llm"})
        yield app


@pytest.mark.parametrize("call", [lambda task, *a: task(*a), lambda task, *a: task.apply(a, throw=True).get()])
def test_called_without_a_queue(fake: FakeServer, app: Any, call: Callable[..., Any]) -> None:
    """A call, and an eager task, take their units as well, and nobody can queue them again."""

    @app.task(
        name="ask",
        shared=False,
        key=lambda text: text,
        costs=lambda text: {"tokens": 50},
        used=lambda answer: {"tokens": len(answer)},
    )
    def ask(text: str) -> str:
        return text * 2

    assert call(ask, "why") == "whywhy"
    assert fake.used("llm", "why") == {"requests": 1, "tokens": 6}
    assert call(ask, "why") == "whywhy"
    with pytest.raises(Refused):
        call(ask, "why")
    app.conf.task_always_eager = True
    failed = ask.delay("why")
    assert (failed.state, type(failed.result)) == ("FAILURE", Refused)
    assert ask.run("why") == "whywhy"  # the bare body


def run(task: Any) -> Any:
    """Runs a task as a worker does. Returns how it ended: nothing if it succeeded."""
    delivery = {"exchange": "", "routing_key": "celery"}
    request = {"id": "1-2", "is_eager": False, "delivery_info": delivery, "headers": {}}
    return trace_task(task, "1-2", (), {}, request=request, app=task.app)[1]


def test_a_task_that_is_queued_again_was_never_delayed(fake: FakeServer, app: Any) -> None:
    """RabbitMQ drops a message whose headers say that it has been in a queue for delays before."""
    task = app.task(nothing, name="ask", shared=False, max_wait=0, costs={"requests": 2})
    assert app.Task.limiter.take("llm")
    delivery = {"exchange": "", "routing_key": "celery"}
    headers = {"x-death": [], "x-first-death-queue": "delay", "x-last-death-reason": "expired", "mine": "kept"}
    request = {"id": "1-2", "is_eager": False, "delivery_info": delivery, "headers": headers}
    trace_task(task, "1-2", (), {}, request=request, app=app)
    with app.connection_for_read() as connection:
        message = connection.SimpleQueue("celery").get(timeout=HANG)
    assert message.headers["mine"] == "kept"
    assert message.headers["drawgate-requeues"] == 1
    assert not [name for name in message.headers if name.startswith("x-")]


@pytest.mark.parametrize("acks_late", [True, False])
@pytest.mark.parametrize("why", ["no units", "no server", "worker stops"])
def test_a_task_that_cannot_be_queued_again_is_not_lost(
    fake: FakeServer,
    app: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    acks_late: bool,
    why: str,
) -> None:
    """The broker delivers it again if it still has it. Otherwise it fails, and says so."""
    failures, policies = [], []

    @app.task(
        name="ask",
        shared=False,
        acks_late=acks_late,
        max_wait=0,
        costs={"requests": 2},
        on_failure=lambda self, error, *_: failures.append(error),
    )
    def ask() -> None: ...

    def unreachable(*_: Any, **options: Any) -> None:
        policies.append(options["retry"])
        raise OSError("the broker is down")

    monkeypatch.setattr(LimitedTask, "apply_async", unreachable)
    if why == "no units":
        ask()
    elif why == "no server":
        fake.unavailable = True
        monkeypatch.setattr(ask.limiter._inner._decider, "timeout", 0.05)
    else:
        monkeypatch.setattr(drawgate.celery._stop, "_future", (stopped := concurrent.futures.Future[None]()))
        stopped.set_result(None)
    end = run(ask)
    if acks_late:
        assert (end.state, end.retval.requeue, failures) == ("REJECTED", True, [])
        return
    assert policies == [True]
    assert end.state == "FAILURE"
    assert [type(e) for e in failures] == [GivenUp]
    text = "task ask[1-2] got no units, and could not be queued again: the broker is down"
    assert str(failures[0]) == text
    assert text in [r.getMessage() for r in caplog.records if r.levelname == "ERROR" and r.name == "drawgate"]


@pytest.mark.parametrize("used", [lambda _: {"tokens": None}, lambda _: {"tokenz": 1}, lambda _: 1 / 0])
def test_a_count_that_fails_does_not_fail_a_task(
    fake: FakeServer, app: Any, used: Any, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(name="ask", shared=False, costs={"tokens": 10}, used=used)
    def ask() -> None: ...

    assert run(ask) is None
    assert fake.used("llm") == {"requests": 1, "tokens": 10}
    assert "so the estimate counts" in caplog.text


def test_reservation_of_the_body(fake: FakeServer, app: Any) -> None:
    @app.task(bind=True, shared=False)
    def ask(self: Any) -> None:
        self.reservation.used(tokens=7)

    ask()
    assert fake.used("llm") == {"requests": 1, "tokens": 7}
    with pytest.raises(RuntimeError, match="no body of a limited task runs here"):
        _ = ask.reservation


@pytest.mark.filterwarnings("ignore:a reservation was never entered")
def test_what_a_task_asks_for(fake: FakeServer, app: Any) -> None:
    @app.task(name="asked", shared=False, soft_time_limit=40, retries=5)
    def ask() -> None: ...

    def asked(**request: Any) -> Any:
        ask.push_request(called_directly=False, **request)
        try:
            return ask._reserve((), {}, queued=True)
        finally:
            ask.pop_request()

    r = asked(id="1-2", retries=3)
    assert r.id == "1-2:3"
    assert r._max_wait == 20  # half of the time limit
    assert r._body["labels"] == {"task": "asked", "task_id": "1-2"}
    assert len(asked(id="i" * 200).id) == 64
    assert asked(id="1", timelimit=(30, None))._max_wait == 15  # that ends it earlier
    assert asked(id="1", timelimit=(30, 10))._max_wait == 5
    ask.push_request(retries=2000)
    assert ask.default_retry_delay == 600
    ask.pop_request()
    assert ask.max_retries == 5


def test_pools_without_threads_are_refused(app: Any) -> None:
    worker = SimpleNamespace(
        app=Celery(broker="memory://"),
        pool_cls="celery.concurrency.gevent:TaskPool",
        time_limit=None,
        soft_time_limit=None,
    )
    signals_begin(sender=worker)  # it has no limited task
    worker.app = app
    with pytest.raises(SystemExit, match="start the worker with --pool=prefork or --pool=threads"):
        signals_begin(sender=worker)


# req: B8
@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("QUEUE_MAX_DEPTH", "fifty", "QUEUE_MAX_DEPTH is 'fifty': give a whole number from 1 to 1e+09"),
        ("QUEUE_RETRY_DELAY_SECONDS", "0", "give a whole number from 1 to 86400"),
        ("RATE_LIMIT_RETRY_MAX_ATTEMPTS", "1.5", "give a whole number from 1 to 1000"),
        ("RATE_LIMIT_RETRY_BACKOFF_MULTIPLIER", "nan", "give a number from 1 to 100"),
        ("QUEUE_MAX_DEPTH", "", ""),
    ],
)
def test_wrong_environment(name: str, value: str, problem: str) -> None:
    command = [sys.executable, "-c", "import drawgate.celery"]
    done = subprocess.run(command, env={**os.environ, name: value}, stderr=subprocess.PIPE, text=True)
    assert problem in done.stderr
    assert bool(done.returncode) == bool(problem)


# req: B8
def test_environment() -> None:
    program = (
        "import drawgate.celery as c; t = c.LimitedTask(); g = c.QueueGuard.__init__.__kwdefaults__;"
        "print(g['max_depth'], t.requeue_delay, t.max_requeues, c.MULTIPLIER)"
    )
    env = {
        "QUEUE_MAX_DEPTH": "60",
        "QUEUE_RETRY_DELAY_SECONDS": "90",
        "RATE_LIMIT_RETRY_MAX_ATTEMPTS": "4",
        "RATE_LIMIT_RETRY_BACKOFF_MULTIPLIER": "2.5",
    }
    for changed, want in ({}, "50 60 3 2.0\n"), (env, "60 90 4 2.5\n"):
        assert (
            subprocess.check_output([sys.executable, "-c", program], env={**os.environ, **changed}, text=True) == want
        )


def test_the_core_does_not_import_celery() -> None:
    program = "import sys, drawgate; sys.exit('celery' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
