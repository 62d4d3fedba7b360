"""Gives the memory of objects that are gone back to the system, once the store has been left alone for a while.

Until then its pages are kept: writing into touched pages is ten times as fast as into fresh ones.
"""

from __future__ import annotations

import asyncio

from runtime._core.allocator import PAGE, Allocator

from .arena import Arena

IDLE_S = 10.0
STEP_BYTES = 64 << 20
"""Size of one step, which takes some milliseconds, so that the agent can serve others in between."""


class Trimmer:
    """Lives on the agent's loop; has no timer while nothing is to be given back."""

    def __init__(self, allocator: Allocator, arena: Arena, idle_s: float = IDLE_S) -> None:
        self._allocator = allocator
        self._arena = arena
        self._idle_s = idle_s
        self._last_s = 0.0
        self._next = 0  # what lies below has been given back
        self._timer: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        """Memory was taken or has come back."""
        loop = asyncio.get_running_loop()
        self._last_s = loop.time()
        self._next = 0
        if self._timer is None:
            self._timer = loop.call_later(self._idle_s, self._look)

    def close(self) -> None:
        """Gives nothing back any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        left_s = self._last_s + self._idle_s - loop.time()
        if left_s > 0:
            self._timer = loop.call_later(left_s, self._look)
        elif self._step():
            self._timer = loop.call_later(0, self._look)
        else:
            self._timer = None

    def _step(self) -> bool:
        """Gives a part back; returns whether there is more. The holes may be others at every step."""
        left = STEP_BYTES
        for start, size in self._allocator.holes():
            begin = max(start + -start % PAGE, self._next)
            end = min(start + size, self._allocator.touched_bytes)
            end -= end % PAGE
            if begin >= end:
                continue
            length = min(end - begin, left)
            self._arena.give_back(begin, length)
            self._next = begin + length
            left -= length
            if not left:
                return True
        return False
