"""The middleware, and the dependencies of FastAPI, with a real server."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import anyio
import httpx
import pytest
from conftest import Proxy, Server
from fastapi import Body, Depends, FastAPI, Header, Request, WebSocket
from fastapi.responses import StreamingResponse

from drawgate import AsyncLimiter, AsyncReservation, Breaker, _reservation
from drawgate._http import Exempt, Proxies
from drawgate.asgi import Listener, Message, RateLimitMiddleware, Scope
from drawgate.fastapi import client as address
from drawgate.fastapi import reserve, route, take
from drawgate.testing import FakeServer

# Each test has policies of its own, as its limits are small.
LIMITS = """
policies:
  ip: {limits: [{name: rate, bucket: 1h, amount: 10, burst: 5}]}
  api: {limits: [{name: rate, bucket: 1h, amount: 100, burst: 3}]}
  large: {limits: [{name: rate, rolling: 1h, amount: 1000}]}
  user: {limits: [{name: rpm, rolling: 1h, amount: 2}, {name: tpm, unit: tokens, rolling: 1h, amount: 1000}]}
  soon: {limits: [{name: rate, rolling: 1s, amount: 1}]}
  slots: {limits: [{name: at-once, concurrency: 1}]}
  pair: {limits: [{name: rate, rolling: 2h, amount: 2, charge: end}]}
