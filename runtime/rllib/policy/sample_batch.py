"""`SampleBatch` and `MultiAgentBatch`: dicts of columns, as replay buffers and offline data give them to learners."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from runtime.rllib._core import trees
from runtime.rllib._core.types import DEFAULT_MODULE_ID, ModuleID
from runtime.rllib.core.columns import Columns

__all__ = [
    "DEFAULT_POLICY_ID",
    "MultiAgentBatch",
    "SampleBatch",
    "concat_samples",
    "concat_samples_into_ma_batch",
]

DEFAULT_POLICY_ID = DEFAULT_MODULE_ID


class SampleBatch(dict[str, Any]):
    """Columns of one module, each a tree of arrays [rows, ...].

    As in a dict, columns are got and set by name. An integer gives one row as a dict, a slice gives a batch of views.

    Raises:
        ValueError: columns have different numbers of rows.
    """

    OBS = Columns.OBS
    ACTIONS = Columns.ACTIONS
    REWARDS = Columns.REWARDS
    TERMINATEDS = Columns.TERMINATEDS
    TRUNCATEDS = Columns.TRUNCATEDS
    INFOS = Columns.INFOS
    SEQ_LENS = Columns.SEQ_LENS
    T = Columns.T
    NEXT_OBS = Columns.NEXT_OBS
    CUR_OBS = Columns.OBS
    EPS_ID = Columns.EPS_ID
    VF_PREDS = Columns.VF_PREDS
    ACTION_DIST_INPUTS = Columns.ACTION_DIST_INPUTS
    ACTION_LOGP = Columns.ACTION_LOGP
    ACTION_PROB = Columns.ACTION_PROB
    RETURNS_TO_GO = Columns.RETURNS_TO_GO
    DONES = "dones"
    AGENT_INDEX = "agent_index"
    ENV_ID = "env_id"
    UNROLL_ID = "unroll_id"
    VALUES_BOOTSTRAPPED = "values_bootstrapped"
    PREV_ACTIONS = "prev_actions"
    PREV_REWARDS = "prev_rewards"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, column in self.items():
            self[name] = column  # lists become arrays
        lengths = {name: _length(column) for name, column in self.items() if name != Columns.SEQ_LENS}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"Columns of a SampleBatch differ in length: {lengths}")

    def __setitem__(self, name: str, column: Any) -> None:
        super().__setitem__(name, np.asarray(column) if isinstance(column, list) else column)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return self.slice_rows(key)
        if isinstance(key, int | np.integer):
            return {name: trees.take(column, key) for name, column in self.items()}
        return super().__getitem__(key)

    @property
    def count(self) -> int:
        """Rows."""
        return next((_length(column) for name, column in self.items() if name != Columns.SEQ_LENS), 0)

    def __len__(self) -> int:
        return self.count

    def __bool__(self) -> bool:
        return self.count > 0

    def agent_steps(self) -> int:
        return self.count

    def env_steps(self) -> int:
        return self.count

    def size_bytes(self) -> int:
        return sum(leaf.nbytes for column in self.values() for leaf in trees.leaves(column))

    def slice_rows(self, rows: Any) -> SampleBatch:
        """The batch of these rows; a slice gives views."""
        return SampleBatch({name: trees.take(column, rows) for name, column in self.items()})

    def slice(self, start: int, end: int) -> SampleBatch:
        """The rows from `start` to before `end`; views."""
        return self.slice_rows(slice(start, end))

    def rows(self) -> Iterator[dict[str, Any]]:
        """One dict per row."""
        return (self[index] for index in range(self.count))

    def columns(self, keys: Sequence[str]) -> list[Any]:
        """These columns, in this order."""
        return [self[key] for key in keys]

    def shuffle(self) -> SampleBatch:
        """Puts the rows of all columns in one random order, in place."""
        order = np.random.permutation(self.count)
        for name, column in self.items():
            self[name] = trees.take(column, order)
        return self

    def split_by_episode(self, key: str | None = None) -> list[SampleBatch]:
        """One batch per stretch of rows with one episode id; the column `key`, or "eps_id".

        Raises:
            KeyError: there is no such column.
        """
        ids = self[key or Columns.EPS_ID]
        edges = [0, *(np.flatnonzero(ids[1:] != ids[:-1]) + 1).tolist(), self.count]
        return [self.slice(start, end) for start, end in itertools.pairwise(edges)]

    def timeslices(self, size: int | None = None, num_slices: int | None = None) -> list[SampleBatch]:
        """Consecutive parts of `size` rows, or `num_slices` parts of about equal size.

        Raises:
            ValueError: not exactly one of the two was given.
        """
        if (size is None) == (num_slices is None):
            raise ValueError("timeslices() needs either size or num_slices")
        size = size or -(-self.count // (num_slices or 1))
        return [self.slice(start, start + size) for start in range(0, self.count, size)]

    def copy(self, shallow: bool = False) -> SampleBatch:
        """A batch with copies of the arrays; with `shallow`, of the same arrays."""
        if shallow:
            return SampleBatch(self)
        return SampleBatch({name: trees.tree_map(np.copy, column) for name, column in self.items()})

    def concat(self, other: SampleBatch) -> SampleBatch:
        """The rows of this batch, then those of the other."""
        return concat_samples([self, other])

    def as_multi_agent(self, module_id: ModuleID | None = None) -> MultiAgentBatch:
        """The batch of one module."""
        return MultiAgentBatch({module_id or DEFAULT_POLICY_ID: self}, self.count)

    def __repr__(self) -> str:
        return f"SampleBatch({self.count}: {list(self)})"


class MultiAgentBatch:
    """A `SampleBatch` for each of several modules.

    Args:
        policy_batches: module -> its columns.
        env_steps: how many steps of the environment they come from.
    """

    def __init__(self, policy_batches: Mapping[ModuleID, Mapping[str, Any]], env_steps: int) -> None:
        self.policy_batches = {
            name: batch if isinstance(batch, SampleBatch) else SampleBatch(batch)
            for name, batch in policy_batches.items()
        }
        self.count = env_steps

    def env_steps(self) -> int:
        return self.count

    def __len__(self) -> int:
        return self.count

    def agent_steps(self) -> int:
        """Rows of all modules."""
        return sum(batch.count for batch in self.policy_batches.values())

    def size_bytes(self) -> int:
        return sum(batch.size_bytes() for batch in self.policy_batches.values())

    def copy(self) -> MultiAgentBatch:
        return MultiAgentBatch(
            {name: batch.copy() for name, batch in self.policy_batches.items()}, self.count
        )

    def as_multi_agent(self, module_id: ModuleID | None = None) -> MultiAgentBatch:
        return self

    def __getitem__(self, module_id: ModuleID) -> SampleBatch:
        return self.policy_batches[module_id]

    def __contains__(self, module_id: object) -> bool:
        return module_id in self.policy_batches

    def __iter__(self) -> Iterator[ModuleID]:
        return iter(self.policy_batches)

    def keys(self) -> Any:
        return self.policy_batches.keys()

    def values(self) -> Any:
        return self.policy_batches.values()

    def items(self) -> Any:
        return self.policy_batches.items()

    @staticmethod
    def wrap_as_needed(
        policy_batches: Mapping[ModuleID, SampleBatch], env_steps: int
    ) -> SampleBatch | MultiAgentBatch:
        """The batch itself if there is only the default module, else a `MultiAgentBatch`."""
        if set(policy_batches) == {DEFAULT_POLICY_ID}:
            return policy_batches[DEFAULT_POLICY_ID]
        return MultiAgentBatch(policy_batches, env_steps)

    @staticmethod
    def concat_samples(samples: Sequence[SampleBatch | MultiAgentBatch]) -> MultiAgentBatch:
        return concat_samples_into_ma_batch(samples)

    def __repr__(self) -> str:
        return f"MultiAgentBatch({self.policy_batches}, env_steps={self.count})"


def _length(column: Any) -> int:
    return len(next(trees.leaves(column)))


def concat_samples(samples: Sequence[Any]) -> Any:
    """All rows in one batch: a `MultiAgentBatch` if any of them is one, else a `SampleBatch`.

    Raises:
        ValueError: batches have different columns.
    """
    if any(isinstance(sample, MultiAgentBatch) for sample in samples):
        return concat_samples_into_ma_batch(samples)
    filled = [sample for sample in samples if sample.count]
    if not filled:
        return SampleBatch()
    if odd := [sorted(sample) for sample in filled if sample.keys() != filled[0].keys()]:
        raise ValueError(f"Batches to join have different columns: {sorted(filled[0])} and {odd[0]}")
    return SampleBatch({name: trees.concatenate([sample[name] for sample in filled]) for name in filled[0]})


def concat_samples_into_ma_batch(samples: Sequence[SampleBatch | MultiAgentBatch]) -> MultiAgentBatch:
    """All rows, module by module."""
    per_module: dict[ModuleID, list[SampleBatch]] = {}
    steps = 0
    for sample in samples:
        batch = sample.as_multi_agent()
        steps += batch.env_steps()
        for module_id, part in batch.policy_batches.items():
            per_module.setdefault(module_id, []).append(part)
    return MultiAgentBatch({name: concat_samples(parts) for name, parts in per_module.items()}, steps)
