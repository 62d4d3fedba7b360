"""What part of their replicas declared applications have. Pure."""

from __future__ import annotations

import math
from collections.abc import Set
from enum import Enum

import msgspec


class Direction(Enum):
    """Which way the capacity was changed last."""

    UP = "UP"
    DOWN = "DOWN"


class Capacity(msgspec.Struct, frozen=True):
    """`percent`: of the replicas of each deployment, 0 to 100; None: all of them."""

    percent: float | None = None
    direction: Direction | None = None

    def of(self, replicas: int) -> int:
        """How many of so many replicas: rounded half up, and none only of none or at 0 %."""
        if self.percent is None or not replicas:
            return replicas
        if not self.percent:
            return 0
        return max(1, math.floor(replicas * self.percent / 100 + 0.5))

    def changed(self, percent: float | None, before: Set[str], after: Set[str]) -> Capacity:
        """With another percentage. Other applications than before begin upwards: they are a new cluster's.

        Args:
            before, after: names of the declared applications.
        """
        if percent is None:
            return FULL
        if before != after:
            return Capacity(percent, Direction.UP)
        if percent == self.percent:
            return self
        if self.percent is None or percent < self.percent:
            return Capacity(percent, Direction.DOWN)
        return Capacity(percent, Direction.UP)


FULL = Capacity()