"""


@pytest.fixture
def limits(tmp_path: Path) -> Iterator[Server]:
    s = Server(tmp_path, LIMITS)
    yield s
    s.kill()


@asynccontextmanager
async def client(app: Any, peer: str = "192.0.2.1") -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app, client=(peer, 1234), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://site") as c:
        yield c


def site() -> FastAPI:
    app = FastAPI()

    @app.get("/")
    @app.get("/health/deep")
    @app.get("/healthz")
    async def hello() -> str:
        return "hello"

    return app


def test_the_callers_limit_and_the_apis(limits: Server) -> None:
    """req: B4 B7."""

    async def main() -> None:
        async with AsyncLimiter(limits.url, timeout=60) as limiter:
            app = RateLimitMiddleware(site(), limiter)
            async with client(app) as c, client(app, "192.0.2.2") as other:
                for path in ("/health", "/health/deep", "/healthz"):
                    assert "X-RateLimit-Limit" not in (await c.get(path)).headers, path
                before = time.time()
                for left in (4, 3, 2):
                    answer = await c.get("/")
                    assert answer.json() == "hello"
                    assert answer.headers["X-RateLimit-Limit"] == "10"
                    assert answer.headers["X-RateLimit-Remaining"] == str(left)
                    assert int(answer.headers["X-RateLimit-Reset"]) > before
                    assert "Retry-After" not in answer.headers
                refused = await c.get("/")  # all callers together may make 3 in a burst
                problem = refused.json()
                assert (refused.status_code, problem["code"], problem["scope"]) == (429, "limited", "api")
                assert "all callers of this API share" in problem["detail"]
                assert problem["violated-policies"] == ["api"]
                assert refused.headers["Content-Type"] == "application/problem+json"
                assert refused.headers["X-RateLimit-Remaining"] == "2"  # of the caller's own, which was not spent
                assert int(refused.headers["Retry-After"]) == problem["retry_after"] >= 1
                assert (await other.get("/")).json()["scope"] == "api"
                assert (await c.head("/")).text == ""
            assert limits.used("ip", "192.0.2.1") == {"rate": 3}

            app = RateLimitMiddleware(site(), limiter, api="large")
            async with client(app) as c, client(app, "192.0.2.2") as other:
                assert [(await c.get("/")).status_code for _ in range(3)] == [200, 200, 429]
                refused = await c.get("/")
                assert refused.json()["scope"] == "caller"
                assert refused.json()["detail"].startswith("Your limit has been reached. Try again in ")
                assert refused.headers["X-RateLimit-Remaining"] == "0"
                assert (await other.get("/")).status_code == 200
        assert limits.used("large", "global") == {"rate": 3}  # what the caller's own limit refused costs nothing here

    asyncio.run(main())


def test_a_request_waits(limits: Server) -> None:
    """It passes, it waits and passes, or it is refused. req: B7."""

    async def main() -> None:
        async with AsyncLimiter(limits.url, timeout=60) as limiter:
            app = RateLimitMiddleware(site(), limiter, ip="soon", api="", max_wait=60, queue=1)
            async with client(app) as c, client(app, "192.0.2.2") as other:
                first = await c.get("/")
                assert first.status_code == 200
                waiting = asyncio.create_task(c.get("/"))
                while app._limits.free:
                    await asyncio.sleep(0)
                crowd = [(await other.get("/")).status_code for _ in range(2)]  # nobody else may wait
                assert crowd in ([200, 429], [200, 200])  # the second one, unless a second has passed
                assert (await waiting).status_code == 200
            async with client(RateLimitMiddleware(site(), limiter, ip="user", api="", max_wait=1)) as c:
                assert [(await c.get("/")).status_code for _ in range(3)] == [200, 200, 429]

    asyncio.run(main())


def test_a_client_that_leaves_while_it_waits(limits: Server) -> None:
    """It gives up its place. The body that it has sent is still there for a request that passes."""

    async def main() -> None:
        async with AsyncLimiter(limits.url, timeout=60) as limiter:
            called = []

            async def echo(scope: Scope, receive: Any, send: Any) -> None:
                called.append(await receive())

            app = RateLimitMiddleware(echo, limiter, ip="user", api="", max_wait=3000)
            messages: asyncio.Queue[Message] = asyncio.Queue()
            scope = {"type": "http", "method": "POST", "path": "/", "headers": [], "client": ("192.0.2.9", 1)}

            async def nothing(_: Message) -> None:
                raise AssertionError("there is nobody to answer")

            body = {"type": "http.request", "body": b"hello", "more_body": False}
            for _ in range(2):
                messages.put_nowait(body)
                await app(scope, messages.get, nothing)
            assert called == [body, body]
            assert messages.empty()
            messages.put_nowait(body)
            last = asyncio.create_task(app(scope, messages.get, nothing))
            while app._limits.free == 1000:
                await asyncio.sleep(0)
            messages.put_nowait({"type": "http.disconnect"})
            await last
            assert len(called) == 2
            assert app._limits.free == 1000
        assert limits.used("user", "192.0.2.9") == {"rpm": 2, "tpm": 0}

    asyncio.run(main())


@pytest.mark.parametrize("after_body", [True, False])
def test_an_error_of_the_connection_while_it_waits(after_body: bool) -> None:
    """It is not taken for a client that has left."""
    fake = FakeServer(slots={"requests": 1})

    async def main() -> None:
        async with AsyncLimiter(transport=fake.transport) as limiter, limiter.reserve("slots", "192.0.2.9"):
            called: list[object] = []

            async def inner(*_: object) -> None:
                called.append(True)

            async def receive() -> Message:
                if after_body and not called:
                    called.append(False)
                    return {"type": "http.request", "body": b"", "more_body": False}
                raise ConnectionResetError("the connection broke")

            async def send(_: Message) -> None:
                raise AssertionError

            app = RateLimitMiddleware(inner, limiter, ip="slots", api="", max_wait=3000)
            scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "client": ("192.0.2.9", 1)}
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(app(scope, receive, send), 60)
            assert True not in called
            assert app._limits.free == 1000

    asyncio.run(main())
    assert fake.open == 0


def test_an_error_of_the_connection_reaches_a_request_that_passes() -> None:
    async def main() -> None:
        answers: list[Message] = [{"type": "http.request", "body": b"hello", "more_body": False}]

        async def receive() -> Message:
            if not answers:
                raise ConnectionResetError
            return answers.pop()

        async def granted_at_the_same_moment() -> str:
            with anyio.CancelScope(shield=True):
                assert listener._task
                await asyncio.wait((listener._task,))
            return "granted"

        listener = Listener(receive)
        assert await listener.during(granted_at_the_same_moment()) == "granted"
        assert (await listener.replay())["body"] == b"hello"
        with pytest.raises(ConnectionResetError):
            await listener.replay()

    asyncio.run(main())


@pytest.mark.parametrize("max_wait", [-1, float("nan"), float("inf"), 1e306])
def test_a_wrong_time_to_wait_is_noticed_at_the_start(max_wait: float) -> None:
    with pytest.raises(ValueError, match="max_wait"):
        RateLimitMiddleware(site(), AsyncLimiter(), max_wait=max_wait)


def test_the_share_refuses(caplog: pytest.LogCaptureFixture) -> None:
    """The process knows which limit refuses, and until when: a refusal as any other, with the mark of the fallback."""
    fake = FakeServer(ip={"requests": 10}, api={"requests": 100}, user={"requests": 4})

    async def main() -> None:
        async with AsyncLimiter(transport=fake.transport, timeout=1, fallback="share", instances=2) as limiter:
            app = site()
            app.get("/mine", dependencies=[Depends(take(limiter, "user", key="ada"))])(lambda: None)
            app.get("/many", dependencies=[Depends(take(limiter, "user", costs={"requests": 3}))])(lambda: None)
            await limiter.check("ip")
            fake.unavailable = True
            async with client(RateLimitMiddleware(app, limiter)) as c, client(app) as views:
                answer = await c.get("/")
                assert (answer.status_code, answer.json()["code"]) == (429, "limited")
                assert (answer.json()["scope"], answer.json()["violated-policies"]) == ("caller", ["ip", "api"])
                mine = await views.get("/mine")
                assert mine.status_code == 429
                for refused, amount in ((answer, "10"), (mine, "4")):
                    assert 1 < int(refused.headers["Retry-After"]) <= 60
                    assert refused.headers["X-RateLimit-Fallback"] == "true"
                    assert refused.headers["X-RateLimit-Limit"] == amount
                    assert refused.headers["X-RateLimit-Remaining"] == "0"
                many = await views.get("/many")  # more than a share of two ever admits
                assert (many.status_code, many.headers["Retry-After"]) == (503, "1")

    asyncio.run(main())


def test_nobody_decides(server: Server, limits: Server) -> None:
    """req: B11."""
    limits.kill()

    async def main() -> None:
        async with AsyncLimiter(limits.url, timeout=0.2) as closed:
            async with client(RateLimitMiddleware(site(), closed)) as c:
                answer = await c.get("/")
                assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
                assert answer.headers["Retry-After"] == "1"
                assert (await c.get("/health/deep")).status_code == 200
            async with client(RateLimitMiddleware(site(), closed, enabled=False)) as c:
                assert (await c.get("/")).status_code == 200
        async with AsyncLimiter(limits.url, timeout=0.2, fallback="open") as opened:
            async with client(RateLimitMiddleware(site(), opened)) as c:
                answer = await c.get("/")
                assert answer.status_code == 200
                assert answer.headers["X-RateLimit-Fallback"] == "true"
                assert "X-RateLimit-Limit" not in answer.headers
        async with AsyncLimiter(limits.url, timeout=0.2, fallback="share", instances=1) as share:
            async with client(RateLimitMiddleware(site(), share)) as c:
                answer = await c.get("/")  # it has never asked for the policies
                assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
        async with AsyncLimiter(server.url, timeout=60) as other:  # which has no policy ip
            async with client(RateLimitMiddleware(site(), other)) as c:
                answer = await c.get("/")
                assert (answer.status_code, answer.json()["code"]) == (500, "invalid")

    asyncio.run(main())


def test_streams_and_websockets_pass_untouched(limits: Server) -> None:
    """req: B4."""

    async def main() -> None:
        async with AsyncLimiter(limits.url, timeout=60) as limiter:
            seen: list[Message] = []
            asked, more = asyncio.Event(), asyncio.Event()
            inner = FastAPI()

            @inner.get("/stream")
            async def stream() -> StreamingResponse:
                async def pieces() -> AsyncIterator[str]:
                    yield "one "
                    asked.set()
                    await more.wait()
                    yield "two"

                return StreamingResponse(pieces(), headers={"X-RateLimit-Limit": "77"})

            @inner.websocket("/ws")
            async def echo(ws: WebSocket) -> None:
                await ws.accept()
                await ws.send_text(await ws.receive_text())
                await ws.close()

            app = RateLimitMiddleware(inner, limiter)

            async def send(message: Message) -> None:
                seen.append(message)

            async def never() -> Message:
                await asyncio.Event().wait()
                return {}

            scope = {
                "type": "http",
                "method": "GET",
                "path": "/stream",
                "headers": [],
                "query_string": b"",
                "client": ("192.0.2.1", 1),
                "asgi": {"version": "3.0", "spec_version": "2.4"},
            }
            task = asyncio.create_task(app(scope, never, send))
            await asked.wait()
            assert [m["body"] for m in seen[1:]] == [b"one "]  # it was sent before there was more
            more.set()
            await task
            assert b"".join(m["body"] for m in seen[1:]) == b"one two"
            headers = dict(seen[0]["headers"])
            assert headers[b"x-ratelimit-limit"] == b"77"  # the application's own
            assert headers[b"x-ratelimit-remaining"] == b"4"

            seen.clear()
            said: asyncio.Queue[Message] = asyncio.Queue()
            said.put_nowait({"type": "websocket.connect"})
            said.put_nowait({"type": "websocket.receive", "text": "hello"})
            await app({**scope, "type": "websocket", "path": "/ws"}, said.get, send)
            assert [m["type"] for m in seen] == ["websocket.accept", "websocket.send", "websocket.close"]
        assert limits.used("ip", "192.0.2.1") == {"rate": 1}

    asyncio.run(main())


@pytest.mark.parametrize(
    ("trusted", "peer", "forwarded", "want"),
    [
        ([], "192.0.2.1", "198.51.100.7", "192.0.2.1"),
        (["192.0.2.0/24"], "192.0.2.1", "198.51.100.7", "198.51.100.7"),
        (["192.0.2.0/24"], "203.0.113.5", "198.51.100.7", "203.0.113.5"),
        (["192.0.2.0/24"], "192.0.2.1", "6.6.6.6, 198.51.100.7, 192.0.2.9", "198.51.100.7"),
        (["192.0.2.0/24"], "192.0.2.1", "6.6.6.6, unknown, 192.0.2.9", "192.0.2.9"),
        (["192.0.2.0/24"], "192.0.2.1", "192.0.2.3", "192.0.2.3"),
        (["192.0.2.0/24"], "192.0.2.1", "", "192.0.2.1"),
        (["192.0.2.0/24"], "192.0.2.1", " , 198.51.100.7:443, ", "198.51.100.7"),
        (["192.0.2.0/24"], "::ffff:192.0.2.1", "[2001:db8:1:2::3]:443", "2001:db8:1:2::/64"),
        (["unix"], "", "198.51.100.7", "198.51.100.7"),
        ([], "", "198.51.100.7", ""),
        ([], "2001:db8:1:2::3", "", "2001:db8:1:2::/64"),
        ([], "fe80::1%eth0", "", "fe80::/64"),
        ([], "testclient", "", ""),
        (["192.0.2.0/24"], "192.0.2.1", ",".join(["6.6.6.6"] + ["192.0.2.2"] * 70), "192.0.2.2"),
    ],
)
def test_the_address_of_a_client(trusted: list[str], peer: str, forwarded: str, want: str) -> None:
    """Nobody can invent an address: req: B4."""
    headers = [(b"X-Forwarded-For", forwarded.encode())]
    assert Proxies(trusted, "X-Forwarded-For").key(peer, headers) == want


def test_several_lines_and_other_headers() -> None:
    proxies = Proxies(["192.0.2.0/24"], "X-Forwarded-For")
    lines = [(b"x-forwarded-for", b"6.6.6.6"), (b"x-forwarded-for", b"198.51.100.7")]
    assert proxies.key("192.0.2.1", lines) == "198.51.100.7"
    real = Proxies(["192.0.2.0/24"], "X-Real-IP")
    assert real.key("192.0.2.1", [*lines, (b"x-real-ip", b"198.51.100.8")]) == "198.51.100.8"
    for wrong in ("10.0.0.1/8", "proxy"):
        with pytest.raises(ValueError, match="not a network"):
            Proxies([wrong], "X-Forwarded-For")
    with pytest.raises(TypeError):
        Proxies("10.0.0.0/8", "X-Forwarded-For")


def test_exempt_paths() -> None:
    """req: B4."""
    usual = Exempt(["/health*"])
    for path in ("/health", "/health/", "/health/live", "/healthz"):
        assert path in usual, path
    for path in ("/", "/heal", "/api/health", "/health/../login", "/health//x", "/health/./x", "//health", "/Health"):
        assert path not in usual, path
    below = Exempt(["/health/*", "/ping"])
    assert "/health/live" in below
    assert "/ping" in below
    assert "/health" not in below
    assert "/pings" not in below
    for wrong in ("health", "/a*b"):
        with pytest.raises(ValueError, match="is not a path"):
            Exempt([wrong])


def test_a_mounted_application(limits: Server) -> None:
    async def main() -> None:
        async with AsyncLimiter(limits.url, timeout=60) as limiter:
            inner = site()
            inner.add_middleware(RateLimitMiddleware, limiter=limiter)
            outer = FastAPI()
            outer.mount("/v1", inner)
            async with client(outer) as c:
                assert "X-RateLimit-Limit" in (await c.get("/v1/")).headers
                assert "X-RateLimit-Limit" not in (await c.get("/v1/healthz")).headers

    asyncio.run(main())


def user_name(x_user: Annotated[str | None, Header()] = None) -> str | None:
    return x_user


def test_limits_of_users_and_routes(limits: Server) -> None:
    """req: B4 B7."""

    async def main() -> None:
        async with AsyncLimiter(limits.url, timeout=60) as limiter:
            app = FastAPI()

            def size(text: str) -> int:
                return len(text)

            per_user = take(limiter, "user", key=user_name, costs={"tokens": size})

            @app.post("/ask", dependencies=[Depends(per_user)])
            async def ask() -> str:
                return "asked"

            @app.get("/items/{n}", dependencies=[Depends(take(limiter, "ip", key=route))])
            async def item(n: int) -> int:
                return n

            @app.get("/shared", dependencies=[Depends(take(limiter, "user", costs={"requests": 2}))])
            async def shared() -> None: ...

            @app.get("/soon", dependencies=[Depends(take(limiter, "soon", max_wait=60))])
            async def soon() -> None: ...

            async with client(app) as c:
                ada = {"X-User": "ada"}
                answer = await c.post("/ask", headers=ada, params={"text": "x" * 400})
                assert answer.json() == "asked"
                assert answer.headers["X-RateLimit-Limit"] in ("2", "1000")
                refused = await c.post("/ask", headers=ada, params={"text": "x" * 700})
                assert refused.status_code == 429
                assert refused.json()["detail"].startswith("Your limit has been reached. Try again in")
                assert int(refused.headers["Retry-After"]) >= 1
                assert refused.headers["X-RateLimit-Limit"] == "1000"
                assert refused.headers["X-RateLimit-Remaining"] == "600"
                too_large = await c.post("/ask", headers=ada, params={"text": "x" * 1001})
                assert too_large.status_code == 413
                assert "Retry-After" not in too_large.headers
                assert (await c.post("/ask", headers={"X-User": "bob"}, params={"text": "x"})).status_code == 200
                anonymous = await c.post("/ask", params={"text": "x" * 2000})  # who has no user, has no limit
                assert anonymous.status_code == 200
                assert "X-RateLimit-Limit" not in anonymous.headers
                assert (await c.get("/items/7")).json() == 7
                assert [(await c.get("/shared")).status_code for _ in range(2)] == [200, 429]
                assert "all callers" in (await c.get("/shared")).json()["detail"]
                assert [(await c.get("/soon")).status_code for _ in range(3)] == [200, 200, 200]
            assert limits.used("user", "ada") == {"rpm": 1, "tpm": 400}
            assert limits.used("ip", "/items/{n}") == {"rate": 1}

    asyncio.run(main())


def test_a_limit_of_each_client() -> None:
    fake = FakeServer(search={"requests": 9})

    async def main() -> None:
        async with AsyncLimiter(transport=fake.transport) as limiter:
            app = FastAPI()
            key = address(["192.0.2.0/24"])
            app.get("/", dependencies=[Depends(take(limiter, "search", key=key))])(lambda: None)
            for peer in ("192.0.2.1", "203.0.113.5", ""):
                async with client(app, peer) as c:
                    assert (await c.get("/", headers={"X-Forwarded-For": "198.51.100.7"})).status_code == 200

    asyncio.run(main())
    assert [take.get("key") for take in fake.takes] == ["198.51.100.7", "203.0.113.5", None]


def test_what_a_route_holds(limits: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slot is held until the response was sent; the route says what it used. req: B7."""
    monkeypatch.setattr(_reservation, "RENEW_AFTER", 1e-3)

    async def main() -> None:
        async with AsyncLimiter(limits.url, timeout=60) as limiter:
            app = FastAPI()
            running, end, renewed = asyncio.Event(), asyncio.Event(), asyncio.Event()
            renew = _reservation.ReservationBase._renew

            async def counted(self: _reservation.ReservationBase) -> float | None:
                pause = await renew(self)
                renewed.set()
                return pause

            monkeypatch.setattr(_reservation.ReservationBase, "_renew", counted)
            held = reserve(limiter, "slots", key=user_name, hold=30)
            model = reserve(limiter, "user", costs={"tokens": 500}, breaker=Breaker("the model", failures=1))

            @app.get("/stream", dependencies=[Depends(held)])
            async def stream() -> StreamingResponse:
                async def pieces() -> AsyncIterator[str]:
                    running.set()
                    await end.wait()
                    yield "done"

                return StreamingResponse(pieces())

            @app.get("/work")
            async def work(r: Annotated[AsyncReservation, Depends(held)]) -> None:
                running.set()
                await end.wait()

            @app.get("/ask")
            async def ask(fail: bool, r: Annotated[AsyncReservation, Depends(model)]) -> None:
                r.used(tokens=100)
                if fail:
                    raise RuntimeError

            def opened() -> int:
                return int(limits.status("slots", "ada")["open"])

            async with client(app) as c:
                ada = {"X-User": "ada"}
                for path in ("/stream", "/work"):
                    running.clear()
                    end.clear()
                    task = asyncio.create_task(c.get(path, headers=ada))
                    await running.wait()
                    assert opened() == 1
                    renewed.clear()
                    await renewed.wait()
                    refused = await c.get("/work", headers=ada)
                    assert refused.status_code == 429
                    assert 1 <= int(refused.headers["Retry-After"]) <= 30  # then the hold ends
                    end.set()
                    assert (await task).status_code == 200
                    assert opened() == 0

                running.clear()
                end.clear()
                task = asyncio.create_task(c.get("/work", headers=ada))  # the client leaves
                await running.wait()
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                assert opened() == 0

                running.clear()
                task = asyncio.create_task(c.get("/work", headers=ada))
                await running.wait()
                limits.post("/v1/reset", {"policy": "slots", "key": "ada"})
                answer = await task
                assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")

                assert (await c.get("/ask", params={"fail": False})).status_code == 200
                assert (await c.get("/ask", params={"fail": True})).status_code == 500
                assert limits.used("user", "default") == {"rpm": 2, "tpm": 200}
                circuit = await c.get("/ask", params={"fail": False})
                assert (circuit.status_code, circuit.headers["Retry-After"]) == (503, "60")

    asyncio.run(main())


