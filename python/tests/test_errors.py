"""Errors as values."""

from __future__ import annotations

import copy
import pickle
from datetime import datetime, timezone

import pytest
from celery import Celery
from fastapi import HTTPException

from drawgate import Answer, CircuitOpen, Error, HoldLost, Problem, Refused, ServerUnavailable, StoreUnavailable, _wire
from drawgate._http import Failures
from drawgate.fastapi import _refusals

ERRORS = [
    CircuitOpen("gemini", 3.0, datetime.now(timezone.utc)),
    HoldLost("lost"),
    Problem("wrong", code="invalid", status=422),
    Refused(Answer(allowed=False, reason="limited", policy="llm", retry_after=4.0)),
    ServerUnavailable("no answer", may_have_spent=True),
    StoreUnavailable("no store", may_have_spent=True),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
def test_errors_survive_pickling(error: Error) -> None:
    """As between processes of a pool."""
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is type(error)
        assert str(other) == str(error)
        assert vars(other) == vars(error)


def test_problems_survive_a_result_backend_of_celery() -> None:
    """It stores exceptions as JSON, and makes them again from their arguments alone."""
    backend = Celery(backend="cache+memory://").backend
    found = backend.exception_to_python(backend.prepare_exception(ERRORS[2], serializer="json"))
    assert (type(found), str(found), found.code) == (Problem, "wrong", "")


@pytest.mark.parametrize(("after", "when"), [(4.0, "try again in 4 s"), (None, "waiting does not help")])
def test_a_refusal_says_when_to_try_again(after: float | None, when: str) -> None:
    assert str(Refused(Answer(allowed=False, reason="limited", retry_after=after))) == f"refused: limited ({when})"


def test_a_circuit_that_closes_now_has_a_wait() -> None:
    with pytest.raises(HTTPException) as refused, _refusals(None, Failures()):
        raise CircuitOpen("gemini", 0.0, datetime.now(timezone.utc))
    assert (refused.value.headers or {})["Retry-After"] == "1"


def test_an_answer_without_marks() -> None:
    found = _wire.answer({"allowed": True})
    assert (found.fallback, found.unmatched) == (False, False)
