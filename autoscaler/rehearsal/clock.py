"""Simulated time: a heap of things to come. Nothing sleeps."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from functools import partial

START_S = 1_000_000.0
"""The unix time at which rehearsals begin; 0 means "never" to the autoscaler."""


class Clock:
    """The time, and what is to happen. Things of the same moment happen in the order in which they were asked for.

    Attributes:
        now: unix time.
        pending: how many things are to come that change the world. Decisions (see `call_at`) are not among them:
            there is always a next one.
    """

    def __init__(self) -> None:
        self.now = START_S
        self.pending = 0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    @property
    def elapsed_s(self) -> float:
        """Since the rehearsal began."""
        return self.now - START_S

    @property
    def next_s(self) -> float:
        """When the next thing happens."""
        return self._heap[0][0] if self._heap else math.inf

    @property
    def last_s(self) -> float:
        """When the last one does, as far as is known."""
        return max((when_s for when_s, _, _ in self._heap), default=self.now)

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Something will change the world."""
        self.pending += 1
        self.call_at(self.now + delay_s, partial(self._happen, action))

    def call_at(self, when_s: float, action: Callable[[], None]) -> None:
        """Somebody will have a look."""
        heapq.heappush(self._heap, (when_s, next(self._numbers), action))

    def advance(self) -> None:
        """Goes on to the next moment, and lets everything of that moment happen."""
        self.now = max(self.now, self.next_s)
        while self.next_s <= self.now:
            heapq.heappop(self._heap)[2]()

    def _happen(self, action: Callable[[], None]) -> None:
        self.pending -= 1
        action()
