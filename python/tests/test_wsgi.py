"""The middleware for WSGI, and the decorators of Flask, with a real server."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import pytest
from conftest import Server
from flask import Blueprint, Flask, Response, abort, request
from werkzeug.exceptions import HTTPException

from drawgate import Breaker, Error, Limiter
from drawgate._http import Proxies
from drawgate.flask import client, refuse, route, take
from drawgate.testing import FakeServer
from drawgate.wsgi import RateLimitMiddleware

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


class Answer:
    """What a WSGI server would send."""

    def __init__(self, app: Any, path: str = "/", method: str = "GET", **environ: Any) -> None:
        self._environ = {"REQUEST_METHOD": method, "PATH_INFO": path, "REMOTE_ADDR": "192.0.2.1", **environ}
        self._environ |= {
            "SCRIPT_NAME": "",
            "QUERY_STRING": "",
            "wsgi.input": io.BytesIO(),
            "wsgi.errors": io.StringIO(),
        }
        setup_testing_defaults(self._environ)
        pieces: Any = validator(app)(self._environ, self._start)
        with contextlib.closing(pieces):
            self.content = b"".join(pieces)

    def _start(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], object]:
        self.status, self.headers = int(status[:3]), dict(headers)
        return lambda _: None


def hello(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"hello"]


@validator
def valid(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    return hello(environ, start_response)


def test_the_callers_limit_and_the_apis(limits: Server) -> None:
    """As in ASGI: req: B4 B7."""
    with Limiter(limits.url, timeout=60) as limiter:
        app = RateLimitMiddleware(valid, limiter)
        for path in ("/health", "/health/deep", "/healthz"):
            answer = Answer(app, path)
            assert (answer.content, "X-RateLimit-Limit" in answer.headers) == (b"hello", False)
        for path, left in (("/", "4"), ("/health/../", "3"), ("/caf\xc3\xa9", "2")):
            answer = Answer(app, path)
            assert answer.content == b"hello"
            assert answer.headers["X-RateLimit-Limit"] == "10"
            assert answer.headers["X-RateLimit-Remaining"] == left
            assert int(answer.headers["X-RateLimit-Reset"]) > time.time() - 60
            assert "Retry-After" not in answer.headers
        refused = Answer(app)
        assert refused.status == 429
        assert b'"scope":"api"' in refused.content
        assert b'"violated-policies":["api"]' in refused.content
        assert refused.headers["Content-Type"] == "application/problem+json"
        assert refused.headers["Content-Length"] == str(len(refused.content))
        assert refused.headers["Cache-Control"] == "no-store"
        assert refused.headers["X-RateLimit-Remaining"] == "2"  # of the caller's own, which was not spent
        assert int(refused.headers["Retry-After"]) >= 1
        head = Answer(app, method="HEAD")
        assert (head.status, head.content) == (429, b"")
        assert Answer(app, method="OPTIONS", REMOTE_ADDR="192.0.2.2").status == 429
        assert limits.used("ip", "192.0.2.1") == {"rate": 3}
        assert Answer(RateLimitMiddleware(valid, limiter, enabled=False)).content == b"hello"


def test_a_request_waits(limits: Server) -> None:
    """req: B7."""
    with Limiter(limits.url, timeout=60) as limiter:
        app = RateLimitMiddleware(valid, limiter, ip="soon", api="", max_wait=60, queue=1)
        assert [Answer(app).status for _ in range(3)] == [200, 200, 200]
        assert app._limits.free == 1
        refused = RateLimitMiddleware(valid, limiter, ip="user", api="", max_wait=60, queue=0)  # nobody may wait
        assert [Answer(refused).status for _ in range(3)] == [200, 200, 429]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_what_waits_is_left_behind_by_a_fork(limiter: Limiter) -> None:
    """Requests that wait when a process is forked do not wait in the new one, so they leave their places there."""
    limits = RateLimitMiddleware(hello, limiter, max_wait=1, queue=2)._limits
    limits.free = 0
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):  # the server of this test is not in this process
            asyncio.run(limits.decide("192.0.2.1"))
        os._exit(limits.free)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2


def test_nobody_decides(server: Server, own_server: Server) -> None:
    """req: B11."""
    own_server.kill()
    with Limiter(own_server.url, timeout=0.2) as closed:
        answer = Answer(RateLimitMiddleware(valid, closed))
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        assert b"store_unavailable" in answer.content
        assert Answer(RateLimitMiddleware(valid, closed), "/health/deep").status == 200
    with Limiter(own_server.url, timeout=0.2, fallback="open") as opened:
        answer = Answer(RateLimitMiddleware(valid, opened))
        assert (answer.status, answer.headers["X-RateLimit-Fallback"]) == (200, "true")
        assert "X-RateLimit-Limit" not in answer.headers
    with Limiter(own_server.url, timeout=0.2, fallback="share", instances=1) as share:
        assert Answer(RateLimitMiddleware(valid, share)).status == 503  # it has never asked for the policies
    with Limiter(server.url, timeout=60) as other:  # which has no policy ip
        answer = Answer(RateLimitMiddleware(valid, other))
        assert (answer.status, b'"invalid"' in answer.content) == (500, True)


def test_the_share_refuses() -> None:
    """The process knows which limit refuses, and until when: a refusal as any other, with the mark of the fallback."""
    fake = FakeServer(ip={"requests": 10}, api={"requests": 100}, user={"requests": 4})
    with Limiter(transport=fake.transport, timeout=1, fallback="share", instances=2) as limiter:
        site = Flask("site")
        site.register_error_handler(Error, refuse)
        site.add_url_rule("/taken", "taken", take(limiter, "user", key="ada")(lambda: "never"))

        @site.get("/held")
        def held() -> str:
            with limiter.reserve("user", "ada", max_wait=0):
                return "never"

        limiter.check("ip")
        fake.unavailable = True
        answer = Answer(RateLimitMiddleware(valid, limiter))
        assert answer.status == 429
        assert b'"violated-policies":["ip","api"]' in answer.content
        views = [site.test_client().get(path) for path in ("/taken", "/held")]
        assert [v.status_code for v in views] == [429, 429]
        found: list[tuple[Any, str]] = [(answer.headers, "10"), *((v.headers, "4") for v in views)]
        for headers, amount in found:
            assert 1 < int(headers["Retry-After"]) <= 60
            assert headers["X-RateLimit-Fallback"] == "true"
            assert headers["X-RateLimit-Limit"] == amount
            assert headers["X-RateLimit-Remaining"] == "0"


@pytest.fixture
def fake() -> FakeServer:
    return FakeServer(ip={"requests": 100}, api={"requests": 100})


@pytest.fixture
def limiter(fake: FakeServer) -> Iterator[Limiter]:
    with Limiter(transport=fake.transport) as limiter:
        yield limiter


def test_a_stream_is_passed_on_as_it_is(limiter: Limiter) -> None:
    """The server gets the application's own object, and closes that: req: B4."""
    did: list[str] = []

    def parts() -> Iterator[bytes]:
        did.append("one")
        yield b"one"
        did.append("two")
        yield b"two"

    pieces = parts()

    def stream(environ: dict[str, Any], start_response: Any) -> Any:
        start_response("200 OK", [("content-type", "text/plain"), ("x-ratelimit-limit", "77")])
        return pieces

    started: list[Any] = []
    app = RateLimitMiddleware(stream, limiter)
    iterable = app({"REQUEST_METHOD": "GET", "PATH_INFO": "/"}, lambda *a: started.append(a))
    assert iterable is pieces  # such as a file, which servers send by themselves
    headers = started[0][1]
    assert dict(headers)["x-ratelimit-limit"] == "77"  # the application's own
    assert [n for n, _ in headers].count("X-RateLimit-Limit") == 0
    assert dict(headers)["X-RateLimit-Remaining"] == "99"
    assert next(iter(iterable)) == b"one"
    assert did == ["one"]


