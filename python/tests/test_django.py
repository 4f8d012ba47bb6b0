"""The middleware and the decorators of Django, with WSGI and ASGI, and a real server."""

from __future__ import annotations

import asyncio
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import django
import httpx
import pytest
from conftest import Server
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.http import HttpResponse, StreamingHttpResponse
from django.test import Client, override_settings
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View

from drawgate import Error, Problem
from drawgate.testing import FakeServer

settings.configure(
    ALLOWED_HOSTS=["*"], SECRET_KEY="of a test", MIDDLEWARE=["drawgate.django.RateLimitMiddleware"], USE_TZ=True
)
django.setup()

import drawgate.django  # noqa: E402 - it needs the settings only later, but as in a project
from drawgate.django import client, limiter, route, take  # noqa: E402

# Each test has policies of its own, as its limits are small.
LIMITS = """
policies:
  ip: {limits: [{name: rate, bucket: 1h, amount: 10, burst: 5}]}
  api: {limits: [{name: rate, bucket: 1h, amount: 100, burst: 3}]}
  large: {limits: [{name: rate, rolling: 1h, amount: 1000}]}
  user: {limits: [{name: rpm, rolling: 1h, amount: 2}, {name: tpm, unit: tokens, rolling: 1h, amount: 1000}]}
  soon: {limits: [{name: rate, rolling: 1s, amount: 1}]}
  slots: {limits: [{name: at-once, concurrency: 1}]}
"""


