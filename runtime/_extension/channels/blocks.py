"""Where values that do not fit into a slot lie, and when their memory may be reused. Pure.

A reader gives its slot back when it has taken the value, but may keep arrays that lie in the value's block. So blocks
are freed by flags of their own, in any order, and a reader that keeps arrays makes the memory grow instead of stopping
the writer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from runtime._core.allocator import PAGE, Allocator, rounded

LOOKED_AT = 8
"""Blocks that are looked at for each new one; enough to find free ones faster than they are made."""


class Blocks:
    """The blocks of one channel.

    Args:
        size_bytes: the memory to begin with; it grows.
        is_free: whether every reader is done with the block at an offset.
        grow: makes the memory at least so large, before a block lies there.
    """

    def __init__(self, size_bytes: int, is_free: Callable[[int], bool], grow: Callable[[int], None]) -> None:
        self._allocator = Allocator(size_bytes)
        self._is_free = is_free
        self._grow = grow
        self._held: deque[int] = deque()

    @property
    def size_bytes(self) -> int:
        """How large the memory is."""
        return self._allocator.capacity

    @property
    def held(self) -> int:
        """How many blocks are not known to be free."""
        return len(self._held)

    def allocate(self, size_bytes: int) -> int:
        """The offset of a new block, a multiple of 64. The caller sets its flags before the next call."""
        self._reclaim(min(LOOKED_AT, len(self._held)))
        offset = self._allocator.allocate(size_bytes)
        if offset is None:
            self._reclaim(len(self._held))
            offset = self._allocator.allocate(size_bytes)
        if offset is None:
            before = self._allocator.capacity
            more = max(before, rounded(size_bytes)[0] + PAGE)
            more += -more % PAGE
            self._grow(before + more)
            self._allocator.capacity = before + more
            self._allocator.add(before, more)
            offset = self._allocator.allocate(size_bytes)
            assert offset is not None
        self._held.append(offset)
        return offset

    def _reclaim(self, count: int) -> None:
        for _ in range(count):
            offset = self._held.popleft()
            if self._is_free(offset):
                self._allocator.free(offset)
            else:
                self._held.append(offset)
