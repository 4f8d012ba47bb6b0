"""The programs of docs/python.md that are whole ones."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Server
from test_django import Site

import drawgate.django
from drawgate.django import limiter

MANUAL = Path(__file__).parent.parent.parent / "docs" / "python.md"


def blocks(section: str, language: str = "python") -> list[str]:
    """Returns the programs in a section of the manual, or its files."""
    text = re.search(rf"^## {section}\n(.*?)^## ", MANUAL.read_text(), re.MULTILINE | re.DOTALL)
    assert text, section
    return re.findall(rf"^```{language}\n(.*?)^```", text[1], re.MULTILINE | re.DOTALL)


@pytest.fixture
def limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    [config] = blocks("Flask and WSGI", "yaml")  # its windows end while a busy machine runs a test
    s = Server(tmp_path, config.replace('store: "memory:"\n', "").replace("rolling: 1m", "rolling: 1h"))
    monkeypatch.setenv("DRAWGATE_SERVER", s.url)
    yield s
    s.kill()


def test_flask(limits: Server) -> None:
    names: dict[str, Any] = {"__name__": "site"}
    for program in blocks("Flask and WSGI"):
        exec(program.replace("timeout=1", "timeout=60"), names)
    check(names["app"].test_client())
    names["limiter"].close()
    assert limits.used("search", "127.0.0.1") == {"rate": 2}
    assert limits.used("user", "ada") == {"tpm": 3000}


def test_django(limits: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    configured, views, wsgi = blocks("Django")
    names: dict[str, Any] = {"__name__": "site", "MIDDLEWARE": ["another"]}
    exec(configured, names)
    assert names["MIDDLEWARE"] == ["drawgate.django.RateLimitMiddleware", "another"]
    options = names["DRAWGATE"] | {"server": limits.url, "timeout": 60}
    exec(views, names)
    with Site({"search": names["search"], "ask": names["ask"]}, **options) as c:
        monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "of this test")
        exec(wsgi, names)
        check(c)
        limiter().check("user", costs={"tokens": 2_000})
    assert limits.used("search", "127.0.0.1") == {"rate": 2}
    assert limits.used("user", "ada") == {"tpm": 3000}
    assert drawgate.django


def test_a_new_project_of_django(limits: Server, tmp_path: Path) -> None:
    """What the manual adds to a project that was just made is all that a WSGI server needs, and replaces nothing."""
    env = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}

    def python(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=tmp_path, env=env, check=True, capture_output=True, text=True).stdout

    python("-m", "django", "startproject", "mysite", ".")
    configured, _, wsgi = blocks("Django")
    with (tmp_path / "mysite" / "settings.py").open("a") as settings:
        settings.write(configured.replace("http://127.0.0.1:7878", limits.url).replace('"timeout": 1', '"timeout": 60'))
    (tmp_path / "mysite" / "wsgi.py").write_text(wsgi)
    said = python("-c", "from mysite import wsgi, settings; print(*settings.MIDDLEWARE)").split()
    assert said[0] == "drawgate.django.RateLimitMiddleware"
    assert "django.contrib.sessions.middleware.SessionMiddleware" in said


def check(c: Any) -> None:
    assert [c.get("/search").status_code for _ in range(3)] == [200, 200, 429]
    assert [c.post("/ask", headers={"X-User": "ada"}).status_code for _ in range(3)] == [200, 200, 429]
