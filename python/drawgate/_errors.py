"""What calls fail with."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ._types import Answer, Limit


class Error(Exception):
    """The base of all errors of this package.

    Attributes:
        may_have_spent: the call may have been carried out although there was no answer. The units of a
            plain take may then be spent. What a reservation holds is given back in the background.
    """

    may_have_spent: bool = False
    _sent = True  # at least one attempt has reached a server

    @property
    def maybe(self) -> bool:
        """The same by its name before 1.0."""
        return self.may_have_spent

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.args, self.__dict__)  # without arguments that only make the text


def _restore(kind: type[Error], args: tuple[Any, ...], attributes: dict[str, Any]) -> Error:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class Refused(Error):
    """A limit refused. Nothing was spent.

    Attributes:
        answer: the server's whole answer.
        reason: limited, queued (others are ahead in the queue), queue_full, paused, or unavailable
            (the server's store is, or the server itself, and nobody knows when the request fits).
        policy: the policy that refuses longest; "" if no limit does.
        limit: its limit.
        retry_after: seconds after which the same request fits, if nothing else happens. None if
            waiting never helps.
        reset_at: when nothing of that limit will be used.
        limits: the limits, with what is left of each.
    """

    def __init__(self, answer: Answer) -> None:
        when = "waiting does not help" if answer.retry_after is None else f"try again in {answer.retry_after:.3g} s"
        message = answer.message or f"refused: {answer.reason}"
        known = ("fits in ", "try again in ", "can never fit")  # a server's message says it already
        super().__init__(message if any(text in message for text in known) else f"{message} ({when})")
        self.answer = answer
        self.reason: str = answer.reason
        self.policy: str = answer.policy
        self.limit: str = answer.limit
        self.retry_after: float | None = answer.retry_after
        self.reset_at: datetime | None = answer.reset_at
        self.limits: tuple[Limit, ...] = answer.limits


class CircuitOpen(Error):
    """Calls failed so often that none is made for a time. Nothing was spent.

    Attributes:
        retry_after: seconds after which a call may try.
        recovery: the same as an instant. Nobody knows whether that call will succeed.
    """

    def __init__(self, name: str, retry_after: float, recovery: datetime) -> None:
        super().__init__(f"calls to {name} have failed, so none is made for now: try again in {retry_after:.3g} s")
        self.retry_after = retry_after
        self.recovery = recovery


class Unavailable(Error):
    """Nobody decided. Look at `may_have_spent` before you try again."""

    def __init__(self, message: str, *, may_have_spent: bool) -> None:
        super().__init__(message)
        self.may_have_spent = may_have_spent


class ServerUnavailable(Unavailable):
    """The server did not answer in time, or it is stopping."""


class StoreUnavailable(Unavailable):
    """The server answered that its store is unavailable."""


class HoldLost(Error):
    """A reservation could not be renewed, or was reset. Its units or its slot may belong to somebody else by now."""


class Problem(Error):
    """The server did not decide because the request is wrong, or not permitted.

    Attributes:
        code: for programs, as listed in docs/http.md; "" if the answer is not from a Drawgate server.
        status: the HTTP status.
    """

    def __init__(self, message: str, *, code: str = "", status: int = 0) -> None:  # Celery knows only the message
        super().__init__(message)
        self.code = code
        self.status = status
