"""Waiting for what becomes true on its own."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(condition: Callable[[], object], timeout_s: float = 60.0) -> bool:
    """Whether `condition()` becomes true in time. Ask for what must happen, never for how fast.

    A look that takes long, as it starts a command, is repeated after a pause as long, up to a second: what it waits for
    needs the processors, too.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        looked_s = time.monotonic()
        if condition():
            return True
        now_s = time.monotonic()
        if now_s > deadline:
            return False
        time.sleep(min(max(0.02, now_s - looked_s), 1.0))


def stays(condition: Callable[[], object], looks: int = 10) -> bool:
    """Whether `condition()` is true on every look, so that no report that says otherwise is still on its way."""
    for _ in range(looks):
        if not condition():
            return False
        time.sleep(0.02)
    return True
