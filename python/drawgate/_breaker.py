"""A circuit breaker for calls to an upstream."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

from ._errors import CircuitOpen, Error

log = logging.getLogger("drawgate")


class Breaker:
    """Stops calls to an upstream that fails. Give it to `reserve` or `limited`; it is safe for concurrent use.

    It is closed until `failures` calls in a row have failed. Then it is open: calls fail at once
    with `CircuitOpen` and spend nothing. After `open_for` seconds one call at a time may try. After
    `successes` of them in a row it is closed again; one that fails opens it again.

    A failure is an exception that leaves the block. The errors of this package are none, and neither
    is a cancellation. Its state belongs to this process.

    Args:
        name: of the upstream, for errors.
        failures: how many in a row open it.
        open_for: seconds.
        successes: how many in a row close it.
        failed: says whether an exception is a failure of the upstream; by default each is one.
    """

    def __init__(
        self,
        name: str = "the upstream",
        *,
        failures: int = 5,
        open_for: float = 60.0,
        successes: int = 2,
        failed: Callable[[Exception], bool] = lambda _: True,
    ) -> None:
        self._name, self._failures, self._open_for, self._successes, self._failed = (
            name,
            failures,
            open_for,
            successes,
            failed,
        )
        self._count = 0  # failures in a row while it is closed, successes while it is half-open
        self._since: float | None = None  # when it opened, or when a trial failed; None: closed
        self._opened = 0  # how often
        self._renew()
        _breakers.add(self)

    def _renew(self) -> None:
        """Begins a process: in a forked one, another thread may have held the lock, and a trial is the parent's."""
        self._lock = threading.Lock()
        self._trial: weakref.ref[_Attempt] | None = None  # under way, unless nobody has it any more

    @property
    def state(self) -> str:
        """closed, open, or half-open: then one call at a time may try."""
        with self._lock:
            if self._since is None:
                return "closed"
            return "open" if self._wait() > 0 else "half-open"

    def _wait(self) -> float:
        return 0.0 if self._since is None else self._since + self._open_for - time.monotonic()

    def _check(self) -> None:
        """Raises CircuitOpen if no call may be made now."""
        with self._lock:
            self._refuse()

    def _refuse(self) -> None:
        if self._since is None:
            return
        wait = self._wait()
        if wait <= 0:
            if not self._trial or not self._trial():
                return
            wait = 1.0  # the trial may take any time
        raise CircuitOpen(self._name, wait, datetime.now(timezone.utc) + timedelta(seconds=wait))

    def _begin(self) -> _Attempt:
        """Lets a call through, which must be ended. While the breaker is half-open it is the trial."""
        with self._lock:
            self._refuse()
            attempt = _Attempt(self, self._since is not None, self._opened)
            if attempt.trial:
                self._trial = weakref.ref(attempt)
            return attempt

    def _counts(self, error: Exception) -> bool:
        try:
            return self._failed(error)
        except Exception:  # the reservation and the trial have to end, whatever failed= does
            log.exception("failed= of the breaker for %s raised: this counts as a failure", self._name)
            return True

    def _end(self, attempt: _Attempt, error: BaseException | None) -> None:
        dropped = isinstance(error, Error) or (error is not None and not isinstance(error, Exception))
        failed = isinstance(error, Exception) and not dropped and self._counts(error)
        with self._lock:
            if attempt.trial:
                self._trial = None
            elif attempt.opened != self._opened:
                return  # it opened while the call ran
            if dropped or (error is not None and not failed):
                return
            if failed:
                self._count = 0 if attempt.trial else self._count + 1
                if attempt.trial or self._count >= self._failures:
                    self._count, self._since, self._opened = 0, time.monotonic(), self._opened + 1
            elif not attempt.trial:
                self._count = 0
            else:
                self._count += 1
                if self._count >= self._successes:
                    self._count, self._since = 0, None


_breakers: weakref.WeakSet[Breaker] = weakref.WeakSet()


def _forked() -> None:
    for breaker in list(_breakers):
        breaker._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class _Attempt:
    """A call that was let through."""

    def __init__(self, breaker: Breaker, trial: bool, opened: int) -> None:
        self.breaker, self.trial, self.opened = breaker, trial, opened

    def end(self, error: BaseException | None) -> None:
        """Says how the call ended: it is called once."""
        self.breaker._end(self, error)
