"""Celery tasks that wait for their units before they run, and a guard in front of queues.

    @app.task(base=LimitedTask, policy="transcribe", costs={"tokens": 400})
    def transcribe(path): ...

    guard = QueueGuard(app, policy="task")
    guard.submit(transcribe, ["talk.wav"])

The environment is read when this module is imported: QUEUE_MAX_DEPTH, QUEUE_RETRY_DELAY_SECONDS,
RATE_LIMIT_RETRY_MAX_ATTEMPTS and RATE_LIMIT_RETRY_BACKOFF_MULTIPLIER. The manual is docs/python.md.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import inspect
import logging
import os
import select
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, NoReturn, TypeAlias

import celery
from celery import signals
from celery.exceptions import Ignore, Reject, Retry, SoftTimeLimitExceeded
from kombu.exceptions import ChannelError, OperationalError
from kombu.utils.url import maybe_sanitize_url

from ._errors import Error, Problem, Refused, Unavailable
from ._limited import default_sync
from ._sync import Limiter, Reservation, _stop_all
from ._types import Key

__all__ = ["MAX_ATTEMPTS", "BrokerUnavailable", "GivenUp", "LimitedTask", "QueueFull", "QueueGuard"]

log = logging.getLogger("drawgate")

Name: TypeAlias = str | Callable[..., str]
Costs: TypeAlias = Mapping[str, int] | Callable[..., Mapping[str, int]]


def _setting(name: str, kind: type[int] | type[float], default: float, most: float) -> Any:
    """Reads a variable of the environment, with the bounds that the server has for it."""
    text = os.environ.get(name, "")
    try:
        value = kind(text or default)
    except ValueError:
        value = 0
    if not 1 <= value <= most:
        raise ValueError(f"{name} is {text!r}: give a {'whole ' * (kind is int)}number from 1 to {most:g}")
    return value


QUEUE_MAX_DEPTH: int = _setting("QUEUE_MAX_DEPTH", int, 50, 1e9)
RETRY_DELAY: int = _setting("QUEUE_RETRY_DELAY_SECONDS", int, 60, 86_400)
MAX_ATTEMPTS: int = _setting("RATE_LIMIT_RETRY_MAX_ATTEMPTS", int, 3, 1000)
MULTIPLIER: float = _setting("RATE_LIMIT_RETRY_BACKOFF_MULTIPLIER", float, 2.0, 100)

LONGEST_BACKOFF = 600.0  # seconds, as Celery's retry_backoff_max
REQUEUES = "drawgate-requeues"  # the message header that counts them
DEAD_LETTER = ("x-death", "x-first-death-", "x-last-death-")  # how message headers begin that RabbitMQ adds
MAX_ID = 128  # bytes, of a reservation's id
HIGHEST = 9  # priority, of takes and of messages


class GivenUp(Error):
    """A task got no units, however often it was queued again, or it could not be. Its body has not run since."""


class QueueFull(Error):
    """A queue is deeper than it may be, so nothing was submitted.

    Attributes:
        queue: its name.
        depth: how many messages are waiting in it.
        max_depth: how many may.
    """

    def __init__(self, queue: str, depth: int, max_depth: int) -> None:
        super().__init__(f"queue {queue!r} has {depth} waiting messages, and at most {max_depth} may wait")
        self.queue, self.depth, self.max_depth = queue, depth, max_depth


class BrokerUnavailable(Error):
    """The broker cannot be reached, or its address is wrong. Nothing was submitted."""


class LimitedTask(celery.Task):  # type: ignore[misc] # Celery has no types
    """A task that takes units before its body runs, and holds them while it runs.

    These attributes are given to the decorator, or set in a subclass. A function gets the task's
    arguments.

    Attributes:
        policy: which policy counts the task, or a function.
        key: who is counted, or a function.
        costs: an estimate by unit, or a function.
        used: a function that returns what was really used, from what the body returned.
        cancel_on: exceptions of the body which mean that nothing was used.
        limiter: by default one for the server that DRAWGATE_SERVER names.
        max_wait: seconds to wait for the units; at most half of the task's shorter time limit.
        hold: seconds after which the units of a worker that died count as used, and its slots are
            free. While the body runs, the hold is renewed.
        requeue_delay: seconds after which a task that got no units is in the queue again.
        max_requeues: how often that may happen; then it fails with `GivenUp`.

        retries: how often the body is run again after an exception, after 1, 2, 4 … seconds.

    Only a task that got no units is queued again. All else is as in other tasks: by default a body
    that raises fails the task, and a task of a worker that was killed is lost. Give it acks_late and
    reject_on_worker_lost if it may be run twice.
    """

    abstract = True

    policy: Name = ""
    key: Name | Key = ""
    costs: Costs = {}  # noqa: RUF012 - nobody changes it
    used: Callable[[Any], Mapping[str, int]] | None = None
    cancel_on: type[BaseException] | tuple[type[BaseException], ...] = ()
    limiter: Limiter | None = None
    max_wait: float = 300.0
    hold: float = 30.0
    requeue_delay: float = RETRY_DELAY
    max_requeues: int = MAX_ATTEMPTS

    retries: int = 0

    dont_autoretry_for = (Reject,)

    @property
    def autoretry_for(self) -> tuple[type[BaseException], ...]:
        """Exceptions after which the body is run again."""
        return (Exception,) if self.retries else ()

    @property
    def max_retries(self) -> int | None:
        """How often the body is run again at most."""
        most: int | None = self.retries or celery.Task.max_retries
        return most

    @property
    def default_retry_delay(self) -> float:
        """Seconds before the body is run again."""
        if not self.retries:
            return float(celery.Task.default_retry_delay)
        retries: int = min(self.request.retries, 100)  # a larger number has no power
        return min(MULTIPLIER**retries, LONGEST_BACKOFF)

    @property
    def reservation(self) -> Reservation:
        """What is held for the body that runs now: call its `used`, or look at `lost`."""
        if (r := _current.get()) is None:
            raise RuntimeError("no body of a limited task runs here")
        return r

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the body with its units."""
        request = self.request
        nested = request.called_directly or request._protected  # called by a program, or by this task's own body
        queued = not nested and not request.is_eager
        r = self._reserve(args, kwargs, queued)
        if queued:
            self._wait(r)
        else:
            r.__enter__()
        with contextlib.ExitStack() as stack:
            stack.push(r)
            stack.callback(_current.reset, _current.set(r))
            try:
                if nested:
                    result = super().__call__(*args, **kwargs)
                else:
                    request._protected = 1
                    result = self.run(*args, **kwargs)
            except Retry as retry:
                if isinstance(retry.exc, self.cancel_on) and not r._used:
                    r.cancel()
                raise
            r._count(self._static("used"), result)
            return result

    def _static(self, name: str) -> Any:
        """Returns an attribute as it was given: a function is no method."""
        return inspect.getattr_static(self, name)

    def _reserve(self, args: tuple[Any, ...], kwargs: dict[str, Any], queued: bool) -> Reservation:
        request = self.request

        def value(name: str) -> Any:
            v = self._static(name)
            return v(*args, **kwargs) if callable(v) else v

        labels, ident, max_wait = {"task": self.name}, None, self.max_wait
        if queued:
            labels["task_id"] = request.id
            # One name for all deliveries of this attempt, so that only one of them runs at a time.
            ident = f"{request.id}:{request.retries}"
            if len(ident.encode()) > MAX_ID:
                ident = hashlib.sha256(ident.encode()).hexdigest()
            hard, soft = request.timelimit or (None, None)
            limits = (hard or self.time_limit or _worker.hard, soft or self.soft_time_limit or _worker.soft)
            for limit in filter(None, limits):
                max_wait = min(max_wait, limit / 2)  # Celery counts the wait as well
        return (self.limiter or default_sync()).reserve(
            value("policy"),
            value("key"),
            max_wait=max_wait,
            hold=self.hold,
            id=ident,
            priority=self._priority() if queued else 0,
            labels=labels,
            cancel_on=self.cancel_on,
            costs=value("costs"),
        )

    def _priority(self) -> int:
        """Returns the message's priority, as takes have it: the highest is 9."""
        priority = min(max(int((self.request.delivery_info or {}).get("priority") or 0), 0), HIGHEST)
        if self.app.connection_for_read().get_transport_cls().driver_type != "redis":
            return priority
        # There 0 is the highest, and a message without a priority has 0.
        options = self.app.conf.broker_transport_options or {}
        return HIGHEST - priority if options.get("queue_order_strategy") == "priority" else 0

    def _wait(self, r: Reservation) -> None:
        """Enters the reservation, or sends the task back to the queue."""
        try:
            _enter(r)
        except _Stopping:
            if self.acks_late:
                raise Reject("the worker stops", requeue=True) from None
            self._send_again(0, {})
            raise Ignore("the worker stops") from None
        except Refused as refused:
            if refused.retry_after is None:
                raise
            self._requeue(refused)
        except SoftTimeLimitExceeded as error:
            self._requeue(error)
        except Unavailable as error:  # this is no answer, so it does not count
            self._send_again(self.requeue_delay, {})
            log.warning("task %s[%s] is queued again: %s", self.name, self.request.id, error)
            raise Retry(str(error), error, self.requeue_delay) from error
        except Problem as problem:
            if problem.code == "id_open":  # another delivery of this task runs, or was killed
                self._send_again(self.hold, {})
                raise Ignore("another delivery of this task is at work") from None
            if problem.code == "too_many_open":
                self._requeue(problem)
            raise

    def _requeue(self, why: Exception) -> NoReturn:
        count = int((self.request.headers or {}).get(REQUEUES, 0)) + 1
        if count > self.max_requeues:
            raise GivenUp(f"task {self.name}[{self.request.id}] got no units in {count} attempts: {why}") from why
        self._send_again(self.requeue_delay, {REQUEUES: count})
        raise Retry(str(why), why, self.requeue_delay) from why

    def _send_again(self, countdown: float, headers: Mapping[str, int]) -> None:
        """Sends the task as it is once more: this is not one of its retries, which count failures."""
        request = self.request
        known = request.as_execution_options()["headers"] or {}
        # With those of an earlier delay RabbitMQ would drop the message. Celery removes them itself since 5.6.
        headers = {n: v for n, v in known.items() if not n.startswith(DEAD_LETTER)} | dict(headers)
        again = self.signature_from_request(request, countdown=countdown, retries=request.retries, headers=headers)
        try:
            again.apply_async(retry=True)
        except Exception as error:
            if self.acks_late:  # the broker still has it
                raise Reject(error, requeue=True) from error
            text = f"task {self.name}[{request.id}] got no units, and could not be queued again: {error or repr(error)}"
            log.error(text)
            raise GivenUp(text) from error