def test_an_application_that_starts_late_twice_or_writes(limiter: Limiter) -> None:
    """What WSGI allows works as without the middleware."""
    own = [("Content-Type", "text/plain")]

    def late(environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", own)
        yield b"late"

    answer = Answer(RateLimitMiddleware(late, limiter))
    assert answer.content == b"late"
    assert answer.headers["X-RateLimit-Limit"] == "100"
    assert own == [("Content-Type", "text/plain")]  # the application may use it again

    calls: list[tuple[Any, ...]] = []

    def start(*arguments: Any) -> Callable[[bytes], object]:
        calls.append(arguments)
        if len(calls) > 1:  # the headers were sent
            raise arguments[2][1]
        return written.append

    written: list[bytes] = []

    def fails(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        start_response("200 OK", own)(b"written")
        try:
            raise ValueError("too late")
        except ValueError:
            start_response("500 Internal Server Error", [("Content-Type", "text/html")], sys.exc_info())
        return []

    with pytest.raises(ValueError, match="too late"):
        RateLimitMiddleware(fails, limiter)({"REQUEST_METHOD": "GET", "PATH_INFO": "/"}, start)
    assert written == [b"written"]
    assert len(calls[0]) == 2
    assert dict(calls[1][1])["X-RateLimit-Limit"] == "100"

    def breaks(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        RateLimitMiddleware(breaks, limiter)({"REQUEST_METHOD": "GET", "PATH_INFO": "/"}, start)


@pytest.mark.parametrize(
    ("trusted", "environ", "want"),
    [
        ([], {"REMOTE_ADDR": "192.0.2.1", "HTTP_X_FORWARDED_FOR": "198.51.100.7"}, "192.0.2.1"),
        (["192.0.2.0/24"], {"REMOTE_ADDR": "192.0.2.1", "HTTP_X_FORWARDED_FOR": "198.51.100.7"}, "198.51.100.7"),
        # Servers join lines, with or without a space. The last one is the proxy's.
        (
            ["192.0.2.0/24"],
            {"REMOTE_ADDR": "192.0.2.1", "HTTP_X_FORWARDED_FOR": "6.6.6.6,198.51.100.7"},
            "198.51.100.7",
        ),
        (["192.0.2.0/24"], {"REMOTE_ADDR": "192.0.2.1", "HTTP_X_FORWARDED_FOR": "6.6.6.6, x"}, "192.0.2.1"),
        (["192.0.2.0/24"], {"REMOTE_ADDR": "192.0.2.1", "HTTP_X_FORWARDED_FOR": "\xff"}, "192.0.2.1"),
        (["192.0.2.0/24"], {"REMOTE_ADDR": "192.0.2.1"}, "192.0.2.1"),
        (["unix"], {"REMOTE_ADDR": "", "HTTP_X_FORWARDED_FOR": "198.51.100.7"}, "198.51.100.7"),
        (["unix"], {"HTTP_X_FORWARDED_FOR": "2001:db8:1:2::3"}, "2001:db8:1:2::/64"),
        ([], {}, ""),
    ],
)
def test_the_address_of_a_client(trusted: list[str], environ: dict[str, str], want: str) -> None:
    """req: B4."""
    assert Proxies(trusted, "X-Forwarded-For").key_of(environ) == want
    real = {"HTTP_X_REAL_IP": environ["HTTP_X_FORWARDED_FOR"]} if "HTTP_X_FORWARDED_FOR" in environ else {}
    assert Proxies(trusted, "X-Real-IP").key_of({**environ, "HTTP_X_FORWARDED_FOR": "6.6.6.6", **real}) == want


def test_a_mistake_is_noticed_at_the_start(limiter: Limiter) -> None:
    with pytest.raises(ValueError, match="name at least one policy"):
        RateLimitMiddleware(hello, limiter, ip="", api="")
    with pytest.raises(ValueError, match="max_wait"):
        RateLimitMiddleware(hello, limiter, max_wait=-1)
    with pytest.raises(TypeError, match="give a list"):
        RateLimitMiddleware(hello, limiter, trusted_proxies="10.0.0.0/8")
    with pytest.raises(TypeError, match="key"):
        take(limiter, "user", key=None)  # type: ignore[arg-type]


# Flask.


def create_app(limiter: Limiter, **options: Any) -> Flask:
    app = Flask("site")
    app.wsgi_app = RateLimitMiddleware(app.wsgi_app, limiter, **options)  # type: ignore[method-assign]
    app.register_error_handler(Error, refuse)
    return app


def user() -> str | None:
    return request.headers.get("X-User")


def test_limits_of_users_and_routes(limits: Server) -> None:
    """req: B4 B7."""
    with Limiter(limits.url, timeout=60) as limiter:
        app = create_app(limiter, ip="large", api="")
        pages = Blueprint("pages", __name__, url_prefix="/pages")

        @app.post("/ask")
        @take(limiter, "user", key=user, costs={"tokens": lambda: len(request.args["text"])})
        async def ask() -> str:
            return "asked"

        @pages.get("/items/<int:n>")
        @take(limiter, "ip", key=route)
        def item(n: int) -> str:
            return str(n)

        @pages.get("/mine")
        @take(limiter, "ip", key=client(["127.0.0.1"]))
        def mine() -> str:
            return "mine"

        @app.get("/shared")
        @take(limiter, "user", costs={"requests": 2})
        def shared() -> tuple[str, int, dict[str, str]]:
            return "shared", 201, {"X-Own": "1"}

        @app.get("/soon")
        @take(limiter, "soon", max_wait=60)
        def soon() -> str:
            return "soon"

        app.register_blueprint(pages)
        limiter.check()
        c = app.test_client()
        ada = {"X-User": "ada"}
        answer = c.post("/ask", headers=ada, query_string={"text": "x" * 400})
        assert answer.text == "asked"
        assert answer.headers["X-RateLimit-Limit"] in ("2", "1000")
        refused = c.post("/ask", headers=ada, query_string={"text": "x" * 700})
        assert (refused.status_code, refused.content_type) == (429, "application/problem+json")
        assert refused.json is not None
        assert refused.json["detail"].startswith("Your limit has been reached. Try again in")
        assert int(refused.headers["Retry-After"]) == refused.json["retry_after"] >= 1
        assert refused.headers.getlist("X-RateLimit-Limit") == ["1000"]  # the view's, not the middleware's
        assert refused.headers["X-RateLimit-Remaining"] == "600"
        too_large = c.post("/ask", headers=ada, query_string={"text": "x" * 1001})
        assert too_large.status_code == 413
        assert "Retry-After" not in too_large.headers
        anonymous = c.post("/ask", query_string={"text": "x" * 2000})  # who has no user, has no limit
        assert anonymous.status_code == 200
        assert c.get("/pages/items/7").text == "7"
        assert c.get("/pages/mine", headers={"X-Forwarded-For": "198.51.100.7"}).text == "mine"
        answer = c.get("/shared")
        assert (answer.status_code, answer.headers["X-Own"]) == (201, "1")
        assert "all callers" in c.get("/shared").text
        assert [c.get("/soon").status_code for _ in range(3)] == [200, 200, 200]
        assert limits.used("user", "ada") == {"rpm": 1, "tpm": 400}
        assert limits.used("ip", "/pages/items/<int:n>") == {"rate": 1}
        assert limits.used("ip", "198.51.100.7") == {"rate": 1}


def test_handlers_of_errors(limits: Server, own_server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """The application's own page says why, with the headers of every refusal."""
    own_server.kill()
    with Limiter(limits.url, timeout=60) as limiter, Limiter(own_server.url, timeout=0.2) as unavailable:
        app = create_app(limiter, ip="large", api="")

        @app.errorhandler(429)
        @app.errorhandler(500)
        def sorry(error: HTTPException) -> tuple[Any, int]:
            return (piece for piece in (f"Sorry: {error.description}",)), error.code or 0

        app.add_url_rule("/user", "user", take(limiter, "user")(lambda: "user"))
        app.add_url_rule("/wrong", "wrong", take(limiter, "users")(lambda: "never"))
        app.add_url_rule("/fails", "fails", take(limiter, "large")(lambda: abort(404)))
        app.add_url_rule("/unavailable", "unavailable", take(unavailable, "user")(lambda: "never"))
        c = app.test_client()
        assert [c.get("/user").text for _ in range(2)] == ["user", "user"]
        answer = c.get("/user")
        assert answer.status_code == 429
        assert answer.text.startswith("Sorry: The limit that all callers of this API share has been reached")
        assert int(answer.headers["Retry-After"]) >= 1
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.content_type.startswith("text/html")
        answer = c.get("/wrong")
        assert (answer.status_code, answer.text) == (500, "Sorry: The server's limits are not set up correctly.")
        assert 'unknown policy "users"' in caplog.text
        assert c.get("/fails").status_code == 404
        for _ in range(2):
            answer = c.get("/unavailable")
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
        assert sum("with 503, because nobody decides: http" in m for m in caplog.messages) == 1  # of the outage


def test_what_a_view_holds(limits: Server) -> None:
    """Errors of a limiter in a view are answers as well; others stay what they are."""
    with Limiter(limits.url, timeout=60) as limiter:
        app = create_app(limiter, ip="large", api="")
        breaker = Breaker("the model", failures=1)

        @app.get("/slot")
        def slot() -> Response:
            r = limiter.reserve("slots", max_wait=0)
            r.__enter__()
            response = Response(iter(["held"]))
            response.call_on_close(lambda: r.__exit__(None, None, None))
            return response

        @app.get("/model")
        def model() -> str:
            with limiter.reserve("large", breaker=breaker):
                raise RuntimeError("the model fails")

        @app.get("/wrong")
        def wrong() -> str:
            return limiter.take("nowhere").reason

        @app.get("/other")
        def other() -> str:
            raise Error("of another part")

        c = app.test_client()
        held = c.get("/slot", buffered=False)
        refused = c.get("/slot")
        assert refused.headers.getlist("X-RateLimit-Limit") == ["1"]  # the policy that refuses, not the middleware's
        assert refused.headers["X-RateLimit-Remaining"] == "0"
        assert (refused.status_code, refused.content_type) == (429, "application/problem+json")
        assert refused.json is not None
        assert refused.json["detail"].startswith("A limit has been reached. Try again in ")
        assert "scope" not in refused.json
        assert 1 <= int(refused.headers["Retry-After"]) <= 30  # then the hold ends
        held.close()
        assert c.get("/slot").text == "held"
        assert (c.get("/wrong").status_code, c.get("/model").status_code) == (500, 500)
        circuit = c.get("/model")
        assert (circuit.status_code, circuit.headers["Retry-After"]) == (503, "60")
        assert circuit.json is not None
        assert circuit.json["code"] == "circuit_open"
        assert c.get("/other").status_code == 500


def test_headers_of_several_decorators(limits: Server) -> None:
    """They describe the tightest limit, whatever the order."""
    with Limiter(limits.url, timeout=60) as limiter:
        app = create_app(limiter, ip="large", api="")
        tight, wide = take(limiter, "user", key=user), take(limiter, "ip", key=user)
        for path, (first, last) in {"/tight-last": (wide, tight), "/tight-first": (tight, wide)}.items():
            app.add_url_rule(path, path, first(last(lambda: "passed")))
        for path in ("/tight-last", "/tight-first"):
            answer = app.test_client().get(path, headers={"X-User": path})
            assert answer.text == "passed"
            assert answer.headers["X-RateLimit-Limit"] == "2", path
            assert answer.headers["X-RateLimit-Remaining"] == "1", path


def test_threads(limits: Server) -> None:
    """One limiter serves all threads of a process, and grants no more than there is."""
    with Limiter(limits.url, timeout=60) as limiter:
        app = RateLimitMiddleware(valid, limiter, ip="ip", api="")
        statuses: list[int] = []
        threads = [threading.Thread(target=lambda: statuses.append(Answer(app).status)) for _ in range(20)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert sorted(statuses) == [200] * 5 + [429] * 15
