"""The trial that runs in this process: how `runtime.tune`'s functions reach it."""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from runtime.tune._api.exceptions import TuneError
from runtime.tune._core.messages import Batch

if TYPE_CHECKING:
    from runtime.tune._core.trial import Saved
    from runtime.tune._run.place import TrialPlace


class Left(BaseException):
    """The function is to end: the trial was stopped or paused. No `Exception`, so that a function which goes on after
    errors ends, too."""


class Session:
    """One run of a trial's function, in a thread of its own. The function stops at a report until the experiment asks
    for the next result.

    Args:
        place: of the trial.
        function: without arguments; a dict or a number that it returns is a last report.
    """

    def __init__(self, place: TrialPlace, function: Callable[[], Any]) -> None:
        self.place = place
        self._function = function
        self.context = contextvars.copy_context()
        """Of the runner's actor: in it this process knows the actor."""
        self._lock = threading.Condition()
        self._results: deque[tuple[dict[str, Any], Saved | None]] = deque()
        self._reported = 0
        self._allowed = 0
        self._is_leaving = False
        self._has_ended = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"trial {place.trial_id}", daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    # ------------------------------------------------------------ the function's side

    def report(self, metrics: dict[str, Any], checkpoint: Any, copies: bool = True) -> None:
        """See `runtime.tune.report`.

        Args:
            copies: whether the checkpoint's files are copied; otherwise they stay where they are.

        Raises:
            Left: the function is to end.
        """
        self._check()
        saved = self.place.save(checkpoint, metrics, copies=copies) if checkpoint is not None else None
        result = self.place.filled(metrics, saved)
        with self._lock:
            self._results.append((result, saved))
            self._reported += 1
            self._lock.notify_all()
            while self._allowed < self._reported + 1 and not self._is_leaving:
                self._lock.wait()
        self._check()
        self.place.resumed()

    def relay(self, metrics: dict[str, Any], checkpoint: Any) -> None:
        """Reports in the name of the function. From any thread.

        Raises:
            TuneError: the trial was stopped or paused.
        """
        try:
            self.report(metrics, checkpoint, copies=False)
        except Left:
            raise TuneError(f"The trial {self.place.trial_id} was stopped or paused.") from None

    def _check(self) -> None:
        if self._is_leaving:
            raise Left

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            self._wait_for_turn()
            last = self._function()
            if isinstance(last, int | float):
                last = {"_metric": last}  # Ray's name for it
            if isinstance(last, dict) and last:
                self._append(last)
        except Left:
            pass
        except BaseException as raised:  # the trial's own: told to the experiment
            error = raised
        with self._lock:
            self._error = error
            self._has_ended = True
            self._lock.notify_all()

    def _wait_for_turn(self) -> None:
        with self._lock:
            while not self._allowed and not self._is_leaving:
                self._lock.wait()
        self._check()

    def _append(self, metrics: dict[str, Any]) -> None:
        result = self.place.filled(metrics, None)
        with self._lock:
            self._results.append((result, None))

    # ------------------------------------------------------------ the runner's side

    def proceed(self, ahead: int) -> Batch:
        """Has the function go on; returns when it has reported or ended.

        Args:
            ahead: how many results it may give before it waits.

        Raises:
            BaseException: what the function raised, once its results were taken.
        """
        with self._lock:
            self._allowed = max(self._allowed, self._reported + ahead)
            self._lock.notify_all()
            while not self._results and not self._has_ended:
                self._lock.wait()
            results = list(self._results)
            self._results.clear()
            if self._error is not None and not results:
                raise self._error
            return Batch(results, self._has_ended and self._error is None)

    def leave(self, timeout_s: float) -> bool:
        """Has the function end. Returns whether it did."""
        with self._lock:
            self._is_leaving = True
            self._lock.notify_all()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()


_session: Any = None


def set_current(session: Any) -> None:
    """The trial of this process; None: there is none any more."""
    global _session
    _session = session


def current_or_none() -> Any:
    """The session of this process; None: it runs no trial."""
    return _session