_current: ContextVar[Reservation | None] = ContextVar("drawgate_reservation", default=None)


# Workers.


class _Worker:
    """What a worker's command line says, for the processes that are forked from it: Celery does not tell them."""

    hard: float | None = None
    soft: float | None = None


_worker = _Worker()


class _Stopping(Exception):
    """The worker stops, so the task does not begin."""


class _Stop:
    """Says to all processes of a worker that it stops, whether they are forked before or afterwards.

    The pipe becomes readable, and nobody reads it.
    """

    def __init__(self) -> None:
        self._pipe: tuple[int, int] | None = None
        self._lock = threading.Lock()
        self._pid = 0
        self._future: concurrent.futures.Future[None] = concurrent.futures.Future()

    def prepare(self) -> None:
        """Begins a worker."""
        self._pid, self._pipe = 0, os.pipe()

    def stop(self) -> None:
        """Says so. It may be called in a signal handler."""
        if self._pipe:
            os.write(self._pipe[1], b".")

    def future(self) -> concurrent.futures.Future[None]:
        """Returns what is done when the worker stops."""
        with self._lock:
            if self._pipe and self._pid != os.getpid():
                self._pid, self._future = os.getpid(), concurrent.futures.Future()
                threading.Thread(
                    target=self._watch, args=(self._pipe[0], self._future), name="drawgate-stop", daemon=True
                ).start()
            return self._future

    @staticmethod
    def _watch(pipe: int, future: concurrent.futures.Future[None]) -> None:
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        poll.poll()
        future.set_result(None)

    def renew(self) -> None:
        """Begins a forked process: another thread may have held the lock."""
        self._lock = threading.Lock()


