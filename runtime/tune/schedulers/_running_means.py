"""The running means of many curves, each known at the times it was reported."""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from dataclasses import dataclass

RESOLUTION = 1024
"""Cells per unit of time, for times that are not whole numbers."""
INFINITE = math.inf


@dataclass(slots=True)
class _Curve:
    """One curve so far: number and sum of its values, its last time, and the first cell that no mean of it covers."""

    count: int = 0
    total: float = 0.0
    time: float = -INFINITE
    covered: int = 0


class RunningMeans:
    """Answers how a score compares with the median of the running means of the curves at a time.

    A curve's mean at time `t` is the mean of its values up to `t`. It is known for `t` between the curve's first and
    last report, and constant from one report to the next. A report therefore adds a mean that holds for an interval
    of time. Time is cut into cells, and an interval into blocks of 2 ** level cells that start at a multiple of their
    length, as in a segment tree. A block keeps its means sorted. The blocks around a time, one per level, hold all
    means known there, so that a comparison takes one bisection per level that is in use, however many curves there
    are.

    Cells are whole numbers if the first time is an `int`, else 1/1024 of a unit.
    """

    def __init__(self) -> None:
        self._curves: dict[str, _Curve] = {}
        self._levels: list[dict[int, list[float]]] = []
        self._cells_per_unit = 0

    def add(self, curve: str, time: float, value: float) -> None:
        """A curve has a value at a time. It is left out unless it is later than the curve's last one."""
        cell = self._cell(time)
        known = self._curves.get(curve)
        if known is None:
            known = self._curves[curve] = _Curve(covered=cell)
        elif known.covered < cell:
            self._cover(known.covered, cell, known.total / known.count)
        elif time <= known.time:
            return
        known.time = time
        known.count += 1
        known.total += value
        # The latest mean holds at this very time so far; the next report extends it. A second report in one cell
        # does not change what the first has said about it.
        if known.covered <= cell:
            self._cover(cell, cell + 1, known.total / known.count)
            known.covered = cell + 1

    def _cell(self, time: float) -> int:
        if not self._cells_per_unit:
            self._cells_per_unit = 1 if isinstance(time, int) else RESOLUTION
        return math.floor(time * self._cells_per_unit)

    def _cover(self, start: int, end: int, mean: float) -> None:
        """Enters a mean that holds from cell `start` until before cell `end`."""
        if not math.isfinite(mean):
            return
        while start < end:
            level = (end - start).bit_length() - 1
            if start:
                level = min(level, (start & -start).bit_length() - 1)
            while len(self._levels) <= level:
                self._levels.append({})
            insort(self._levels[level].setdefault(start >> level, []), mean)
            start += 1 << level

    def compare(self, time: float, score: float) -> tuple[int, bool]:
        """How many curves have a finite mean at a time, and whether their median is above a score."""
        cell = self._cell(time)
        count = at_most = 0
        below, above = -INFINITE, INFINITE
        for level, blocks in enumerate(self._levels):
            means = blocks.get(cell >> level)
            if not means:
                continue
            split = bisect_right(means, score)
            count += len(means)
            at_most += split
            if split:
                below = max(below, means[split - 1])
            if split < len(means):
                above = min(above, means[split])
        if 2 * at_most == count:
            # The two means in the middle lie on either side of the score.
            return count, count > 0 and (below + above) / 2 > score
        return count, 2 * at_most < count
