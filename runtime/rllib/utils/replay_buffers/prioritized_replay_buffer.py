"""A replay buffer of batches that draws items in proportion to their priorities (Schaul et al. 2016)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from runtime.rllib._core.sum_tree import SumTree
from runtime.rllib.utils.replay_buffers.replay_buffer import ReplayBuffer, StorageUnit


class PrioritizedReplayBuffer(ReplayBuffer):
    """Draws an item with probability proportional to `priority ** alpha`; new items have the largest priority.

    Args:
        alpha: 0 draws all with the same probability.

    Raises:
        ValueError: alpha is not positive.
    """

    def __init__(
        self,
        capacity: int = 10000,
        storage_unit: str | StorageUnit = "timesteps",
        alpha: float = 1.0,
        *,
        seed: int | None = None,
    ) -> None:
        if alpha <= 0:
            raise ValueError(f"`alpha` must be greater than 0, but is {alpha}")
        super().__init__(capacity, storage_unit, seed=seed)
        self._alpha = alpha
        self._max_priority = 1.0
        self._tree = SumTree(capacity)  # an item has at least one time step

    def _stored(self, index: int, weight: float | None = None, **kwargs: Any) -> None:
        priority = self._max_priority if weight is None else weight
        self._tree.set(np.array([index]), np.array([priority**self._alpha]))

    def _dropped(self, index: int) -> None:
        moved = np.arange(index, len(self._storage) + 1)
        self._tree.set(moved, np.append(self._tree.get(moved[1:]), 0.0))

    def sample(self, num_items: int | None = None, beta: float = 0.0, **kwargs: Any) -> Any:
        """A batch with "weights" and "batch_indexes", an item's index for `update_priorities`, in each row.

        Args:
            num_items: items.
            beta: exponent of the importance weights.
        """
        if not self._storage:
            raise ValueError("Trying to sample from an empty buffer: add batches first")
        indexes = self._tree.draw(num_items or 1, self._rng)
        weights = ((self._tree.get(indexes) / self._tree.smallest) ** -beta).astype(np.float32)
        return self._batch_of(indexes, weights=weights, batch_indexes=indexes)

    def update_priorities(
        self, idxes: Sequence[int] | np.ndarray, priorities: Sequence[float] | np.ndarray
    ) -> None:
        """Set the priorities (above 0) of items, by the indexes that `sample` gave."""
        values = np.asarray(priorities, np.float64)
        if (values <= 0).any():
            raise ValueError("Priorities must be greater than 0")
        self._tree.set(np.asarray(idxes, np.int64), values**self._alpha)
        self._max_priority = max(self._max_priority, float(values.max(initial=0)))

    def get_state(self) -> dict[str, Any]:
        """Items, priorities and numbers."""
        priorities = self._tree.get(np.arange(len(self._storage)))
        return super().get_state() | {"priorities": priorities, "max_priority": self._max_priority}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take over the state of a buffer of the same capacity."""
        super().set_state(state)
        self._max_priority = state["max_priority"]
        self._tree = SumTree(self.capacity)
        self._tree.set(np.arange(len(self._storage)), state["priorities"])
