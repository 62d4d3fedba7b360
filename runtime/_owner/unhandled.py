"""Errors of tasks that nobody ever looked at: logged when the last reference to them goes."""

from __future__ import annotations

import logging
import threading
import traceback
from collections import deque

from runtime._system import settings
from runtime._wire import serialization
from runtime._wire.messages.worker import Value
from runtime.exceptions import RayTaskError, TaskCancelledError, WorkerCrashedError

log = logging.getLogger("runtime")


class UnhandledErrors:
    """Logs them on a thread of its own, which ends when there is no more: rebuilding an error runs the user's code,
    and who drops a reference may hold the engine's lock.
    """

    def __init__(self) -> None:
        self._values: deque[Value] = deque()
        self._lock = threading.Lock()
        self._running = False
        self._ignored = settings.IGNORE_UNHANDLED_ERRORS.get_or_default()

    def report(self, value: Value) -> None:
        """`value` is an error, was never read, and nobody can read it any more."""
        if self._ignored:
            return
        with self._lock:
            self._values.append(value)
            if self._running:
                return
            self._running = True
        threading.Thread(target=self._log_all, name="unhandled-errors", daemon=True).start()

    def _log_all(self) -> None:
        while True:
            with self._lock:
                if not self._values:
                    self._running = False
                    return
                value = self._values.popleft()
            text = _described(value.data)
            if text is not None:
                log.error("Unhandled error (suppress with RAY_IGNORE_UNHANDLED_ERRORS=1): %s", text)


def _described(data: bytes) -> str | None:
    """What to log of a serialized error; None for one that needs no line."""
    try:
        error = serialization.deserialize(data)[0]
        if isinstance(error, RayTaskError) and isinstance(error.cause, TaskCancelledError):
            return None  # as somebody wanted
        return str(error) if isinstance(error, RayTaskError | WorkerCrashedError) else None
    except BaseException as failure:  # it is the user's code, which may raise SystemExit too
        reason = "".join(traceback.format_exception_only(failure)).strip()  # even if its `__str__` raises
        return f"an error that cannot be rebuilt here: {reason}"
