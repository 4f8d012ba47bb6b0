"""The fixtures for pytest start a real server, and end it whatever happens."""

from __future__ import annotations

import importlib.metadata
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import drawgate
from drawgate import Limiter, ServerUnavailable
from drawgate.testing import Server

pytest_plugins = ["pytester"]

CONFIG = """
import pytest

@pytest.fixture(scope="session")
def drawgate_config():
    return "policies: {few: {limits: [{name: hourly, rolling: 1h, amount: 3}]}}"
"""

TEST = """
def test_three(drawgate_server):
    with drawgate_server.limiter(timeout=60) as limiter:
        assert [limiter.take("few", "k").allowed for _ in range(4)] == [True, True, True, False]
"""


@pytest.fixture(autouse=True)
def _program(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program that is tested is on the PATH, and what the environment says about servers is of no concern."""
    folder = Path(os.environ["DRAWGATE_PROGRAM"]).parent
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.setenv("DRAWGATE_CONFIG", "missing.yaml")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # other plugins import much


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Runs pytest in a process of its own, with this plugin alone."""
    return pytester.runpytest_subprocess("-p", "pytest_drawgate", *arguments)


def test_pytest_finds_the_plugin(request: pytest.FixtureRequest) -> None:
    assert request.config.pluginmanager.has_plugin("drawgate")


def test_without_a_configuration(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import asyncio

        def test_sample(drawgate_server):
            async def take():
                async with drawgate_server.async_limiter(timeout=60) as limiter:
                    return await limiter.take("sample", "k")

            assert asyncio.run(take())
        """
    )
    run(pytester).assert_outcomes(passed=1)


def test_each_worker_of_xdist_has_its_own(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFIG)
    for name in ("a", "b"):
        pytester.makepyfile(**{f"test_{name}": TEST})
    run(pytester, "-p", "xdist", "-n2", "--dist=loadfile").assert_outcomes(passed=2)


def test_the_client_is_imported_only_when_it_is_used(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_modules():
            assert "pytest_drawgate" in sys.modules
            assert not {"drawgate", "httpx", "anyio"} & sys.modules.keys()
        """
    )
    run(pytester).assert_outcomes(passed=1)


def test_the_program_is_missing(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(pytester.path))
    pytester.makepyfile(TEST)
    result = run(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*the program drawgate is missing: install drawgate?server?, or put*"])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_a_wrong_configuration(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFIG.replace("amount: 3", "amount: many"))
    pytester.makepyfile(TEST)
    result = run(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*drawgate serve has ended*", "*many*"])


def test_the_server_ends_with_its_block() -> None:
    with Server() as server:
        with Limiter(server.url, timeout=60) as limiter:
            assert limiter.take("sample")
        connection = connect(server.url)
    with connection:
        await_end(connection)
    with Limiter(server.url, timeout=0.1) as limiter, pytest.raises(ServerUnavailable):
        limiter.take("sample")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_the_server_ends_with_pytest(pytester: pytest.Pytester, how: signal.Signals) -> None:
    pytester.makepyfile(
        """
        import signal, time

        signal.signal(signal.SIGINT, signal.default_int_handler)  # a command in a shell's background ignores it

        def test_for_long(drawgate_server):
            print(drawgate_server.url, flush=True)
            time.sleep(600)
        """
    )
    command = [sys.executable, "-m", "pytest", "-p", "pytest_drawgate", "-s"]
    with subprocess.Popen(command, cwd=pytester.path, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout
            address = next(m[0] for line in process.stdout if (m := re.search(r"http://\S+", line.decode())))
            with connect(address) as connection:
                process.send_signal(how)
                assert (
                    process.wait() == {signal.SIGKILL: -signal.SIGKILL, signal.SIGINT: pytest.ExitCode.INTERRUPTED}[how]
                )
                await_end(connection)
        finally:
            process.kill()


def connect(url: str) -> socket.socket:
    """Opens a connection, and makes sure that the server has it."""
    address = url.removeprefix("http://")
    host, port = address.split(":")
    connection = socket.create_connection((host, int(port)), timeout=300)
    connection.sendall(f"GET /healthz HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
    assert connection.recv(4096).startswith(b"HTTP/1.1 200")
    return connection


def await_end(connection: socket.socket) -> None:
    """Waits until the process at the other end is gone."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        pass


def test_a_store_that_the_configuration_names(tmp_path: Path) -> None:
    limits = "policies: {one: {limits: [{name: hourly, rolling: 1h, amount: 1}]}}"
    config = f"store: sqlite:{tmp_path}/drawgate.db\nstore_timeout: 60s\n{limits}\n"
    for allowed in (True, False):
        with Server(config, store=None) as server, server.limiter(timeout=60) as limiter:
            assert limiter.take("one").allowed == allowed


def test_what_the_manual_shows(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the application of the tutorial. Nothing asks the server that somebody has started for himself."""
    monkeypatch.setenv("DRAWGATE_SERVER", "http://127.0.0.1:1")
    docs = Path(__file__).parents[2] / "docs"
    tutorial = (docs / "tutorials" / "fastapi.md").read_text()
    saved = dict(re.findall(r"Save this as `(\S+)`:\n\n```\w+\n(.*?)^```$", tutorial, re.MULTILINE | re.DOTALL))
    limits = saved["limits.yaml"].replace('"memory:"', "sqlite:mine.db")
    page = (docs / "python.md").read_text()
    section = page.partition("\n## Tests\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```python\n# (\S+)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in blocks] == ["conftest.py", "test_app.py", "test_site.py"]
    for name, text in [*blocks, ("limits.yaml", limits), ("app.py", saved["app.py"])]:
        (pytester.path / name).write_text(text)
    run(pytester).assert_outcomes(passed=2)
    assert not (pytester.path / "mine.db").exists()


def test_versions() -> None:
    assert importlib.metadata.version("drawgate") == drawgate.__version__
    server = [r for r in importlib.metadata.requires("drawgate") or [] if 'extra == "server"' in r.replace("'", '"')]
    assert [r.split(";")[0].strip() for r in server] == [f"drawgate-server=={drawgate.__version__}"]
