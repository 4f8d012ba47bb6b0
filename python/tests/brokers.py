"""Real brokers and real workers for the tests of drawgate.celery."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from celery import Celery

HANG = 300.0  # seconds to wait for something that must happen


def until(happened: Callable[[], Any], what: str) -> Any:
    """Waits for an event. Only a run that fails takes long."""
    end = time.monotonic() + HANG
    while not (value := happened()):
        if time.monotonic() > end:
            raise AssertionError(f"it did not happen: {what}")
        time.sleep(0.05)
    return value


def logged(path: Path, events: tuple[str, ...]) -> list[dict[str, Any]]:
    """Returns the lines about these events. The last line may not be written yet as a whole."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    read = [json.loads(line) for line in lines if line.endswith("\n")]
    return [line for line in read if line["event"] in events]


def loopback() -> str:
    """Returns an address at which nobody else takes ports."""
    return "127." + ".".join(str(random.randint(1, 250)) for _ in range(3))


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


def answers(address: tuple[str, int], greeting: bytes, want: bytes) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(address, timeout=5) as s:
        s.settimeout(5)
        s.sendall(greeting)
        return s.recv(100).startswith(want)
    return False


@contextlib.contextmanager
def running(command: list[str], folder: Path, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a program, and ends it with all processes that it has started."""
    with (folder / "output").open("ab") as output:
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **env}, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def redis_broker(folder: Path) -> Iterator[str]:
    host = loopback()
    command = ["redis-server", "--bind", host, "--port", "6379", "--save", "", "--appendonly", "no"]
    with running(command, folder):
        until(lambda: answers((host, 6379), b"PING\r\n", b"+PONG"), "redis-server starts")
        yield f"redis://{host}:6379/0"


@contextlib.contextmanager
def rabbitmq_broker(folder: Path) -> Iterator[str]:
    host, epmd, dist = loopback(), free_port(), free_port()
    scripts = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmq-server"))
    if not scripts:
        raise RuntimeError('there is no RabbitMQ: install it with "make deps" in the root of the repository')
    (folder / "rabbit.conf").write_text(f"listeners.tcp.1 = {host}:5672\nloopback_users = none\n")
    (folder / "plugins").write_text("[].\n")
    env = {
        "HOME": str(folder),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(epmd),
        "RABBITMQ_NODENAME": "drawgate@localhost",
        "RABBITMQ_DIST_PORT": str(dist),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbit.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
    }
    with running(["epmd", "-port", str(epmd)], folder, **env):  # or else Erlang starts one that stays
        until(lambda: answers(("127.0.0.1", epmd), b"\x00\x01n", epmd.to_bytes(4, "big")), "epmd starts")
        with running([str(scripts[-1])], folder, **env):
            until(lambda: answers((host, 5672), b"AMQP\x00\x00\x09\x01", b"\x01"), "rabbitmq-server starts")
            yield f"amqp://guest:guest@{host}:5672//"


class Workers:
    """Workers of limited_app, and the log that its tasks write."""

    def __init__(self, folder: Path, broker: str, server: str, queue: str, **settings: str) -> None:
        self.folder, self.queue, self._stack = folder, queue, contextlib.ExitStack()
        self.app = Celery(broker=broker, backend=settings.get("LIMITED_BACKEND"))
        self.app.conf.task_queue_max_priority = 10 if broker.startswith("amqp:") else None
        self.env = {
            "DRAWGATE_SERVER": server,
            "LIMITED_BROKER": broker,
            "LIMITED_FOLDER": str(folder),
            "LIMITED_QUEUE": queue,
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
            **settings,
        }
        self._started = 0

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self, *options: str, **settings: str) -> subprocess.Popen[bytes]:
        """Starts a worker, and waits until it is ready."""
        self._started += 1
        name = f"w{self._started}@localhost"
        command = [sys.executable, "-m", "celery", "-A", "limited_app", "worker", "-n", name, "-l", "INFO", *options]
        command += ["--without-gossip", "--without-mingle"]
        process = self._stack.enter_context(running(command, self.folder, **{**self.env, **settings}))
        until(lambda: f"{name} ready" in self.output or process.poll() is not None, "the worker starts")
        assert process.poll() is None, self.output
        return process

    def send(self, name: str, *args: Any, **options: Any) -> str:
        """Sends a task, and returns its id."""
        return str(self.app.send_task(f"limited_app.{name}", args, queue=self.queue, **options).id)

    @property
    def output(self) -> str:
        """What the workers have printed."""
        return (self.folder / "output").read_text()

    def log(self, *events: str) -> list[dict[str, Any]]:
        """Returns what tasks have logged about these events."""
        return logged(self.folder / "log", events)
