"""Where objects go in the node's shared memory: best fit among the holes, fresh space last. Pure.

Everything below the highest address ever handed out has been touched, so its pages exist and are cheap to
write. Holes are therefore used before the untouched rest, the smallest that fits first, so that small objects
leave big holes whole.
"""

from __future__ import annotations

from bisect import bisect_left, insort

ALIGNMENT = 64
PAGE = 4096
PAGE_ALIGNED_FROM = 1 << 20
"""Blocks of this size or more start on a page."""


class Allocator:
    """Hands out ranges of `[0, capacity)`. A size of 0 takes one unit, so that every block has its own
    offset."""

    __slots__ = ("_by_end", "_by_size", "_by_start", "_taken", "capacity", "touched_bytes", "used_bytes")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity - capacity % PAGE
        self.used_bytes = 0
        self.touched_bytes = 0
        self._taken: dict[int, int] = {}
        self._by_start: dict[int, int] = {}
        self._by_end: dict[int, int] = {}
        self._by_size: list[tuple[int, int]] = []
        if self.capacity:
            self._insert_hole(0, self.capacity)

    def allocate(self, size_bytes: int) -> int | None:
        """Returns the offset of a free block, 64-byte aligned, or None when no hole is large enough."""
        size, alignment = rounded(size_bytes)
        holes = self._by_size
        tail: tuple[int, int] | None = None
        chosen: tuple[int, int] | None = None
        for index in range(bisect_left(holes, (size, 0)), len(holes)):
            hole_size, hole_start = holes[index]
            if -hole_start % alignment + size > hole_size:
                continue
            if hole_start + hole_size == self.capacity:
                tail = holes[index]
                continue
            chosen = holes[index]
            break
        chosen = chosen or tail
        if chosen is None:
            return None
        hole_size, hole_start = chosen
        start = hole_start + -hole_start % alignment
        self._remove_hole(hole_start, hole_size)
        if start > hole_start:
            self._insert_hole(hole_start, start - hole_start)
        rest = hole_start + hole_size - (start + size)
        if rest:
            self._insert_hole(start + size, rest)
        self._taken[start] = size
        self.used_bytes += size
        self.touched_bytes = max(self.touched_bytes, start + size)
        return start

    def free(self, offset: int) -> None:
        """Gives a block back, joining it with the holes beside it."""
        self.add(offset, self.release(offset))

    def release(self, offset: int) -> int:
        """Gives a block up without making a hole of it: somebody else says from now on what lies there. Returns its
        size."""
        size = self._taken.pop(offset)
        self.used_bytes -= size
        return size

    def take(self, offset: int, size_bytes: int) -> None:
        """Undoes `release` for a block that was allotted with this size elsewhere."""
        size, _ = rounded(size_bytes)
        self._taken[offset] = size
        self.used_bytes += size

    def add(self, start: int, size: int) -> None:
        """Makes a hole of a range that is neither hole nor block, joining it with the holes beside it."""
        end = start + size
        below = self._by_end.get(start)
        if below is not None:
            self._remove_hole(below, start - below)
            start = below
        above = self._by_start.get(end)
        if above is not None:
            self._remove_hole(end, above)
            end += above
        self._insert_hole(start, end - start)

    def holes(self) -> list[tuple[int, int]]:
        """`(start, size)` of every hole, by address."""
        return sorted(self._by_start.items())

    def remove_holes(self) -> list[tuple[int, int]]:
        """Gives up every hole; returns them like `holes`."""
        holes = self.holes()
        self._by_start.clear()
        self._by_end.clear()
        self._by_size.clear()
        return holes

    def _insert_hole(self, start: int, size: int) -> None:
        self._by_start[start] = size
        self._by_end[start + size] = start
        insort(self._by_size, (size, start))

    def _remove_hole(self, start: int, size: int) -> None:
        del self._by_start[start]
        del self._by_end[start + size]
        del self._by_size[bisect_left(self._by_size, (size, start))]


def rounded(size_bytes: int) -> tuple[int, int]:
    """The size of the block for an object of this size, and its alignment."""
    alignment = PAGE if size_bytes >= PAGE_ALIGNED_FROM else ALIGNMENT
    return max(size_bytes + -size_bytes % alignment, ALIGNMENT), alignment