def test_a_dependency_without_the_server(proxy: Proxy, limits: Server, caplog: pytest.LogCaptureFixture) -> None:
    """req: B11."""
    limits.kill()

    async def main() -> None:
        async with AsyncLimiter(limits.url, timeout=0.2) as limiter:
            app = FastAPI()
            app.get("/", dependencies=[Depends(take(limiter, "user"))])(lambda: None)
            async with client(app) as c:
                answer = await c.get("/")
                assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
                assert "cannot check" in answer.json()["detail"]
                assert (await c.get("/")).status_code == 503
                assert sum("with 503, because nobody decides: http" in m for m in caplog.messages) == 1  # of the outage

    asyncio.run(main())


def test_a_dependency_that_is_wrong(limits: Server, caplog: pytest.LogCaptureFixture) -> None:
    """The answer does not say why. The log does."""

    async def main() -> None:
        async with AsyncLimiter(limits.url, timeout=60) as limiter:
            app = FastAPI()
            app.get("/take", dependencies=[Depends(take(limiter, "users"))])(lambda: None)
            app.get("/reserve", dependencies=[Depends(reserve(limiter, "user", costs={"token": 5}))])(lambda: None)
            app.get("/large", dependencies=[Depends(take(limiter, "user", costs={"tokens": 1001}))])(lambda: None)
            async with client(app) as c:
                for path, status, why in (
                    ("/take", 500, 'unknown policy "users"'),
                    ("/reserve", 500, 'unknown unit: "token"'),
                    ("/large", 413, ""),
                ):
                    caplog.clear()
                    answer = await c.get(path)
                    told = [r.getMessage() for r in caplog.records if r.name == "drawgate"]
                    want = (
                        [f"requests are answered with {status}, because limits cannot be checked: {why}"] if why else []
                    )
                    assert (answer.status_code, len(told)) == (status, len(want))
                    assert all(line.startswith(w) for line, w in zip(told, want, strict=True))

    asyncio.run(main())