_stop = _Stop()
os.register_at_fork(after_in_child=_stop.renew)


def _enter(r: Reservation) -> None:
    """Enters a reservation, unless the worker stops first."""
    r._check_new()
    stop = _stop.future()
    if stop.done():
        raise _Stopping
    entered = r._loop.start(r._start())
    try:
        concurrent.futures.wait((entered, stop), return_when=concurrent.futures.FIRST_COMPLETED)
        if not entered.done():
            raise _Stopping
        entered.result()
    except Error:
        raise
    except BaseException as error:  # perhaps when the take had just been granted
        entered.cancel()
        r._loop.run(r._abandon(error))
        raise


@signals.worker_init.connect  # type: ignore[untyped-decorator]
def _begin(sender: Any, **_: Any) -> None:
    pool = sender.pool_cls if isinstance(sender.pool_cls, str) else sender.pool_cls.__module__
    if "event" in pool and any(isinstance(task, LimitedTask) for task in sender.app.tasks.values()):
        raise SystemExit(
            "drawgate: limited tasks need threads or processes, and the pools gevent and eventlet replace threads:"
            " start the worker with --pool=prefork or --pool=threads"
        )
    _worker.hard, _worker.soft = sender.time_limit, sender.soft_time_limit
    _stop.prepare()
    _check([task for task in sender.app.tasks.values() if isinstance(task, LimitedTask)])


def _check(tasks: Sequence[LimitedTask]) -> None:
    """Ends a worker whose tasks would fail, and be lost, because a name or the token is wrong."""
    unavailable: set[Limiter] = set()
    for task in tasks:
        limiter, policy, costs = task.limiter or default_sync(), task._static("policy"), task._static("costs")
        # A transport belongs to the first process that uses it. What a function chooses is known only later.
        if limiter in unavailable or limiter._inner._caller._transport or callable(policy):
            continue
        try:
            limiter.check(policy, costs={} if callable(costs) else costs)
        except Problem as problem:
            raise SystemExit(f"drawgate: task {task.name} cannot run: {problem}") from problem
        except Unavailable as error:
            unavailable.add(limiter)
            log.warning("the policies of tasks were not checked: %s", error)


