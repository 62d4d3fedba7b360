"""Waiting for what becomes true on its own."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(condition: Callable[[], object], timeout_s: float = 60.0) -> bool:
    """Whether `condition()` becomes true in time. Ask for what must happen, never for how fast."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def stays(condition: Callable[[], object], looks: int = 10) -> bool:
    """Whether `condition()` is true on every look, so that no report that says otherwise is still on its way."""
    for _ in range(looks):
        if not condition():
            return False
        time.sleep(0.02)
    return True
