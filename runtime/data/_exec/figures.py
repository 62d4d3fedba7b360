"""What the operators of an execution have done, in numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Spread:
    """Values seen one by one: how many, their sum, the least and the largest."""

    count: int = 0
    total: float = 0.0
    least: float = 0.0
    most: float = 0.0

    def add(self, value: float) -> None:
        self.least = min(self.least, value) if self.count else value
        self.most = max(self.most, value)
        self.count += 1
        self.total += value

    @property
    def mean(self) -> float:
        """Zero if there was no value."""
        return self.total / self.count if self.count else 0.0


@dataclass(slots=True)
class Figures:
    """What an operator has done.

    Attributes:
        tasks: attempts that were started; each ends as `finished`, `failed`, `retried`, or by being cancelled.
        rows, size_bytes: of each block.
        wall_s, cpu_s: what the task took to make each block.
        paused_s: how long tasks waited, between two blocks, until they could go on.
        begun_s, ended_s: by the clock of the loop.
    """

    tasks: int = 0
    finished: int = 0
    failed: int = 0
    retried: int = 0
    rows: Spread = field(default_factory=Spread)
    size_bytes: Spread = field(default_factory=Spread)
    wall_s: Spread = field(default_factory=Spread)
    cpu_s: Spread = field(default_factory=Spread)
    paused_s: float = 0.0
    begun_s: float | None = None
    ended_s: float | None = None

    def add(self, rows: int, size_bytes: int, told: Mapping[str, Any]) -> None:
        """One more block. `told`: what its task says of it."""
        self.rows.add(rows)
        self.size_bytes.add(size_bytes)
        self.wall_s.add(told.get("task_s", 0.0))
        self.cpu_s.add(told.get("cpu_s", 0.0))
        self.paused_s += told.get("paused_s", 0.0)
