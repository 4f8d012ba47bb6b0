"""Runs the program drawgate for as long as this process wants it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from . import _watch

START = 60.0  # seconds within which the server listens, or else something is wrong


def find() -> str:
    """Returns the path of the program: of the package drawgate-server, or else the one on the PATH.

    Raises:
        RuntimeError: it is missing.
    """
    try:
        import drawgate_server
    except ModuleNotFoundError:
        if found := shutil.which("drawgate"):
            return found
        raise RuntimeError(
            "the program drawgate is missing: install drawgate[server], or put the program on the PATH"
        ) from None
    try:
        return str(drawgate_server.path())
    except FileNotFoundError as error:
        raise RuntimeError(str(error)) from None


@contextlib.contextmanager
def serving(arguments: Sequence[str], folder: Path) -> Iterator[tuple[str, str]]:
    """Runs `drawgate serve` in a folder until the block ends, or this process does, however that happens.

    Returns:
        its address for programs, and the one for administrators. Both are open.

    Raises:
        RuntimeError: it does not start.
    """
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", _watch.__file__, find(), "serve", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=folder,
        env={name: value for name, value in os.environ.items() if not name.startswith("DRAWGATE_")},
        start_new_session=True,  # Ctrl-C is for this process, which ends the server when nobody needs it any more
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
    )
    assert process.stdin is not None
    assert process.stderr is not None
    try:
        addresses = _addresses(process, process.stderr)
        reader = threading.Thread(target=_drain, args=[process.stderr], daemon=True)
        reader.start()
        try:
            yield addresses
        finally:
            _ask_to_end(process)
            reader.join()
    finally:
        _ask_to_end(process)
        process.wait()
        process.stderr.close()


def _addresses(process: subprocess.Popen[bytes], pipe: IO[bytes]) -> tuple[str, str]:
    """Returns where the server listens, as soon as it does."""
    said = ""
    late = threading.Timer(START, _ask_to_end, [process])
    late.start()
    try:
        for line in pipe:
            said += line.decode(errors="replace")
            found = re.findall(r'msg="(?:listening on|administration at) (https?://[^\s"]+)"', said)
            if len(found) == 2:
                return found[0], found[1]
    finally:
        late.cancel()
    raise RuntimeError(f"drawgate serve has ended, or did not listen within {START:.0f} s. It said:\n{said}")


def _drain(pipe: IO[bytes]) -> None:
    """Reads what the server says, or else it would wait until somebody does."""
    for _ in pipe:
        pass


def _ask_to_end(process: subprocess.Popen[bytes]) -> None:
    """Ends the server by a byte: a forked process may have this end of the pipe open as well."""
    assert process.stdin is not None
    with contextlib.suppress(OSError, ValueError):  # it has ended by itself, or was asked before
        process.stdin.write(b"x")
        process.stdin.close()
