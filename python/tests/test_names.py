"""The names that programs use, and those that they have used before 1.0."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import pytest

import drawgate
from drawgate import AsyncLimiter, Limiter, LimitSpec, ServerUnavailable
from drawgate._types import Limit

PUBLIC = sorted(path.stem for path in Path(drawgate.__file__).parent.glob("[!_]*.py"))


@pytest.mark.parametrize("name", PUBLIC)
def test_a_module_lists_its_public_names(name: str) -> None:
    """Helpers of a module, which other modules may use, are not in `import *` nor in pydoc."""
    module = importlib.import_module(f"drawgate.{name}")
    listed = [getattr(module, public) for public in module.__all__]
    assert listed
    for value in listed:
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__module__ == module.__name__
            assert value.__doc__


def test_names_before_1_0_are_read() -> None:
    assert Limit(0, "p", "rpm", "requests", 10, 8, 3, 0.0, None, False).most == 8
    assert LimitSpec("rpm", "requests", "rolling", 10, 8, 60.0, "", "", 0, "").most == 8
    assert [ServerUnavailable("lost", may_have_spent=spent).maybe for spent in (True, False)] == [True, False]


def test_both_limiters_have_the_same_parameters() -> None:
    found = 0
    for name, method in inspect.getmembers(AsyncLimiter, inspect.isfunction):
        other = getattr(Limiter, name, None)
        if not name.startswith("_") and other is not None:
            here, there = inspect.signature(method).parameters, inspect.signature(other).parameters
            assert {n: p.default for n, p in here.items()} == {n: p.default for n, p in there.items()}, name
            found += 1
    assert found > 5
