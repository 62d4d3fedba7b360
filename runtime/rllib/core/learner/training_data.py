"""What an update learns from, in one of several forms."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import runtime

from ..._core import trees
from ..._core.rollout import Rollout
from ..._core.sharding import shards_by_module, share
from ..._core.types import ModuleID

_FORMS = ("rollouts", "batch", "batches", "batch_refs", "episodes", "episodes_refs", "data_iterators")


@dataclasses.dataclass
class TrainingData:
    """Exactly one form is set.

    rollouts: experience per module; the form in which environment runners of this package give it.
    batch: rows ready for the loss: module id -> column -> array [B, ...]. Objects with `policy_batches` work as well.
    batches: one batch per learner.
    batch_refs: references to batches, which are concatenated.
    episodes: single-agent or multi-agent episodes.
    episodes_refs: references to lists of episodes.
    data_iterators: one iterable of batches per learner.
    """

    batch: Any = None
    batches: list[Any] | None = None
    batch_refs: list[Any] | None = None
    episodes: list[Any] | None = None
    episodes_refs: list[Any] | None = None
    data_iterators: list[Any] | None = None
    rollouts: Mapping[ModuleID, Rollout] | None = None

    def validate(self) -> None:
        """Checks that there is data in exactly one form.

        Raises:
            ValueError: none or several forms are set.
        """
        given = [form for form in _FORMS if getattr(self, form) is not None]
        if len(given) != 1:
            raise ValueError(f"Pass exactly one of {', '.join(_FORMS)} to update(), not {given or 'none'}")

    def solve_refs(self) -> None:
        """Fetches what is given by reference. Episodes whose owner has died are left out."""
        if self.batch_refs is not None:
            self.batch = concatenated(_flat(runtime.get(list(self.batch_refs))))
            self.batch_refs = None
        elif self.episodes_refs is not None:
            self.episodes = []
            for ref in self.episodes_refs:
                try:
                    self.episodes.extend(_flat([runtime.get(ref)]))
                except (runtime.exceptions.ObjectLostError, runtime.exceptions.OwnerDiedError):
                    continue  # a lost runner costs its latest sample, not the update
            self.episodes_refs = None

    def shard(self, count: int) -> list[TrainingData]:
        """The data for each of `count` learners, of nearly equal sizes.

        Raises:
            ValueError: there is another number of batches or iterators than learners.
        """
        if self.rollouts is not None:
            return [TrainingData(rollouts=part) for part in shards_by_module(self.rollouts, count)]
        if self.batch is not None:
            return [TrainingData(batch=part) for part in _batch_shards(columns_by_module(self.batch), count)]
        if self.batch_refs is not None:
            return [TrainingData(batch_refs=part) for part in _dealt(self.batch_refs, count)]
        if self.episodes is not None:
            longest_first = sorted(self.episodes, key=len, reverse=True)
            return [TrainingData(episodes=part) for part in _dealt(longest_first, count)]
        if self.episodes_refs is not None:
            return [TrainingData(episodes_refs=part) for part in _dealt(self.episodes_refs, count)]
        name = "batches" if self.batches is not None else "data_iterators"
        each: list[Any] = getattr(self, name)
        if len(each) != count:
            raise ValueError(f"There are {count} learners, but {len(each)} {name}; pass one for each learner")
        if self.batches is not None:
            return [TrainingData(batch=part) for part in each]
        return [TrainingData(data_iterators=[part]) for part in each]


def columns_by_module(batch: Any) -> dict[ModuleID, dict[str, Any]]:
    """Module id -> columns, of a dict of these or of an object with `policy_batches`."""
    return {
        module_id: dict(columns) for module_id, columns in getattr(batch, "policy_batches", batch).items()
    }


def concatenated(batches: Sequence[Any]) -> dict[ModuleID, dict[str, Any]]:
    """One batch of the rows of all batches. A module needs the same columns in each batch that has it."""
    parts: dict[ModuleID, list[dict[str, Any]]] = {}
    for batch in batches:
        for module_id, columns in columns_by_module(batch).items():
            parts.setdefault(module_id, []).append(columns)
    return {module_id: trees.concatenate(each) for module_id, each in parts.items()}


def row_count(columns: Mapping[str, Any]) -> int:
    """Rows of a batch of one module: the first dimension of its arrays."""
    return len(next(trees.leaves(columns)))


def _batch_shards(batch: dict[ModuleID, dict[str, Any]], count: int) -> list[dict[ModuleID, dict[str, Any]]]:
    result: list[dict[ModuleID, dict[str, Any]]] = [{} for _ in range(count)]
    for module_id, columns in batch.items():
        rows = row_count(columns)
        borders = np.linspace(0, rows, count + 1).astype(int) if rows >= count else None
        for i, shard in enumerate(result):
            part = slice(None) if borders is None else slice(borders[i], borders[i + 1])
            shard[module_id] = trees.take(columns, part)
    return result


def _dealt(items: Sequence[Any], count: int) -> list[list[Any]]:
    return share(items, count) if len(items) >= count else [list(items)] * count


def _flat(items: Sequence[Any]) -> list[Any]:
    return [each for item in items for each in (_flat(item) if isinstance(item, list | tuple) else [item])]
