"""Signal handlers that raise only between changes of shared state: never while their thread holds one of its locks."""

from __future__ import annotations

import threading
from collections.abc import Callable

AGAIN_S = 0.002
"""How soon a signal that came at a bad moment is sent again."""


class Interrupts:
    """The locks under which a thread must not be interrupted. They have to be reentrant."""

    def __init__(self, *locks: threading.RLock) -> None:
        self._checks = [threading.Condition(lock) for lock in locks]

    def may_raise(self, retry: Callable[[], None]) -> bool:
        """For a signal handler: whether it may raise now. If not, `retry` runs a moment later, on another thread, to
        send the signal again."""
        for check in self._checks:
            try:
                check.notify()  # nobody waits for it: it only raises where this thread does not hold the lock
            except RuntimeError:
                continue
            timer = threading.Timer(AGAIN_S, retry)
            timer.daemon = True
            timer.start()
            return False
        return True
