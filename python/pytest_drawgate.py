"""Fixtures for pytest: a real server for tests. The manual is docs/python.md.

Every run of pytest imports this module, so it imports the client only when a test asks for the server. For the
same reason it is not in the package drawgate, whose import takes almost as long as that of pytest.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from drawgate.testing import Server


@pytest.fixture(scope="session")
def drawgate_config() -> Path | str | None:
    """The configuration of drawgate_server: a file, or its text as a str. Define it in conftest.py."""
    return None


@pytest.fixture(scope="session")
def drawgate_server(drawgate_config: Path | str | None) -> Iterator[Server]:
    """A real server for all tests of this process, whose counts are in memory."""
    from drawgate.testing import Server

    with ExitStack() as stack:
        try:
            server = stack.enter_context(Server(drawgate_config))
        except RuntimeError as error:
            pytest.fail(str(error), pytrace=False)
        yield server
