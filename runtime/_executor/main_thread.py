"""The main thread of a worker. A task on it is interrupted by a signal, whose handler raises KeyboardInterrupt."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType

from runtime._owner.context import Execution
from runtime._transport import interrupts
from runtime._transport.pump import Pump

IMPORT_GRACE_S = 10.0
"""How long an interrupt waits for an import to end: the worker goes on to other tasks, which may need that module. A
module that runs for longer, as a program does, is interrupted."""


class MainThread:
    """What runs on the main thread.

    Attributes:
        thread: the thread itself.
        running: the task or call that runs on it, from its first line of user code to its last.
    """

    def __init__(self, pump: Pump, thread: threading.Thread) -> None:
        self.thread = thread
        self.running: Execution | None = None
        self._pump = pump
        self._target: Execution | None = None  # what is to be interrupted
        self._spare_imports_until = 0.0
        self._held = 0
        signal.signal(signal.SIGINT, self._interrupted)

    def interrupt(self, running: Execution) -> None:
        """Raises KeyboardInterrupt in a task that is marked as cancelled. From any thread. It may have ended when the
        signal comes, or see its mark when it begins: then nothing happens."""
        self._target = running
        self._spare_imports_until = time.monotonic() + IMPORT_GRACE_S
        self._send_signal()

    @property
    def is_interrupted(self) -> bool:
        """Whether an interrupt of what runs has not been raised yet."""
        return self._target is not None and self._target is self.running

    def hold_back(self) -> None:
        """Until `let_through` no interrupt is raised. Only for a moment, or while `is_interrupted` is watched."""
        self._held += 1

    def let_through(self) -> None:
        """Undoes `hold_back`.

        Raises:
            KeyboardInterrupt: an interrupt was held back.
        """
        self._held -= 1
        if not self._held and self.is_interrupted:
            self._target = None
            raise KeyboardInterrupt

    def _send_signal(self) -> None:
        assert self.thread.ident is not None
        signal.pthread_kill(self.thread.ident, signal.SIGINT)

    def _interrupted(self, _signal: int, frame: FrameType | None) -> None:
        running = self.running
        if running is None or running is not self._target or self._held:
            return
        if interrupts.imports(frame) and time.monotonic() < self._spare_imports_until:
            interrupts.later(self._send_signal)
            return
        if self._pump.interruptible(frame, self._send_signal):
            self._target = None
            raise KeyboardInterrupt
