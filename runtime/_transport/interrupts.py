"""Signal handlers that raise only where that harms nothing and is not lost: never while their thread holds a lock of
shared state, nor inside one of our finalizers, whose exceptions Python only reports."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import FrameType

AGAIN_S = 0.002
"""How soon a signal that came at a bad moment is sent again."""

_FINALIZERS = frozenset({"__del__", "died"})
"""Names of the functions of this package that run when an object dies. They are short; those of the user may wait, and
must be interrupted."""
_IMPORTER = "importlib._bootstrap"


class Interrupts:
    """The locks under which a thread must not be interrupted. They have to be reentrant."""

    def __init__(self, *locks: threading.RLock) -> None:
        self._checks = [threading.Condition(lock) for lock in locks]

    def may_raise(self, frame: FrameType | None, retry: Callable[[], None]) -> bool:
        """For a signal handler, with the frame it was given: whether it may raise now. If not, `retry` runs a moment
        later, on another thread, to send the signal again."""
        if not self._holds_a_lock() and not _finalizes(frame):
            return True
        later(retry)
        return False

    def _holds_a_lock(self) -> bool:
        for check in self._checks:
            try:
                check.notify()  # nobody waits for it: it only raises where this thread does not hold the lock
            except RuntimeError:
                continue
            return True
        return False


def later(retry: Callable[[], None]) -> None:
    """Has `retry` run after `AGAIN_S`, on another thread."""
    timer = threading.Timer(AGAIN_S, retry)
    timer.daemon = True
    timer.start()


def imports(frame: FrameType | None) -> bool:
    """Whether a module is being imported there. An exception takes the module out of `sys.modules` and leaves in the
    submodules that it had imported: where it holds compiled ones, importing it once more fails for good."""
    while frame is not None:
        if frame.f_code.co_name == "_find_and_load" and frame.f_globals.get("__name__") == _IMPORTER:
            return True
        frame = frame.f_back
    return False


def _finalizes(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name in _FINALIZERS and frame.f_globals.get("__name__", "").startswith("runtime."):
            return True
        frame = frame.f_back
    return False
