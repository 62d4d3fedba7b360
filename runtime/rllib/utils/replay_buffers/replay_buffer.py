"""A replay buffer of batches (dicts of columns): what is stored is time steps, sequences, episodes or whole batches."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from runtime.rllib.utils.replay_buffers.base import ReplayBufferInterface

_Item = dict[str, np.ndarray]


class StorageUnit(enum.Enum):
    """What one item of the buffer is."""

    TIMESTEPS = "timesteps"
    SEQUENCES = "sequences"  # as "seq_lens" of the batch tells
    EPISODES = "episodes"  # complete episodes only, by "eps_id", "t", "terminateds" and "truncateds"
    FRAGMENTS = "fragments"  # a batch that was added


class ReplayBuffer(ReplayBufferInterface):
    """Keeps the newest items and draws them with the same probability.

    Args:
        capacity: time steps; the oldest items are dropped.
        storage_unit: a `StorageUnit` or its value.
        seed: of the draws.

    Raises:
        ValueError: the capacity is not positive, or the storage unit is unknown.
    """

    def __init__(
        self, capacity: int = 10000, storage_unit: str | StorageUnit = "timesteps", *, seed: int | None = None
    ) -> None:
        if capacity <= 0:
            raise ValueError(f"The capacity of a replay buffer must be greater than 0, but is {capacity}")
        try:
            self.storage_unit = StorageUnit(storage_unit)
        except ValueError:
            units = ", ".join(repr(unit.value) for unit in StorageUnit)
            raise ValueError(f"`storage_unit` must be one of {units}, but is {storage_unit!r}") from None
        self.capacity = capacity
        self._rng = np.random.default_rng(seed)
        self._storage: list[_Item] = []
        self._next_idx = 0  # where the next item goes
        self._timesteps = 0  # in the buffer
        self._num_timesteps_added = 0
        self._num_timesteps_sampled = 0
        self._batch_type: type | None = None

    def __len__(self) -> int:
        return len(self._storage)

    def add(self, batch: Mapping[str, Any], **kwargs: Any) -> None:
        """Split a batch of columns [rows, ...] into items and store them."""
        self._batch_type = type(batch)
        columns = {name: np.asarray(column) for name, column in batch.items()}
        for item in _split(columns, self.storage_unit):
            self._num_timesteps_added += _rows(item)
            self._add_single_batch(item, **kwargs)

    def _add_single_batch(self, item: _Item, **kwargs: Any) -> None:
        """Store one item; while time steps are too many, the items from the oldest on give way."""
        if (
            self._next_idx == len(self._storage)
            and self._timesteps + _rows(item) > self.capacity
            and self._storage
        ):
            self._next_idx = 0
        if self._next_idx == len(self._storage):
            self._storage.append(item)
        else:
            self._timesteps -= _rows(self._storage[self._next_idx])
            self._storage[self._next_idx] = item
        self._timesteps += _rows(item)
        self._stored(self._next_idx, **kwargs)
        self._next_idx += 1
        while self._timesteps > self.capacity and self._next_idx < len(self._storage):
            self._timesteps -= _rows(self._storage.pop(self._next_idx))
            self._dropped(self._next_idx)

    def _stored(self, index: int, **kwargs: Any) -> None:
        """Called after an item was stored at this index."""

    def _dropped(self, index: int) -> None:
        """Called after the item at this index was dropped and the later ones moved up."""

    def sample(self, num_items: int | None = None, **kwargs: Any) -> Any:
        """The columns of `num_items` items, joined, as a batch of the type that was added.

        Raises:
            ValueError: the buffer is empty.
        """
        if not self._storage:
            raise ValueError("Trying to sample from an empty buffer: add batches first")
        return self._batch_of(self._rng.integers(0, len(self._storage), num_items or 1))

    def _batch_of(self, indexes: np.ndarray, **more: np.ndarray) -> Any:
        """The batch of these items; each array of `more` has a number per item, repeated for its rows."""
        items = [self._storage[i] for i in indexes]
        columns = {name: np.concatenate([item[name] for item in items]) for name in items[0]}
        lengths = [_rows(item) for item in items]
        columns |= {name: np.repeat(values, lengths) for name, values in more.items()}
        self._num_timesteps_sampled += sum(lengths)
        return columns if self._batch_type in (None, dict) else self._batch_type(columns)

    def stats(self, debug: bool = False) -> dict[str, Any]:
        """Numbers of time steps and items."""
        return {
            "added_count": self._num_timesteps_added,
            "sampled_count": self._num_timesteps_sampled,
            "eviction_started": self._num_timesteps_added > self._timesteps,
            "est_size_bytes": sum(column.nbytes for item in self._storage for column in item.values()),
            "num_entries": len(self._storage),
        }

    def get_state(self) -> dict[str, Any]:
        """Items and numbers."""
        return {
            "_storage": list(self._storage),
            "_next_idx": self._next_idx,
            "added_count": self._num_timesteps_added,
            "sampled_count": self._num_timesteps_sampled,
            "batch_type": self._batch_type,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Take over the state of a buffer of the same capacity."""
        self._storage = list(state["_storage"])
        self._next_idx = state["_next_idx"]
        self._timesteps = sum(_rows(item) for item in self._storage)
        self._num_timesteps_added = state["added_count"]
        self._num_timesteps_sampled = state["sampled_count"]
        self._batch_type = state["batch_type"]


def _rows(item: _Item) -> int:
    return max(len(column) for name, column in item.items() if name != "seq_lens")


def _split(columns: _Item, unit: StorageUnit) -> Iterator[_Item]:
    """The items of a batch."""
    if unit is StorageUnit.FRAGMENTS:
        yield columns
        return
    if unit is StorageUnit.TIMESTEPS:
        bounds = np.arange(_rows(columns) + 1)
    elif unit is StorageUnit.SEQUENCES:
        if "seq_lens" not in columns:
            raise ValueError("A buffer of sequences needs the column 'seq_lens', the length of each sequence")
        bounds = np.concatenate([[0], np.cumsum(columns["seq_lens"])])
    else:
        changes = np.flatnonzero(np.diff(columns["eps_id"])) + 1
        bounds = np.concatenate([[0], changes, [_rows(columns)]])
    rows = {name: column for name, column in columns.items() if name != "seq_lens"}
    for start, end in itertools.pairwise(bounds):
        item = {name: column[start:end] for name, column in rows.items()}
        if unit is StorageUnit.SEQUENCES:
            item["seq_lens"] = np.array([end - start])
        if unit is not StorageUnit.EPISODES or _is_complete(item):
            yield item


def _is_complete(item: _Item) -> bool:
    ended = [bool(item[name][-1]) for name in ("terminateds", "truncateds") if name in item]
    return ("t" not in item or item["t"][0] == 0) and (not ended or any(ended))
