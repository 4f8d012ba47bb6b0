"""What docs/from shows in Python: the same limit before, with another package, and after, with a real server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from celery import Celery
from celery.worker.consumer import Consumer
from conftest import Server

from drawgate import Refused

PAGES = Path(__file__).parents[2] / "docs" / "from"


def blocks(page: str, language: str) -> list[str]:
    """Returns the code of a page, with windows that do not end while a test runs."""
    text = (PAGES / page).read_text()
    text = (
        text.replace("rolling: 1m", "rolling: 1h")
        .replace("/minute", "/hour")
        .replace("Duration.MINUTE", "Duration.HOUR")
    )
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def run(code: str) -> SimpleNamespace:
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(code, "page", "exec"), names)
    return SimpleNamespace(**names)


@pytest.fixture
def page(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The code of a page before and after, beside a server with the limits of the page."""
    [limits] = blocks(request.param, "yaml")
    server = Server(tmp_path, re.sub(r"(?m)^store: .*\n", "", limits))
    monkeypatch.setenv("DRAWGATE_SERVER", server.url)
    before, after, *more = blocks(request.param, "python")
    yield SimpleNamespace(before=before, after=after, more=more, server=server)
    server.kill()


@pytest.mark.parametrize("page", ["slowapi.md"], indirect=True)
@pytest.mark.parametrize("side", ["before", "after"])
def test_slowapi(page: Any, side: str) -> None:
    """Of six requests five pass."""

    async def requests() -> list[int]:
        shown = run(getattr(page, side).replace("timeout=1", "timeout=60"))
        transport = httpx.ASGITransport(shown.app, client=("192.0.2.1", 1234))
        async with httpx.AsyncClient(transport=transport, base_url="http://site") as client:
            answers = [(await client.get("/items")).status_code for _ in range(6)]
        if side == "after":
            await shown.limiter.aclose()
        return answers

    assert asyncio.run(requests()) == [200] * 5 + [429]


@pytest.mark.parametrize("page", ["slowapi.md"], indirect=True)
def test_slowapi_defaults_and_tests(page: Any) -> None:
    """Each route has five requests of its own, and tests can switch a limit off."""

    async def statuses(shown: Any, paths: list[str]) -> list[int]:
        transport = httpx.ASGITransport(shown.app, client=("192.0.2.1", 1234))
        async with httpx.AsyncClient(transport=transport, base_url="http://site") as client:
            return [(await client.get(path)).status_code for path in paths]

    async def main() -> None:
        code = page.after.replace("timeout=1", "timeout=60")
        shown = run(code + "\n".join(page.more))
        for path in ("/a", "/b"):
            shown.app.get(path)(lambda: "found")
        async with shown.lifespan(shown.app):
            assert await statuses(shown, ["/a"] * 6 + ["/b"]) == [200] * 5 + [429, 200]
        shown = run(code)
        shown.app.dependency_overrides[shown.per_client] = lambda: None
        async with shown.lifespan(shown.app):
            assert await statuses(shown, ["/items"] * 6) == [200] * 6

    asyncio.run(main())


@pytest.mark.parametrize("page", ["celery.md"], indirect=True)
def test_celery(page: Any) -> None:
    """Before, one task may begin every six seconds, in each worker; after, ten in any minute."""
    task = run(page.before).transcribe
    assert task.apply(["talk.wav"]).get() == "talk.wav: done"
    bucket = Consumer.bucket_for_task(SimpleNamespace(), task)
    assert (bucket.capacity, bucket.fill_rate) == (1, 10 / 60)

    task = run(page.after).transcribe
    assert isinstance(task.app, Celery)
    for n in range(10):
        assert task.apply([f"talk-{n}.wav"]).get() == f"talk-{n}.wav: done"
    with pytest.raises(Refused):
        task.apply(["one-more.wav"]).get()


@pytest.mark.parametrize("page", ["pyrate-limiter.md"], indirect=True)
@pytest.mark.parametrize("side", ["before", "after"])
def test_pyrate_limiter(page: Any, side: str) -> None:
    """Of six calls five may be made."""
    may_call = run(getattr(page, side)).may_call
    assert [may_call() for _ in range(6)] == [True] * 5 + [False]
