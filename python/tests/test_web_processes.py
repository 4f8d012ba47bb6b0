"""Flask and Django with four processes of gunicorn, and a real server."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from brokers import logged
from conftest import Server

LIMITS = """
policies:
  ip: {limits: [{name: rate, rolling: 1h, amount: 30}]}
  api: {limits: [{name: rate, rolling: 1h, amount: 10000}]}
  user: {limits: [{name: rate, rolling: 1h, amount: 10}]}
  slots: {limits: [{name: at-once, concurrency: 2}]}
"""
PROCESSES = 4


@pytest.fixture
def limits(tmp_path: Path) -> Iterator[Server]:
    s = Server(tmp_path, LIMITS)
    yield s
    s.kill()


class Site:
    """A site that gunicorn serves, and the log that its views write."""

    def __init__(self, folder: Path, framework: str, server: str, **settings: str) -> None:
        self._folder = folder
        here = str(Path(__file__).parent)
        command = [sys.executable, "-m", "gunicorn", "web_site:app", "--bind", "127.0.0.1:0", "--timeout", "0"]
        command += ["--workers", str(PROCESSES), "--no-control-socket"]
        command += ["--preload"]  # the processes are forked from one that has made a limiter, and may have asked
        env = {
            **os.environ,
            "DRAWGATE_SERVER": server,
            "PYTHONPATH": os.pathsep.join([here, os.environ.get("PYTHONPATH", "")]),
            "SITE_FRAMEWORK": framework,
            "SITE_FOLDER": str(folder),
            **settings,
        }
        self._process = subprocess.Popen(
            command, cwd=folder, env=env, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self._process.stderr
        said = ""
        for line in self._process.stderr:
            said += line
            if m := re.search(r"Listening at: http://127\.0\.0\.1:(\d+)", line):
                self.port = int(m[1])
                break
        else:
            raise RuntimeError(f"gunicorn does not start: {said}")
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        limits = httpx.Limits(
            max_keepalive_connections=0
        )  # or else a process has a connection, and others have nothing
        self._client = httpx.Client(timeout=300, verify=False, limits=limits)

    def _read(self) -> None:
        assert self._process.stderr
        with self._process.stderr as pipe:
            self.said = pipe.read()

    def get(self, path: str, client: str = "198.51.100.1", method: str = "GET", **headers: str) -> httpx.Response:
        """Sends a request as a proxy does, over a connection of its own."""
        headers = {"X-Forwarded-For": client, **headers}
        return self._client.request(method, f"http://127.0.0.1:{self.port}{path}", headers=headers)

    def many(self, n: int, path: str, **headers: str) -> list[httpx.Response]:
        with ThreadPoolExecutor(2 * PROCESSES) as pool:
            return list(pool.map(lambda _: self.get(path, **headers), range(n)))

    def raw(self, *headers: str) -> int:
        """Sends headers that no library sends, and returns the status."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=300) as s:
            s.sendall("\r\n".join(["GET / HTTP/1.1", "Host: site", "Connection: close", *headers, "", ""]).encode())
            return int(s.makefile().readline().split()[1])

    def log(self, *events: str) -> list[dict[str, Any]]:
        return logged(self._folder / "log", events)

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._process.terminate()
        try:
            self._process.wait(300)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._reader.join()


@pytest.mark.parametrize("framework", ["flask", "django"])
def test_never_over(framework: str, limits: Server, tmp_path: Path) -> None:
    """By the log of the views: req: B4 B7."""
    with Site(tmp_path, framework, limits.url, SITE_CHECK="1") as site:
        with ThreadPoolExecutor(PROCESSES) as pool:  # each process serves one request at a time
            waiting = [pool.submit(site.get, "/health/gate") for _ in range(PROCESSES)]
            while len({e["pid"] for e in site.log("at the gate")}) < PROCESSES:
                assert site._process.poll() is None
                time.sleep(0.02)
            (tmp_path / "gate").touch()
            for answer in waiting:
                assert answer.result().text == "open"
                assert not [name for name in answer.result().headers if name.startswith("x-ratelimit")]

        answers = site.many(50, "/")
        assert Counter(a.status_code for a in answers) == {200: 30, 429: 20}
        runs = site.log("hello")
        assert len(runs) == 30
        print(f"{framework}: 30 of 50 requests were served, by {len({r['pid'] for r in runs})} processes")
        assert sorted(int(a.headers["X-RateLimit-Remaining"]) for a in answers if a.is_success) == list(range(30))
        for a in answers:
            assert a.headers["X-RateLimit-Limit"] == "30"
            assert int(a.headers["X-RateLimit-Reset"]) > time.time()
            if not a.is_success:
                assert a.headers["Content-Type"] == "application/problem+json"
                assert (a.json()["code"], a.json()["scope"]) == ("limited", "caller")
                assert int(a.headers["Retry-After"]) == a.json()["retry_after"] >= 1
        head = site.get("/", method="HEAD")
        assert (head.status_code, head.text) == (429, "")

        # Nobody can invent an address.
        me = "X-Forwarded-For: 198.51.100.1"
        assert site.raw("X-Forwarded-For: 203.0.113.5", me) == 429
        assert site.raw("X-Forwarded-For: 203.0.113.5, 198.51.100.1") == 429
        assert site.raw(me, "X_Forwarded_For: 203.0.113.5") == 429
        assert site.raw("X_FORWARDED_FOR: 203.0.113.5", me) == 429
        assert site.raw("X-Forwarded-For: 198.51.100.2") == 200
        assert limits.used("ip", "203.0.113.5") == {"rate": 0}
        assert limits.used("ip", "198.51.100.1") == {"rate": 30}

        answers = site.many(16, "/user", client="198.51.100.3", **{"X-User": "ada"})
        assert Counter(a.status_code for a in answers) == {200: 10, 429: 6}
        assert len(site.log("user")) == 10
        assert {a.headers["X-RateLimit-Limit"] for a in answers} == {"10"}
        assert {a.json()["violated-policies"][0] for a in answers if not a.is_success} == {"user"}

        assert {a.status_code for a in site.many(8, "/slot", client="198.51.100.4")} == {200}
        at_once = 0
        for event in site.log("begin", "end"):  # in the order of writing
            at_once += 1 if event["event"] == "begin" else -1
            assert 0 <= at_once <= 2
        assert len(site.log("end")) == 8
    assert limits.status("slots", "")["open"] == 0
    assert "Traceback" not in site.said, site.said


@pytest.mark.parametrize(("framework", "fallback"), [("flask", "open"), ("django", "closed")])
def test_without_the_server(framework: str, fallback: str, tmp_path: Path) -> None:
    """What is configured happens: req: B11."""
    with Site(tmp_path, framework, "http://127.0.0.1:1", SITE_FALLBACK=fallback, SITE_TIMEOUT="0.3") as site:
        answers = site.many(8, "/")
        if fallback == "open":
            assert {(a.status_code, a.text, a.headers["X-RateLimit-Fallback"]) for a in answers} == {
                (200, "hello", "true")
            }
            assert {a.text for a in site.many(2, "/slot")} == {"done"}
        else:
            assert {(a.status_code, a.json()["code"], a.headers["Retry-After"]) for a in answers} == {
                (503, "store_unavailable", "1")
            }
            assert not site.log("hello")
