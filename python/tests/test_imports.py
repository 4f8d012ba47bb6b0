"""Modules of the package import each other in one direction only."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import drawgate


def imports(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """Returns which modules each module imports, wherever in its text: also in functions, and for types only."""
    found: dict[str, set[str]] = {}
    for module, source in sources.items():
        names = found[module] = set()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                names.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level < 2, "the package has no packages inside"
                base = ".".join(filter(None, ["drawgate" if node.level else "", node.module]))
                for alias in node.names:  # a module of the package, or else what is in one
                    names.add(whole if (whole := f"{base}.{alias.name}") in sources else base)
        names &= sources.keys()
    return found


def check(sources: Mapping[str, str]) -> None:
    TopologicalSorter(imports(sources)).prepare()


def test_no_import_circles() -> None:
    folder = Path(drawgate.__file__).parent
    sources = {f"drawgate.{path.stem}": path.read_text() for path in folder.glob("*.py")}
    sources["drawgate"] = sources.pop("drawgate.__init__")
    assert {"drawgate._async", "drawgate._reservation"} <= sources.keys()
    assert imports(sources)["drawgate"]
    check(sources)


@pytest.mark.parametrize(
    "back",
    [
        "from ._a import A",
        "from . import _a",
        "import drawgate._a",
        "def f():\n    from ._a import A",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ._a import A",
        "from drawgate import A",
    ],
)
def test_circles_are_found(back: str) -> None:
    with pytest.raises(CycleError):
        check({"drawgate": "from ._a import A", "drawgate._a": "from . import _b", "drawgate._b": back})
