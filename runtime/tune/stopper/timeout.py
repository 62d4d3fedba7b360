"""Ends a study after some time."""

from __future__ import annotations

import datetime
import logging
import time
from collections.abc import Callable
from typing import Any

from .stopper import Stopper

logger = logging.getLogger(__name__)


class TimeoutStopper(Stopper):
    """Ends the study once it has run for some time. `TuneConfig(time_budget_s=...)` makes one.

    The time counts from the first `stop_all`. A stopper that is pickled and restored goes on with the time it has left.

    Args:
        timeout: seconds, or a `datetime.timedelta`.
        clock: returns the time in seconds; by default `time.monotonic`.

    Raises:
        ValueError: `timeout` is neither.
    """

    def __init__(
        self, timeout: float | datetime.timedelta, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if isinstance(timeout, datetime.timedelta):
            timeout = timeout.total_seconds()
        if isinstance(timeout, bool) or not isinstance(timeout, int | float):
            raise ValueError(
                f"timeout must be a number of seconds or a datetime.timedelta, not {type(timeout).__name__}."
            )
        self._timeout_s = timeout
        self._budget_s: float = timeout
        self._clock = clock
        self._last_check: float | None = None

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """False: the time is the study's, not a trial's."""
        return False

    def stop_all(self) -> bool:
        """Whether the time is up."""
        now = self._clock()
        if self._last_check is not None:
            self._budget_s -= now - self._last_check
        self._last_check = now
        if self._budget_s > 0:
            return False
        logger.info("The study's time of %s s is up: all trials are stopped", self._timeout_s)
        return True

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_last_check": None}
