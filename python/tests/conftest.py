"""A real server, and a proxy in front of it that loses answers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from drawgate import Limiter

# Windows so long that nothing comes back while a test runs.
CONFIG = """
policies:
  llm:
    limits:
      - {name: rpm, rolling: 1h, amount: 5000}
      - {name: tpm, unit: tokens, rolling: 1h, amount: 100000}
  few:
    limits:
      - {name: hourly, rolling: 1h, amount: 3}
  slots:
    limits:
      - {name: at-once, concurrency: 1}
rules:
  - {name: uploads, match: {path: /upload}, apply: [{policy: few, key: user}]}
"""


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Every test runs: one that cannot is a failure."""
    if terminalreporter.stats.get("skipped"):
        pytest.exit("tests were skipped", returncode=1)


class Server:
    """drawgate serve, with its counts in a file, so that it can be killed and started again."""

    def __init__(self, folder: Path, config: str = CONFIG) -> None:
        self._program = os.environ.get("DRAWGATE_PROGRAM")
        if not self._program:
            raise RuntimeError("set DRAWGATE_PROGRAM to the program drawgate, as `go test ./python` does")
        self._folder = folder
        (folder / "drawgate.yaml").write_text(f"store: sqlite:{folder}/drawgate.db\nstore_timeout: 60s\n{config}")
        host = "127." + ".".join(str(random.randint(1, 250)) for _ in range(3))  # nobody takes its ports meanwhile
        self._listen = [f"{host}:0", f"{host}:0"]
        self.start()

    def start(self) -> None:
        """Starts it, at the address that it had before."""
        arguments = [
            "serve",
            "--config",
            "drawgate.yaml",
            "--listen",
            self._listen[0],
            "--admin",
            self._listen[1],
        ]
        self.process = subprocess.Popen(
            [str(self._program), *arguments], cwd=self._folder, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr is not None
        said = ""
        for line in self.process.stderr:
            said += line
            if m := re.search(r"listening on http://([^\s\"]+)", line):
                self._listen[0] = m[1]
            if m := re.search(r"administration at http://([^\s\"]+)", line):
                self._listen[1] = m[1]
                break
        else:
            raise RuntimeError(f"the server does not start: {said}")
        self._reader = threading.Thread(target=self.process.stderr.read)
        self._reader.start()
        self.url, self.admin = ("http://" + address for address in self._listen)

    def kill(self) -> None:
        """Kills it as a crash does."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()

    def used(self, policy: str, key: str) -> dict[str, int]:
        """Returns what counts in a bucket, by limit."""
        return {m["name"]: m["used"] for m in self.status(policy, key)["limits"]}

    def status(self, policy: str, key: str) -> dict[str, Any]:
        status: dict[str, Any] = self.post("/v1/status", {"policy": policy, "key": key})
        return status

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Asks without the package that is tested."""
        answer = httpx.post(self.admin + path, json=body, timeout=60, verify=False)  # reading certificates takes time
        return answer.raise_for_status().json()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    s = Server(tmp_path_factory.mktemp("server"))
    yield s
    s.kill()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """A server that the test may kill."""
    folder = tmp_path / "own"  # its file is not one that another server of the test reads
    folder.mkdir()
    s = Server(folder)
    yield s
    s.kill()


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    """A key of the test's own."""
    return str(request.node.name)


@pytest.fixture
def limiter(server: Server) -> Iterator[Limiter]:
    with Limiter(server.url, timeout=60) as limiter:
        yield limiter


class Proxy:
    """Passes requests on. The server carries out what was asked, and the client never hears of it.

    Attributes:
        lose: how many of the next answers are lost: the connection breaks.
        silent: how many of the next answers never come, although the connection stays open.
        requests: how many have arrived.
    """

    def __init__(self, target: str) -> None:
        self._host, _, port = target.removeprefix("http://").partition(":")
        self._port = int(port)
        self.lose = self.silent = self.requests = 0
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        started = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(started),))
        self._thread.start()
        started.wait()

    async def _serve(self, started: threading.Event) -> None:
        self._tasks: set[asyncio.Task[None]] = set()  # or else nothing keeps one that never answers
        listener = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        started.set()
        await self._stop.wait()
        listener.close()
        quiet = 0
        while quiet < 5:  # a connection that was just accepted begins its task some steps later
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0)
            quiet = 0 if tasks else quiet + 1

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        up_writer: asyncio.StreamWriter | None = None
        try:
            up_reader, up_writer = await asyncio.open_connection(self._host, self._port)
            while request := await self._message(reader):
                self.requests += 1
                up_writer.write(request)
                answer = await self._message(up_reader)
                if self.lose > 0:
                    self.lose -= 1
                    break
                if self.silent > 0:
                    self.silent -= 1
                    await asyncio.Event().wait()
                writer.write(answer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for w in (writer, up_writer):
                if w is not None:
                    w.close()
                    with contextlib.suppress(OSError, asyncio.CancelledError):
                        await w.wait_closed()
            self._tasks.discard(task)

    @staticmethod
    async def _message(reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: (\d+)", head)
            return head + await reader.readexactly(int(length[1]) if length else 0)
        except asyncio.IncompleteReadError:
            return b""

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    p = Proxy(server.url)
    yield p
    p.close()
