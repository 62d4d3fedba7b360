"""Ranges of a node's shared memory that its agent has set aside for processes, which place their objects there without
asking. Pure.

A range belongs to the process until it says that an object lies in a part of it, or that it needs a part no more.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Hashable, Iterable

from .allocator import Allocator, rounded

Holder = Hashable
Range = tuple[int, int]
"""Where it begins, and how long it is."""


class Allotments:
    """Who was allotted what, as the agent sees it. Allotted space is neither used nor free in `allocator`.

    Args:
        share: of the memory; while more than this part is used or allotted, nothing (more) is allotted.
    """

    def __init__(self, allocator: Allocator, share: float) -> None:
        self._allocator = allocator
        self._limit = int(allocator.capacity * share)
        self._ranges: dict[Holder, list[Range]] = {}
        self.allotted_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def holders(self) -> list[Holder]:
        """Who has been allotted something."""
        return list(self._ranges)

    def allot(self, holder: Holder, size_bytes: int, count: int) -> list[Range]:
        """Sets space aside for up to `count` objects of this size; none when memory is short."""
        allocator = self._allocator
        size, _ = rounded(size_bytes)
        given: list[Range] = []
        for _ in range(count):
            if allocator.used_bytes + self.allotted_bytes + size > self._limit:
                break
            start = allocator.allocate(size)
            if start is None:
                break
            allocator.release(start)
            self.allotted_bytes += size
            if given and sum(given[-1]) == start:
                given[-1] = given[-1][0], given[-1][1] + size
            else:
                given.append((start, size))
        if given:
            mine = self._ranges.setdefault(holder, [])
            for each in given:
                insort(mine, each)
        return given

    def take(self, holder: Holder, offset: int, size_bytes: int) -> None:
        """An object lies there now: its block is one of the allocator's.

        Raises:
            ValueError: the range is not the holder's.
        """
        self._cut(holder, offset, rounded(size_bytes)[0])
        self._allocator.take(offset, size_bytes)

    def give_back(self, holder: Holder, ranges: Iterable[Range]) -> None:
        """The holder needs these no more.

        Raises:
            ValueError: a range is not the holder's.
        """
        for start, size in ranges:
            self._cut(holder, start, size)
            self._allocator.add(start, size)

    def drop(self, holder: Holder) -> bool:
        """The holder is gone. True when space came back."""
        ranges = self._ranges.pop(holder, [])
        for start, size in ranges:
            self.allotted_bytes -= size
            self._allocator.add(start, size)
        return bool(ranges)

    def _cut(self, holder: Holder, start: int, size: int) -> None:
        """Takes a part out of what the holder was allotted. Neighbouring ranges may have been allotted apart."""
        mine = self._ranges.get(holder, [])
        index = bisect_right(mine, (start, self._allocator.capacity)) - 1
        left, end = size, start
        if index < 0 or mine[index][0] + mine[index][1] <= start:
            raise ValueError("this range was not allotted")
        first, last = index, index
        while True:
            begins, length = mine[last]
            left -= begins + length - end
            end = begins + length
            if left <= 0:
                break
            last += 1
            if last == len(mine) or mine[last][0] != end:
                raise ValueError("this range was not allotted")
        rest = []
        if mine[first][0] < start:
            rest.append((mine[first][0], start - mine[first][0]))
        if start + size < end:
            rest.append((start + size, end - start - size))
        mine[first : last + 1] = rest
        if not mine:
            del self._ranges[holder]
        self.allotted_bytes -= size