@pytest.fixture
def limits(tmp_path: Path) -> Iterator[Server]:
    s = Server(tmp_path, LIMITS)
    yield s
    s.kill()


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has decorators of its own."""
    monkeypatch.setattr(drawgate.django, "_taken", [])


class Site:
    """A project with these views and settings, while the block of a `with` runs."""

    def __init__(self, views: dict[str, Callable[..., Any]], **options: Any) -> None:
        module = types.ModuleType("site_urls")
        module.urlpatterns = [path(where, view) for where, view in views.items()]  # type: ignore[attr-defined]
        sys.modules["site_urls"] = module
        django.urls.clear_url_caches()
        self._override = override_settings(ROOT_URLCONF="site_urls", DRAWGATE=options)

    def __enter__(self) -> Any:
        self._override.enable()
        return Client(raise_request_exception=False)

    def __exit__(self, *_: object) -> None:
        limiter().close()
        self._override.disable()


def hello(request: Any) -> HttpResponse:
    return HttpResponse("hello")


async def hello_async(request: Any) -> HttpResponse:
    return HttpResponse("hello")


def over_asgi(method: str, target: str, peer: str = "192.0.2.1", **options: Any) -> httpx.Response:
    async def main() -> httpx.Response:
        transport = httpx.ASGITransport(ASGIHandler(), client=(peer, 1234))
        async with httpx.AsyncClient(transport=transport, base_url="http://site") as c:
            return await c.request(method, target, **options)

    return asyncio.run(main())


def over_wsgi(method: str, target: str, peer: str = "192.0.2.1", **options: Any) -> Any:
    return Client(raise_request_exception=False).generic(method, target, REMOTE_ADDR=peer, **options)


@pytest.mark.parametrize("ask", [over_wsgi, over_asgi])
@pytest.mark.parametrize("view", [hello, hello_async])
def test_the_callers_limit_and_the_apis(ask: Any, view: Any, limits: Server) -> None:
    """req: B4 B7."""
    with Site({"": view, "health/deep": view}, server=limits.url, timeout=60):
        answer = ask("GET", "/health/deep")
        assert (answer.content, "X-RateLimit-Limit" in answer.headers) == (b"hello", False)
        for left in "432":
            answer = ask("GET", "/")
            assert answer.content == b"hello"
            assert answer.headers["X-RateLimit-Limit"] == "10"
            assert answer.headers["X-RateLimit-Remaining"] == left
        refused = ask("GET", "/")
        problem = refused.json()
        assert (refused.status_code, problem["code"], problem["scope"]) == (429, "limited", "api")
        assert refused.headers["Content-Type"] == "application/problem+json"
        assert refused.headers["X-RateLimit-Remaining"] == "2"  # of the caller's own, which was not spent
        assert int(refused.headers["Retry-After"]) == problem["retry_after"] >= 1
        head = ask("HEAD", "/", peer="192.0.2.2")
        assert (head.status_code, head.content) == (429, b"")
    assert limits.used("ip", "192.0.2.1") == {"rate": 3}


def asks(request: Any) -> HttpResponse:
    with drawgate.django.limiter().reserve("llm", max_wait=0):
        return HttpResponse("asked")


@pytest.mark.parametrize("ask", [over_wsgi, over_asgi])
def test_nobody_decides(ask: Any, server: Server, own_server: Server) -> None:
    """req: B11."""
    own_server.kill()
    away = {"server": own_server.url, "timeout": 0.2}
    with Site({"": hello}, **away):
        answer = ask("GET", "/")
        assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
        assert answer.headers["Retry-After"] == "1"
    with Site({"": hello, "ask": asks}, **away, enabled=False):
        assert ask("GET", "/").status_code == 200
        assert ask("GET", "/ask").status_code == 503  # the view's error is answered all the same
    with Site({"": hello}, **away, fallback="open"):
        answer = ask("GET", "/")
        assert (answer.status_code, answer.headers["X-RateLimit-Fallback"]) == (200, "true")
    with Site({"": hello}, server=server.url, timeout=60):  # which has no policy ip
        answer = ask("GET", "/")
        assert (answer.status_code, answer.json()["code"]) == (500, "invalid")
        with pytest.raises(Problem, match=r'unknown policy "ip".*\(named by RateLimitMiddleware \(ip=\)\)'):
            drawgate.django.check()


@pytest.mark.parametrize("ask", [over_wsgi, over_asgi])
def test_the_share_refuses(ask: Any) -> None:
    """The process knows which limit refuses, and until when: a refusal as any other, with the mark of the fallback."""
    fake = FakeServer(ip={"requests": 10}, user={"requests": 4})
    taken = take("user", key="ada")(hello)

    def held(request: Any) -> HttpResponse:
        with limiter().reserve("user", "ada", max_wait=0):
            return HttpResponse("never")

    share = {"transport": fake.transport, "timeout": 1, "fallback": "share", "instances": 2, "api": ""}
    with Site({"": hello}, **share):
        limiter().check("ip")
        fake.unavailable = True
        answers = [(ask("GET", "/"), "10")]
    fake.unavailable = False
    with Site({"taken": taken, "held": held}, **share, enabled=False):
        limiter().check("user")
        fake.unavailable = True
        answers += [(ask("GET", where), "4") for where in ("/taken", "/held")]
    for answer, amount in answers:
        assert (answer.status_code, answer.json()["code"]) == (429, "limited")
        assert 1 < int(answer.headers["Retry-After"]) <= 60
        assert answer.headers["X-RateLimit-Fallback"] == "true"
        assert answer.headers["X-RateLimit-Limit"] == amount
        assert answer.headers["X-RateLimit-Remaining"] == "0"


def test_the_address_of_a_client() -> None:
    """req: B4."""
    fake = FakeServer(ip={"requests": 100})
    with Site({"": hello}, transport=fake.transport, api="", trusted_proxies=["192.0.2.0/24"]):
        over_wsgi("GET", "/", HTTP_X_FORWARDED_FOR="6.6.6.6,198.51.100.7")
        over_asgi("GET", "/", headers=[("x-forwarded-for", "6.6.6.6"), ("x-forwarded-for", "198.51.100.8")])
        # A name with an underscore is another one, whatever Django makes of it.
        over_asgi("GET", "/", headers=[("x-forwarded-for", "198.51.100.8"), ("x_forwarded_for", "6.6.6.6")])
        over_asgi("GET", "/", peer="203.0.113.5", headers={"x-forwarded-for": "6.6.6.6"})
        assert [take["buckets"][0]["key"] for take in fake.takes] == [
            "198.51.100.7",
            "198.51.100.8",
            "198.51.100.8",
            "203.0.113.5",
        ]


def test_limits_of_users_and_routes(limits: Server) -> None:
    """req: B4 B7."""

    def user(request: Any) -> str | None:
        found: str | None = request.headers.get("X-User")
        return found

    async def user_async(request: Any) -> str | None:
        return user(request)

    @take("user", key=user, costs={"tokens": lambda request: len(request.body)})
    def ask(request: Any) -> HttpResponse:
        return HttpResponse("asked")

    @take("user", key=user_async)
    async def ask_async(request: Any) -> HttpResponse:
        return HttpResponse("asked")

    @take("ip", key=route)
    def item(request: Any, n: int) -> HttpResponse:
        return HttpResponse(str(n), headers={"X-RateLimit-Limit": "77"})

    @take("ip", key=client)
    async def mine(request: Any) -> HttpResponse:
        return HttpResponse("mine")

    @method_decorator(take("user", costs={"requests": 2}), name="dispatch")
    class Shared(View):  # type: ignore[misc]
        def get(self, request: Any) -> HttpResponse:
            return HttpResponse("shared")

    @take("soon", max_wait=60)
    def soon(request: Any) -> HttpResponse:
        return HttpResponse("soon")

    views: dict[str, Any] = {"ask": ask, "ask-async": ask_async, "items/<int:n>": item, "mine": mine, "soon": soon}
    with Site({**views, "shared": Shared.as_view()}, server=limits.url, timeout=60, ip="large", api="") as c:
        drawgate.django.check()

        def post(size: int, **headers: str) -> Any:
            return c.post("/ask", b"x" * size, content_type="text/plain", headers=headers)

        answer = post(400, **{"X-User": "ada"})
        assert answer.content == b"asked"
        assert answer.headers["X-RateLimit-Limit"] in ("2", "1000")
        refused = post(700, **{"X-User": "ada"})
        assert (refused.status_code, refused.headers["Content-Type"]) == (429, "application/problem+json")
        assert refused.json()["detail"].startswith("Your limit has been reached. Try again in")
        assert refused.headers["X-RateLimit-Remaining"] == "600"
        assert post(1001, **{"X-User": "ada"}).status_code == 413
        anonymous = post(2000)  # who has no user, has no limit
        assert anonymous.status_code == 200
        assert c.get("/ask-async", headers={"X-User": "ada"}).status_code == 200
        assert over_asgi("GET", "/ask-async", headers={"X-User": "ada"}).status_code == 429
        answer = c.get("/items/7")
        assert (answer.content, answer.headers["X-RateLimit-Limit"]) == (b"7", "77")  # the view's own
        assert c.get("/mine", REMOTE_ADDR="198.51.100.7").content == b"mine"
        assert [c.get("/shared").status_code for _ in range(2)] == [200, 429]
        assert "all callers" in c.get("/shared").json()["detail"]
        assert [c.get("/soon").status_code for _ in range(3)] == [200, 200, 200]
    assert limits.used("user", "ada") == {"rpm": 2, "tpm": 400}
    assert limits.used("ip", "items/<int:n>") == {"rate": 1}
    assert limits.used("ip", "198.51.100.7") == {"rate": 1}


@pytest.mark.parametrize("ask", [over_wsgi, over_asgi])
def test_what_a_view_holds(ask: Any, limits: Server) -> None:
    """Errors of a limiter in a view are answers as well; others stay what they are."""

    def held(request: Any) -> HttpResponse:
        with limiter().reserve("slots", max_wait=0):
            with limiter().reserve("slots", max_wait=0):
                return HttpResponse("never")

    async def held_async(request: Any) -> HttpResponse:
        async with limiter().reserve("slots", max_wait=0):
            async with limiter().reserve("slots", max_wait=0):
                return HttpResponse("never")

    def wrong(request: Any) -> HttpResponse:
        raise Error("of another part")

    with Site({"held": held, "held-async": held_async, "wrong": wrong}, server=limits.url, timeout=60, api=""):
        for where in ("/held", "/held-async"):
            refused = ask("GET", where)
            assert (refused.status_code, refused.headers["Content-Type"]) == (429, "application/problem+json")
            assert refused.json()["detail"].startswith("A limit has been reached. Try again in ")
            assert refused.headers["X-RateLimit-Limit"] == "1"  # the policy that refuses, not the middleware's
            assert refused.headers["X-RateLimit-Remaining"] == "0"
            assert limits.status("slots", "default")["open"] == 0
        assert over_wsgi("GET", "/wrong").status_code == 500


def test_a_stream_is_passed_on_as_it_is() -> None:
    closed: list[bool] = []

    def stream(request: Any) -> StreamingHttpResponse:
        def pieces() -> Iterator[str]:
            try:
                yield "one"
                yield "two"
            finally:
                closed.append(True)

        return StreamingHttpResponse(pieces())

    fake = FakeServer(ip={"requests": 100}, api={"requests": 100})
    with Site({"": stream}, transport=fake.transport) as c:
        answer = c.get("/")
        assert answer.headers["X-RateLimit-Limit"] == "100"
        pieces = iter(answer.streaming_content)
        assert (next(pieces), closed) == (b"one", [])
        answer.close()
        assert closed == [True]


def test_a_mistake_in_the_settings_is_noticed_at_the_start() -> None:
    with Site({"": hello}, tmeout=1) as c, pytest.raises(TypeError, match="tmeout"):
        c.get("/")
    with Site({"": hello}, trusted_proxies="10.0.0.0/8") as c, pytest.raises(TypeError, match="give a list"):
        c.get("/")
