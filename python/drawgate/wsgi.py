"""Middleware for Flask and other WSGI applications.

    from drawgate import Limiter
    from drawgate.wsgi import RateLimitMiddleware

    app.wsgi_app = RateLimitMiddleware(app.wsgi_app, Limiter(timeout=1))

Limits of views are in `drawgate.flask`, and those of Django in `drawgate.django`. The manual is
docs/python.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from typing import Any, TypeAlias

from . import _http
from ._sync import Limiter
from ._web import ClientLimits

__all__ = ["RateLimitMiddleware"]

Environ: TypeAlias = dict[str, Any]
StartResponse: TypeAlias = Callable[..., Any]
App: TypeAlias = Callable[[Any, Any], Iterable[bytes]]


class RateLimitMiddleware:
    """Takes one request of each client's limit, and of the whole API's, before the application runs.

    It does what `asgi.RateLimitMiddleware` does, and what the application answers is passed on as
    it is. A request that waits occupies its thread, also when its client has left.

    Args:
        app: the application.
        limiter: closed by whoever made it, or when the program ends.
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
        limiter: Limiter,
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
        self._app, self._limiter = app, limiter
        self._limits = ClientLimits(
            limiter._inner,
            ip=ip,
            api=api,
            exempt=exempt,
            max_wait=max_wait,
            queue=queue,
            trusted_proxies=trusted_proxies,
            proxy_header=proxy_header,
            enabled=enabled,
        )

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Serves a request."""
        if self._limits.exempts(_path(environ)):
            return self._app(environ, start_response)
        client = self._limits.proxies.key_of(environ)
        refusal, headers = self._limiter._loop.run(self._limits.decide(client))
        if refusal:
            start_response(
                f"{refusal.status} {HTTPStatus(refusal.status).phrase}", list((refusal.headers() | headers).items())
            )
            return [b"" if environ["REQUEST_METHOD"] == "HEAD" else refusal.content()]

        def start_with_headers(status: str, own: list[tuple[str, str]], *exc_info: Any) -> Any:
            return start_response(status, own + _http.missing(headers, (name for name, _ in own)), *exc_info)

        return self._app(environ, start_with_headers)


def _path(environ: Environ) -> str:
    """Returns the path as the application's routes have it: WSGI has its bytes, as Latin-1."""
    return str(environ.get("PATH_INFO", "")).encode("latin-1", "replace").decode("utf-8", "replace")
