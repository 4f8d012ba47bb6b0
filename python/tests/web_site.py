"""The same site in Flask and in Django, which gunicorn serves. Views write down what they do, and when."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

folder = Path(os.environ["SITE_FOLDER"])
FRAMEWORK = os.environ["SITE_FRAMEWORK"]
OPTIONS: dict[str, Any] = {
    "timeout": float(os.environ.get("SITE_TIMEOUT", "60")),
    "fallback": os.environ.get("SITE_FALLBACK", "closed"),
}
PROXIES = ["127.0.0.1"]


def note(event: str, **more: Any) -> None:
    """Appends a line, in one write."""
    line = json.dumps({"event": event, "at": time.monotonic(), "pid": os.getpid(), **more})
    fd = os.open(folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, line.encode() + b"\n")
    os.close(fd)


def gate() -> None:
    """Lasts until the test opens the gate."""
    note("at the gate")
    while not (folder / "gate").exists():
        time.sleep(0.02)


def work() -> None:
    note("begin")
    time.sleep(0.02)
    note("end")


def flask_site() -> Any:
    from flask import Flask, request

    from drawgate import Error, Limiter
    from drawgate.flask import refuse, take
    from drawgate.wsgi import RateLimitMiddleware

    limiter = Limiter(**OPTIONS)
    app = Flask("site")
    app.wsgi_app = RateLimitMiddleware(app.wsgi_app, limiter, trusted_proxies=PROXIES)  # type: ignore[method-assign]
    app.register_error_handler(Error, refuse)

    @app.get("/")
    def hello() -> str:
        note("hello", client=request.headers["X-Forwarded-For"])
        return "hello"

    @app.get("/health/gate")
    def wait() -> str:
        gate()
        return "open"

    @app.get("/user")
    @take(limiter, "user", key=lambda: request.headers["X-User"])
    def user() -> str:
        note("user")
        return "user"

    @app.get("/slot")
    def slot() -> str:
        with limiter.reserve("slots", max_wait=600):
            work()
        return "done"

    if "SITE_CHECK" in os.environ:
        limiter.check()
    return app


def django_site() -> Any:
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application
    from django.http import HttpResponse
    from django.urls import path

    settings.configure(
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF=__name__,
        MIDDLEWARE=["drawgate.django.RateLimitMiddleware"],
        DRAWGATE={**OPTIONS, "trusted_proxies": PROXIES},
    )
    import drawgate.django
    from drawgate.django import limiter, take

    def hello(request: Any) -> HttpResponse:
        note("hello", client=request.headers["X-Forwarded-For"])
        return HttpResponse("hello")

    def wait(request: Any) -> HttpResponse:
        gate()
        return HttpResponse("open")

    @take("user", key=lambda request: request.headers["X-User"])
    def user(request: Any) -> HttpResponse:
        note("user")
        return HttpResponse("user")

    def slot(request: Any) -> HttpResponse:
        with limiter().reserve("slots", max_wait=600):
            work()
        return HttpResponse("done")

    views = {"": hello, "health/gate": wait, "user": user, "slot": slot}
    globals()["urlpatterns"] = [path(route, view) for route, view in views.items()]
    app = get_wsgi_application()
    if "SITE_CHECK" in os.environ:
        drawgate.django.check()
    return app


app = flask_site() if FRAMEWORK == "flask" else django_site()
