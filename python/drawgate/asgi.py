"""Middleware for FastAPI, Starlette and other ASGI applications.

    from drawgate import AsyncLimiter
    from drawgate.asgi import RateLimitMiddleware

    app.add_middleware(RateLimitMiddleware, limiter=AsyncLimiter(timeout=1))

The manual is docs/python.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, TypeAlias, TypeVar

import anyio

from . import _http
from ._async import AsyncLimiter
from ._web import ClientLimits

__all__ = ["RateLimitMiddleware"]

T = TypeVar("T")
Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


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
        self._app = app
        self._limits = ClientLimits(
            limiter,
            ip=ip,
            api=api,
            exempt=exempt,
            max_wait=max_wait,
            queue=queue,
            trusted_proxies=trusted_proxies,
            proxy_header=proxy_header,
            enabled=enabled,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves a request."""
        if scope["type"] != "http" or self._limits.exempts(_path(scope)):
            await self._app(scope, receive, send)
            return
        peer = scope.get("client")
        client = self._limits.proxies.key(peer[0] if peer else "", scope["headers"])
        listener = Listener(receive)
        try:
            refusal, headers = await self._limits.decide(client, listener.during)
        except ClientLeft:
            return
        if refusal:
            await _refuse(refusal, headers, scope, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = _merged(message.get("headers", ()), headers)
            await send(message)

        await self._app(scope, listener.replay if listener.used else receive, send_with_headers)


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

    @property
    def used(self) -> bool:
        """Whether it may have read something."""
        return self._task is not None

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


def _merged(headers: Any, more: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Adds headers. Those that the application has set itself stay."""
    own = list(headers)
    new = _http.missing(more, (name.decode("latin-1") for name, _ in own))
    return own + [(name.lower().encode(), value.encode()) for name, value in new]


async def _refuse(refusal: _http.Refusal, headers: dict[str, str], scope: Scope, send: Send) -> None:
    every = _merged((), refusal.headers() | headers)
    await send({"type": "http.response.start", "status": refusal.status, "headers": every})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else refusal.content()})
