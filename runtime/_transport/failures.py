"""Errors of callbacks that must not stop their caller: logged with their traceback instead of being passed on."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

log = logging.getLogger(__name__)
QUIET_S = 30.0
"""A callback that fails again within this time is counted, and not logged."""


class Failures:
    """Logs each kind of failure at most once per `QUIET_S`, as a callback may fail again and again."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._last: dict[str, tuple[float, int]] = {}  # when it was logged, and how often it failed since

    def report(self, what: str) -> None:
        """Call it in an `except` block. `what` is a constant: it names the kind of callback."""
        now = self._now()
        at, unsaid = self._last.get(what, (float("-inf"), 0))
        if now - at < QUIET_S:
            self._last[what] = at, unsaid + 1
            return
        self._last[what] = now, 0
        more = f" ({unsaid} more times in the last {now - at:.0f} s)" if unsaid else ""
        log.exception("%s failed%s; the engine goes on", what, more)


report = Failures().report