def test_headers_of_several_dependencies(limits: Server) -> None:
    """They describe the tightest limit, whatever the order."""

    async def main() -> None:
        async with AsyncLimiter(limits.url, timeout=60) as limiter:
            app = FastAPI()
            tight, wide = take(limiter, "user", key=user_name), take(limiter, "large", key=user_name)
            for path, both in {"/tight-last": (wide, tight), "/tight-first": (tight, wide)}.items():
                app.get(path, dependencies=[Depends(d) for d in both])(lambda: None)
            async with client(app) as c:
                for path in ("/tight-last", "/tight-first"):
                    answer = await c.get(path, headers={"X-User": path})
                    assert answer.headers["X-RateLimit-Limit"] == "2", path
                    assert answer.headers["X-RateLimit-Remaining"] == "1", path

    asyncio.run(main())


@pytest.mark.parametrize("kind", [take, reserve])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_client_that_leaves_while_a_dependency_waits(kind: Any, method: str, limits: Server) -> None:
    """It gives up its place. What was read of its body is still there for a route that passes."""

    def waiting() -> int:
        return int(httpx.get(limits.admin + "/readyz", timeout=60, verify=False).json()["waiting"])

    async def until(n: int) -> None:
        while waiting() != n:
            await asyncio.sleep(0.001)

    async def main() -> None:
        async with AsyncLimiter(limits.url, timeout=60) as limiter:
            app, bodies, sent = FastAPI(), [], list[Message]()

            @app.post("/", dependencies=[Depends(kind(limiter, "pair", max_wait=3000))])
            async def post(body: Annotated[dict[str, int], Body()]) -> None:
                bodies.append(body)

            @app.get("/", dependencies=[Depends(kind(limiter, "pair", max_wait=3000))])
            async def get(request: Request) -> None:
                bodies.append(await request.json())

            async def send(message: Message) -> None:
                sent.append(message)

            scope = {
                "type": "http",
                "method": method,
                "path": "/",
                "headers": [(b"content-type", b"application/json")],
                "query_string": b"",
                "client": ("192.0.2.9", 1),
            }
            messages: asyncio.Queue[Message] = asyncio.Queue()
            body = {"type": "http.request", "body": b'{"n": 1}', "more_body": False}
            messages.put_nowait(body)
            await app(dict(scope), messages.get, send)
            assert (bodies, sent[0]["status"]) == ([{"n": 1}], 200)
            async with limiter.reserve("pair"):
                messages.put_nowait(body)
                task = asyncio.create_task(app(dict(scope), messages.get, send))
                await asyncio.wait_for(until(1), 60)
                messages.put_nowait({"type": "http.disconnect"})
                await asyncio.wait_for(task, 60)
                await asyncio.wait_for(until(0), 60)
            assert len(bodies) == 1
        assert limits.status("pair", "")["open"] == 0

    asyncio.run(main())


def test_mistakes_of_dependencies_are_logged(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """An outage once, and a mistake each time."""

    async def main() -> None:
        fake = FakeServer(user={"requests": 9})
        async with AsyncLimiter(transport=fake.transport, timeout=0.2) as limiter:
            app = FastAPI()
            app.get("/right", dependencies=[Depends(take(limiter, "user"))])(lambda: None)
            app.get("/wrong", dependencies=[Depends(take(limiter, "nowhere"))])(lambda: None)
            async with client(app) as c:
                assert (await c.get("/wrong")).status_code == 500
                assert "nowhere" in caplog.text
                for unavailable, status in ((True, 503), (True, 503), (False, 200), (True, 503)):
                    fake.unavailable = unavailable
                    assert (await c.get("/right")).status_code == status
                assert caplog.text.count("requests are answered with 503") == 2

    asyncio.run(main())
