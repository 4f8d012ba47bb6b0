"""Middleware for FastAPI, Starlette and other ASGI applications.

    from drawgate import AsyncLimiter
    from drawgate.asgi import RateLimitMiddleware

    app.add_middleware(RateLimitMiddleware, limiter=AsyncLimiter())

The manual is docs/python.md.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, TypeAlias, TypeVar

import anyio

from . import _http, _wire
from ._async import AsyncLimiter
from ._errors import Error, Refused
from ._types import Answer, Bucket

__all__ = ["RateLimitMiddleware"]

T = TypeVar("T")
Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

GLOBAL = "global"  # the key of the bucket that all callers share


class RateLimitMiddleware:
    """Takes one request of each client's limit, and of the whole API's, before the application runs.

    It is one take: what one of them refuses costs nothing in the other. A refusal is answered with
    429 and a problem (RFC 9457); if nobody can decide, with 503, unless the limiter has a fallback.
    The X-RateLimit headers describe the client's own limit. Streams are passed on as they are.
    Websockets are not limited.

    Args:
        app: the application.
        limiter: closed by whoever made it.
        ip: the policy of each client, by address; "": none.
        api: the policy that all clients share; "": none.
        exempt: paths that are not limited.
        max_wait: seconds for which a request that does not pass waits in the server's queue.
        queue: how many requests may wait at the same time; any others are answered at once.
        trusted_proxies: whose header names the client: networks such as 10.0.0.0/8; "unix" for
            peers that connect over a Unix socket.
        proxy_header: X-Forwarded-For, or one with a single address. Every trusted proxy must append
            to it, or replace it.
        enabled: switches it off.
    """

    def __init__(
        self,
        app: App,
        limiter: AsyncLimiter,
        *,
        ip: str = "ip",
        api: str = "api",
        exempt: Sequence[str] = ("/health*",),
        max_wait: float = 0.0,
        queue: int = 1000,
        trusted_proxies: Sequence[str] = (),
        proxy_header: str = "X-Forwarded-For",
        enabled: bool = True,
    ) -> None:
        if not ip and not api:
            raise ValueError("ip and api are empty: name at least one policy, or give enabled=False")
        self._app, self._limiter, self._ip, self._api, self._enabled = app, limiter, ip, api, enabled
        self._exempt = _http.Exempt(exempt)
        self._proxies = _http.Proxies(trusted_proxies, proxy_header)
        _wire.millis("max_wait", max_wait)  # says now what is wrong with it
        self._max_wait, self._free = max_wait, queue
        self._own = 0 if ip else None  # the position of the client's own bucket
        self._failures = _http.Failures()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves a request."""
        if scope["type"] != "http" or not self._enabled or _path(scope) in self._exempt:
            await self._app(scope, receive, send)
            return
        try:
            answer, receive = await self._take(self._buckets(scope), receive)
        except Error as error:
            self._failures.report(error)
            await _refuse(_http.failure(error), {}, scope, send)
            return
        except ClientLeft:
            return
        self._failures.decided()
        headers = _http.describe(answer, self._own)
        if not answer:
            await _refuse(_http.refusal(answer, self._own), headers, scope, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = _merged(message.get("headers", ()), headers)
            await send(message)

        await self._app(scope, receive, send_with_headers)

    def _buckets(self, scope: Scope) -> list[Bucket]:
        peer = scope.get("client")
        key = self._proxies.key(peer[0] if peer else "", scope["headers"])
        return [Bucket(*b) for b in ((self._ip, key), (self._api, GLOBAL)) if b[0]]

    async def _take(self, buckets: list[Bucket], receive: Receive) -> tuple[Answer, Receive]:
        """Asks for the units. What the client has sent meanwhile is in the Receive that is returned."""
        if not self._max_wait or self._free <= 0:
            return await self._limiter.take(buckets), receive
        self._free -= 1
        listener = Listener(receive)
        try:
            return await listener.during(self._limiter.wait(buckets, max_wait=self._max_wait)), listener.replay
        except Refused as refused:
            return refused.answer, receive
        finally:
            self._free += 1


class ClientLeft(Exception):
    """The client has left, so nobody waits for an answer."""


class Listener:
    """Reads from a client while its request waits: what it sends is kept for the application."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._read: list[Message] = []
        self._left = False
        self._error: Exception | None = None  # of receive
        self._task: asyncio.Task[None] | None = None

    async def during(self, work: Awaitable[T]) -> T:
        """Does the work. If the client leaves meanwhile, the work is cancelled, and this raises ClientLeft.

        That can be noticed only when the client's whole body was read.
        """
        with anyio.CancelScope() as scope:  # this task does the work itself, as a reservation belongs to its task
            self._task = asyncio.ensure_future(self._listen(scope))
            try:
                return await work
            finally:
                self._task.cancel()
        raise self._error or ClientLeft

    async def _listen(self, scope: anyio.CancelScope) -> None:
        try:
            more = False
            while not self._left and not more:  # the body stays with the server: here it would fill the memory
                message = await self._receive()
                self._read.append(message)
                self._left, more = message["type"] == "http.disconnect", bool(message.get("more_body"))
        except Exception as error:
            self._error = error
        if self._left or self._error:
            scope.cancel()

    async def replay(self) -> Message:
        """Receives for the application."""
        if self._task and not self._task.done():
            await asyncio.wait((self._task,))  # it was cancelled, and ends now
        if self._read:
            return self._read.pop(0)
        if self._error:
            raise self._error
        return await self._receive()


def _path(scope: Scope) -> str:
    """Returns the path as the application's routes have it."""
    path, root = str(scope["path"]), str(scope.get("root_path", "")).rstrip("/")
    return path.removeprefix(root) if path.startswith(root + "/") else path


def _merged(headers: Any, more: dict[str, str]) -> list[tuple[bytes, bytes]]:
    """Adds headers. Those that the application has set itself describe a limit further inside, and stay."""
    merged = list(headers)
    names = {name.lower() for name, _ in merged}
    new = ((name.lower().encode(), value.encode()) for name, value in more.items())
    return merged + [(name, value) for name, value in new if name not in names]


async def _refuse(refusal: _http.Refusal, headers: dict[str, str], scope: Scope, send: Send) -> None:
    body = json.dumps(refusal.body(), separators=(",", ":")).encode() + b"\n"
    every = refusal.headers() | {"Content-Length": str(len(body))} | headers
    await send({"type": "http.response.start", "status": refusal.status, "headers": _merged((), every)})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
