"""Batches that are used several times."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np


class CircularBuffer:
    """Keeps the latest batches, and gives each of them a limited number of times.

    Args:
        num_batches: how many are kept; the oldest makes room for a new one.
        iterations_per_batch: how many times `sample` gives each at most.
        rng: chooses.
    """

    def __init__(
        self, num_batches: int, iterations_per_batch: int, rng: np.random.Generator | None = None
    ) -> None:
        self.num_batches = num_batches
        self.iterations_per_batch = iterations_per_batch
        self._rng = rng or np.random.default_rng()
        self._entries: deque[list[Any]] = deque()  # of [batch, how many times it may be given]
        self._added = 0  # since the beginning or the latest `clear`

    def add(self, batch: Any) -> int:
        """Adds a batch.

        Returns:
            How many uses were lost with the batch that made room.
        """
        lost = 0
        if len(self._entries) == self.num_batches:
            lost = self._entries.popleft()[1]
        self._entries.append([batch, self.iterations_per_batch])
        self._added += 1
        return lost

    def sample(self) -> Any:
        """One of the batches; None if there is none."""
        if not self._entries:
            return None
        chosen = int(self._rng.integers(len(self._entries)))
        entry = self._entries[chosen]
        entry[1] -= 1
        if entry[1] == 0:
            del self._entries[chosen]
        return entry[0]

    @property
    def is_full(self) -> bool:
        """Whether there were as many batches as can be kept."""
        return self._added >= self.num_batches

    def clear(self) -> None:
        """Forgets all batches."""
        self._entries.clear()
        self._added = 0

    def __len__(self) -> int:
        """Number of batches that can be given."""
        return len(self._entries)