@signals.worker_shutting_down.connect  # type: ignore[untyped-decorator]
def _end(**_: Any) -> None:
    _stop.stop()


@signals.worker_process_shutdown.connect  # type: ignore[untyped-decorator]
def _end_process(**_: Any) -> None:
    _stop_all()  # such processes end without atexit


# Queues.


class QueueGuard:
    """Submits tasks only if the queue is not too deep and a unit is there.

    Args:
        app: the Celery application.
        limiter: by default one for the server that DRAWGATE_SERVER names.
        policy: which policy counts submissions; the key is the queue's name.
        max_depth: tasks are refused while a queue is deeper than this; by default QUEUE_MAX_DEPTH, or else 50.
    """

    def __init__(
        self, app: Any, limiter: Limiter | None = None, *, policy: str = "", max_depth: int = QUEUE_MAX_DEPTH
    ) -> None:
        if max_depth < 1:
            raise ValueError(f"max_depth is {max_depth}: give a whole number from 1 on")
        self._app, self._limiter, self._policy, self._max_depth = app, limiter, policy, max_depth

    def depth(self, queue: str) -> int:
        """Counts the messages that wait in a queue and that no worker has fetched. A missing queue has none.

        Raises:
            BrokerUnavailable: the broker cannot be reached.
        """
        with self._broker(), self._app.connection_for_read() as connection:
            connection.ensure_connection(max_retries=1, interval_start=0)
            try:
                return int(connection.default_channel.queue_declare(queue, passive=True).message_count)
            except ChannelError as error:
                if "(404)" not in str(error):  # its code is not set by all of kombu's transports
                    raise
                return 0

    def can_submit(self, queue: str) -> bool:
        """Says whether a task may be submitted now. If so, this takes a unit.

        Raises:
            BrokerUnavailable: the broker cannot be reached.
            Unavailable: nobody decides.
        """
        limiter = self._limiter or default_sync()
        return self.depth(queue) <= self._max_depth and limiter.take(self._policy, queue).allowed

    def submit(
        self,
        task: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        queue: str | None = None,
        **options: Any,
    ) -> Any:
        """Sends a task, or one by its name. Another queue than the task's own, and other options, are apply_async's.

        Returns:
            Celery's AsyncResult.

        Raises:
            QueueFull: more messages are waiting than max_depth.
            Refused: there is no unit.
            BrokerUnavailable: the broker cannot be reached. The unit was given back.
            Unavailable: nobody decides.
        """
        args, kwargs = tuple(args), dict(kwargs or {})
        if isinstance(task, str):
            task = self._app.tasks.get(task) or self._app.signature(task)
        here = task if isinstance(task, celery.Task) else None
        options = self._app.amqp.router.route(
            {"queue": queue or getattr(here, "queue", None), **options}, task.name, args, kwargs, here
        )
        name = getattr(options["queue"], "name", options["queue"])
        if (depth := self.depth(name)) > self._max_depth:
            raise QueueFull(name, depth, self._max_depth)
        limiter = self._limiter or default_sync()
        labels = {"task": task.name}
        with self._broker(), limiter.reserve(self._policy, name, max_wait=0, labels=labels, cancel_on=Exception):
            return task.apply_async(args, kwargs, **options)

    def status(self, timeout: float = 1.0) -> dict[str, dict[str, list[Any]]]:
        """Describes what the workers do.

        Args:
            timeout: seconds for which to wait for answers of the workers, for each of the four.

        Returns:
            active_queues, scheduled, active and reserved: each by worker, without those that did not answer in time.
        """
        with self._broker():
            inspect = self._app.control.inspect(timeout=timeout)
            return {
                "active_queues": inspect.active_queues() or {},
                "scheduled": inspect.scheduled() or {},
                "active": inspect.active() or {},
                "reserved": inspect.reserved() or {},
            }

    @contextlib.contextmanager
    def _broker(self) -> Iterator[None]:
        try:
            yield
        except (OperationalError, KeyError) as error:
            if isinstance(error, KeyError) and self._has_transport():  # somebody else's
                raise
            conf = self._app.conf
            url = maybe_sanitize_url(str(conf.broker_write_url or conf.broker_url))  # without the password
            raise BrokerUnavailable(
                f"the broker {url} cannot be reached ({error or repr(error)}): is it running, and is broker_url right?"
            ) from error

    def _has_transport(self) -> bool:
        """Says whether there is a transport for the broker's URL."""
        try:
            self._app.connection_for_write().get_transport_cls()
        except KeyError:
            return False
        return True
