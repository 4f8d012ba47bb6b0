"""Calls to the server, and what is done in the background, in the running event loop."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import time
from collections.abc import Coroutine
from typing import Any

import anyio
import httpx

from . import _wire
from ._errors import Error, ServerUnavailable, Unavailable
from ._types import Json

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0  # seconds between attempts; doubling, with jitter
LAST = 1.0  # so many seconds before the deadline the time is not divided among attempts any more
SHORTEST = 0.05  # seconds; with less time left no further attempt begins
LONGEST_RETRY_AFTER = 5.0  # seconds
CLOSE_TIMEOUT = 10.0  # seconds at least for what is done in the background when a limiter is closed
KEEP_ALIVE = 256  # idle connections


class Caller:
    """Sends requests to one server. The arguments are those of `AsyncLimiter`."""

    def __init__(self, base: str, token: str, timeout: float, transport: httpx.AsyncBaseTransport | None) -> None:
        self.base, self._timeout, self._transport = base, timeout, transport
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._pid = 0  # of the process that uses the transport
        self._clients: dict[asyncio.AbstractEventLoop, httpx.AsyncClient] = {}
        self._background: dict[asyncio.AbstractEventLoop, set[asyncio.Task[Any]]] = {}

    async def aclose(self) -> None:
        """Waits for what is done in the background, and closes connections."""
        loop = asyncio.get_running_loop()
        end = time.monotonic() + max(self._timeout, CLOSE_TIMEOUT)
        while tasks := self._background.get(loop):
            if (left := end - time.monotonic()) <= 0:
                for task in tasks:
                    task.cancel()
            await asyncio.wait(tasks, timeout=max(left, 0.0) or None)
        self._background.pop(loop, None)
        if client := self._clients.pop(loop, None):
            await client.aclose()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Runs work in the background. aclose waits for it."""
        loop = asyncio.get_running_loop()
        task = loop.create_task(work)
        tasks = self._background.setdefault(loop, set())
        tasks.add(task)

        def done(task: asyncio.Task[Any]) -> None:
            tasks.discard(task)
            if not task.cancelled():
                task.exception()  # it was reported, or nobody can do anything about it: the hold ends by itself

        task.add_done_callback(done)
        return task

    async def call(
        self,
        method: str,
        path: str,
        body: Json | None,
        *,
        again: bool,
        wait_ms: int = 0,
        timeout: float | None = None,
        attempts: int | None = None,
        times: list[float] | None = None,
        question: str = "",
    ) -> tuple[Json, bool]:
        """Sends a request until there is an answer. unsure says that an earlier attempt may have been carried out.

        times gets the time of each attempt. question says in errors what a call asks that changes nothing.

        An error has may_have_spent set if any attempt may have been carried out. again says that more
        than one may be.
        """
        self.prepare()
        begun = time.monotonic()
        waited = begun + wait_ms / 1000  # when the server has answered at the latest
        timeout = timeout or self._timeout
        deadline = give_up = waited + timeout
        unsure = sent = False
        for attempt in itertools.count(1):
            now = time.monotonic()
            if times is not None:
                times.append(now)
            wait = max(0.0, waited - now)
            if wait_ms and body is not None:
                body = body | {"wait_ms": _wire.millis("max_wait", wait)}
            patience = max(0.0, deadline - now - wait)
            if again and patience > LAST:
                patience /= 2  # the rest is for further attempts
            try:
                return await self._attempt(method, path, body, wait + patience, patience, question), unsure
            except _Failed as error:
                failure = error
            if attempt == 1 or time.monotonic() - now > timeout:  # the wait is for the queue, not for a server
                give_up = min(deadline, time.monotonic() + timeout)
            unsure, sent = unsure or failure.error.may_have_spent, sent or failure.sent
            pause = max(failure.pause, min(FIRST_PAUSE * 2 ** (attempt - 1), LONGEST_PAUSE) * (0.5 + random.random()))
            retry = (again and isinstance(failure.error, Unavailable)) or not failure.sent
            if not retry or attempt == attempts or time.monotonic() + pause + SHORTEST > give_up:
                break
            await asyncio.sleep(pause)
            if time.monotonic() + SHORTEST > give_up:  # a busy machine sleeps for longer
                break
        failure.error.may_have_spent, failure.error._sent = unsure, sent
        if attempt > 1:
            failure.error.args = (f"{failure.error} ({attempt} attempts in {time.monotonic() - begun:.3g} s)",)
        try:
            raise failure.error from failure.__cause__
        finally:
            del failure  # or else the error's traceback keeps itself and the limiter

    async def _attempt(
        self, method: str, path: str, body: Json | None, limit: float, connect: float, question: str
    ) -> Json:
        client = self.prepare()
        try:
            with anyio.fail_after(limit):
                response = await client.request(
                    method,
                    self.base + path,
                    content=None if body is None else json.dumps(body, separators=(",", ":")).encode(),
                    headers=self._headers | ({"Content-Type": _wire.JSON_TYPE} if body is not None else {}),
                    timeout=httpx.Timeout(None, connect=connect),
                )
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            what = f"{self.base} cannot be reached ({error})"
            text = f"{what}: is the server running, and is the address (server=, or DRAWGATE_SERVER) right?"
            raise _Failed(ServerUnavailable(text, may_have_spent=False), sent=False) from error
        except (httpx.RequestError, OSError) as error:
            what = (
                f"did not answer within {limit:.3g} s"
                if isinstance(error, TimeoutError)
                else f"did not answer ({error or repr(error)})"
            )
            end = f"{question}: nothing was spent" if question else f"{method} {path}: it may have been carried out"
            raise _Failed(ServerUnavailable(f"{self.base} {what} to {end}", may_have_spent=not question)) from error
        data: Json | None = None
        with contextlib.suppress(ValueError, RecursionError):
            read = response.json()
            data = read if isinstance(read, dict) else None
        problem = _wire.problem(
            self.base, f"{method} {path}", response.status_code, response.headers.get("Content-Type", ""), data
        )
        if problem:
            retry_after = response.headers.get("Retry-After", "")
            raise _Failed(problem, min(float(retry_after), LONGEST_RETRY_AFTER) if retry_after.isdecimal() else 0.0)
        assert data is not None
        return data

    def prepare(self) -> httpx.AsyncClient:
        """Returns the client of the running event loop: connections belong to a loop.

        The first one takes time, mostly for imports: call it before the time of a call begins.
        """
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            if self._transport and self._pid not in (0, os.getpid()):
                raise RuntimeError(
                    "transport= was used before this process was forked, and its connections belong to the parent:"
                    " make a limiter in each process"
                )
            self._pid = os.getpid()
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=KEEP_ALIVE)
            plain = self.base.startswith("http:")  # reading certificates takes time
            transport = self._transport or httpx.AsyncHTTPTransport(verify=not plain, limits=limits)
            client = httpx.AsyncClient(transport=transport, follow_redirects=False)
            anyio.get_cancelled_exc_class()  # imports what the first call would
            for old in list(self._clients):  # other loops run in other threads
                if old.is_closed():
                    self._clients.pop(old, None)
                    self._background.pop(old, None)
            self._clients[loop] = client
        return client


class _Failed(Exception):
    """An attempt failed. pause is for how long the server asks not to be asked again."""

    def __init__(self, error: Error, pause: float = 0.0, sent: bool = True) -> None:
        self.error, self.pause, self.sent = error, pause, sent
