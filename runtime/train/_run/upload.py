"""Uploads that go on while the training function does."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from runtime.train._core.manifest import PartManifest

WAITING: Final = 1
"""Uploads that may wait while another one is under way. One more has `submit` wait: checkpoints that come faster than
the storage takes them slow the training down rather than fill the disk."""


def encoded(part: PartManifest) -> bytes:
    """A part as it travels."""
    return msgspec.msgpack.encode(part)


class Upload:
    """One upload.

    Attributes:
        error: why it failed; None: it did not, or is not done.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        self.error: BaseException | None = None
        self._work = work
        self._is_done = threading.Event()

    @property
    def is_done(self) -> bool:
        """Whether it has ended."""
        return self._is_done.is_set()

    def wait(self, timeout_s: float | None = None) -> None:
        """Returns when it has ended.

        Raises:
            TimeoutError: it has not in time.
            BaseException: it failed.
        """
        if not self._is_done.wait(timeout_s):
            raise TimeoutError(f"The upload has not ended within {timeout_s:g} s.")
        if self.error is not None:
            raise self.error

    def run(self) -> None:
        """Does it."""
        try:
            self._work()
        except BaseException as error:
            self.error = error
        self._is_done.set()


class Uploads:
    """The uploads of one rank: a thread does one after another. The thread ends when there is none left.

    Args:
        waiting: see `WAITING`.
    """

    def __init__(self, waiting: int = WAITING) -> None:
        self._most_waiting = waiting
        self._changed = threading.Condition()
        self._waiting: deque[Upload] = deque()
        self._current: Upload | None = None
        self._is_cancelled = False

    @property
    def is_cancelled(self) -> bool:
        """Whether `cancel` was called. An upload under way looks at this."""
        return self._is_cancelled

    def submit(self, upload: Callable[[], None]) -> Upload:
        """Has an upload done after those before it. Waits while as many as may wait do.

        Args:
            upload: the work, in the thread of the uploads.
        """
        handle = Upload(upload)
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_cancelled or self._current is None or len(self._waiting) < self._most_waiting
            )
            self._waiting.append(handle)
            if self._current is None:
                self._current = self._waiting.popleft()
                threading.Thread(target=self._run, name="uploads", daemon=True).start()
        return handle

    def drain(self, timeout_s: float | None) -> bool:
        """Waits until all have ended; returns whether they have."""
        with self._changed:
            return self._changed.wait_for(lambda: self._current is None, timeout_s)

    def cancel(self) -> None:
        """Has those that are under way or wait end soon: they see `is_cancelled`. `submit` does not wait any more."""
        with self._changed:
            self._is_cancelled = True
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                current = self._current
            assert current is not None
            current.run()
            with self._changed:
                self._current = self._waiting.popleft() if self._waiting else None
                self._changed.notify_all()
                if self._current is None:
                    return
