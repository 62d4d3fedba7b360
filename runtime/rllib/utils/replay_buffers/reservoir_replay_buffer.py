"""A replay buffer that holds a uniform sample of everything that was ever added (Vitter 1985, algorithm R)."""

from __future__ import annotations

from typing import Any

from runtime.rllib.utils.replay_buffers.replay_buffer import ReplayBuffer, StorageUnit, _Item, _rows


class ReservoirReplayBuffer(ReplayBuffer):
    """`ReplayBuffer` in which each item that was ever added is left with the same probability."""

    def __init__(
        self, capacity: int = 10000, storage_unit: str | StorageUnit = "timesteps", *, seed: int | None = None
    ) -> None:
        super().__init__(capacity, storage_unit, seed=seed)
        self._num_add_calls = 0
        self._num_evicted = 0

    def _add_single_batch(self, item: _Item, **kwargs: Any) -> None:
        self._num_add_calls += 1
        if self._timesteps + _rows(item) <= self.capacity:
            self._storage.append(item)
            self._timesteps += _rows(item)
            return
        index = int(self._rng.integers(0, self._num_add_calls))
        if index < len(self._storage):
            self._num_evicted += 1
            self._timesteps += _rows(item) - _rows(self._storage[index])
            self._storage[index] = item

    def stats(self, debug: bool = False) -> dict[str, Any]:
        """Numbers of time steps and items, added and replaced."""
        return super().stats(debug) | {"num_add_calls": self._num_add_calls, "num_evicted": self._num_evicted}

    def get_state(self) -> dict[str, Any]:
        """Items and numbers."""
        return super().get_state() | {"num_add_calls": self._num_add_calls, "num_evicted": self._num_evicted}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take over the state of a buffer of the same capacity."""
        super().set_state(state)
        self._num_add_calls, self._num_evicted = state["num_add_calls"], state["num_evicted"]
