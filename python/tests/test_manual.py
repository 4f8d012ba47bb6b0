"""The programs of docs/python.md that are whole ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Server
from test_django import Site

import drawgate.django
from drawgate.django import limiter

MANUAL = Path(__file__).parent.parent.parent / "docs" / "python.md"
LIMITS = """
policies:
  ip: {limits: [{name: rate, rolling: 1h, amount: 100}]}
  api: {limits: [{name: rate, rolling: 1h, amount: 100}]}
  search: {limits: [{name: rate, rolling: 1h, amount: 2}]}
  user: {limits: [{name: tpm, unit: tokens, rolling: 1h, amount: 4000}]}
"""


def programs(section: str) -> list[str]:
    """Returns the programs in a section of the manual."""
    text = re.search(rf"^## {section}\n(.*?)^## ", MANUAL.read_text(), re.MULTILINE | re.DOTALL)
    assert text, section
    return re.findall(r"^```python\n(.*?)^```", text[1], re.MULTILINE | re.DOTALL)


@pytest.fixture
def limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    s = Server(tmp_path, LIMITS)
    monkeypatch.setenv("DRAWGATE_SERVER", s.url)
    yield s
    s.kill()


def test_flask(limits: Server) -> None:
    names: dict[str, Any] = {"__name__": "site"}
    for program in programs("Flask and WSGI"):
        exec(program.replace("timeout=1", "timeout=60"), names)
    check(names["app"].test_client())
    names["limiter"].close()
    assert limits.used("search", "127.0.0.1") == {"rate": 2}
    assert limits.used("user", "ada") == {"tpm": 3000}


def test_django(limits: Server) -> None:
    configured, views, wsgi = programs("Django")
    names: dict[str, Any] = {"__name__": "site"}
    exec(configured, names)
    assert names["MIDDLEWARE"][0] == "drawgate.django.RateLimitMiddleware"
    options = names["DRAWGATE"] | {"server": limits.url, "timeout": 60}
    exec(views, names)
    with Site({"search": names["search"], "ask": names["ask"]}, **options) as c:
        exec(wsgi, names)
        check(c)
        limiter().check("user", costs={"tokens": 2_000})
    assert limits.used("search", "127.0.0.1") == {"rate": 2}
    assert limits.used("user", "ada") == {"tpm": 3000}
    assert drawgate.django


def check(c: Any) -> None:
    assert [c.get("/search").status_code for _ in range(3)] == [200, 200, 429]
    assert [c.post("/ask", headers={"X-User": "ada"}).status_code for _ in range(3)] == [200, 200, 429]
