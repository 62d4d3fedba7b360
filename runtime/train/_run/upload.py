"""Uploads that go on while the training function does."""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec

from runtime.train._core.manifest import PartManifest


def encoded(part: PartManifest) -> bytes:
    """A part as it travels."""
    return msgspec.msgpack.encode(part)


class Uploads:
    """The uploads of one rank, one after another."""

    def __init__(self) -> None:
        self._last: threading.Thread | None = None

    def submit(self, upload: Callable[[], None]) -> None:
        """Begins an upload when the one before it has ended. Waits while that one has not begun."""
        before = self._last
        self.drain(None)
        assert before is None or not before.is_alive()
        self._last = threading.Thread(target=upload, name="upload", daemon=True)
        self._last.start()

    def drain(self, timeout_s: float | None) -> None:
        """Waits until all have ended."""
        if self._last is not None:
            self._last.join(timeout_s)
