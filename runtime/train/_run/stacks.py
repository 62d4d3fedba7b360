"""A rank that reports nothing for much longer than usual says in its log where it is."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)
LOOK_S = 5.0
STALL_S = 60.0
TIMES = 10
"""A pause is a stall if it lasts so many times as long as the usual one, and `STALL_S`."""
LEAST = 2
"""Reports after which it is known what is usual."""


class Pace:
    """How often a rank reports. Pure.

    Args:
        now: when it begins.
    """

    def __init__(self, now: float) -> None:
        self._start_s = self._last_s = now
        self._count = 0
        self._is_told = False

    def stall_s(self, count: int, now: float) -> float:
        """How long the rank has stalled; 0: it has not, or that was told before.

        Args:
            count: reports so far.
        """
        if count != self._count:
            self._count, self._last_s, self._is_told = count, now, False
            return 0.0
        silent_s = now - self._last_s
        usual_s = (self._last_s - self._start_s) / count if count else 0.0
        if self._is_told or count < LEAST or silent_s < max(STALL_S, TIMES * usual_s):
            return 0.0
        self._is_told = True
        return silent_s


def watch(rank: int, reports: Callable[[], int], stack: Callable[[], str], ended: threading.Event) -> None:
    """Watches a rank in a thread until `ended` is set.

    Args:
        reports: how many it has given.
        stack: where it is.
    """

    def look() -> None:
        pace = Pace(time.monotonic())
        while not ended.wait(LOOK_S):
            stall_s = pace.stall_s(reports(), time.monotonic())
            if stall_s:
                log.warning(
                    "rank %d has reported nothing for %.0f s. It is here:\n%s", rank, stall_s, stack()
                )

    threading.Thread(target=look, name="stalls", daemon=True).start()
