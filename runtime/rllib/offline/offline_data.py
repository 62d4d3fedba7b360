"""Offline data for learners: a data set of `runtime.data`, read once or as a stream, and batches drawn from it."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from runtime.rllib._core import rollout as rollouts_
from runtime.rllib._core import trees
from runtime.rllib._core.rollout import Rollout
from runtime.rllib._core.row_sampler import RowSampler
from runtime.rllib._core.types import Config, ModuleID
from runtime.rllib.core.columns import Columns
from runtime.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch, concat_samples

from . import storage
from .offline_prelearner import OfflinePreLearner

__all__ = ["OfflineData", "OfflinePreLearner"]

_LARGEST_ACTION = 1.001  # of normalized ones, with what rounding may add
_BATCHES_PER_CHUNK = 8  # train batches whose rows are shuffled together when data is streamed


class OfflineData:
    """Draws train batches from the files of `config.input_`.

    With `materialize_data` or `materialize_mapped_data` all rows are read once and held as one rollout per module:
    each row is drawn once per epoch, in an order of `config.seed`. Otherwise the files are streamed again in each
    epoch, and rows are shuffled within a chunk of some batches.

    A pre-learner of the user (`prelearner_class`) that overrides more than the constructor runs in a `map_batches`
    over the data set, and its train batches come as it makes them.

    Args:
        config: see its `offline_data`.

    Raises:
        ValueError: `input_` is not set or nothing lies there, or `input_read_method` is no reader of `runtime.data`.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.is_multi_agent: bool = config.is_multi_agent
        self.path = resolve_input(config.input_)
        self.data_read_method = config.input_read_method
        self.data_read_method_kwargs = dict(config.input_read_method_kwargs)
        filesystem = storage.filesystem_of(config.input_filesystem, config.input_filesystem_kwargs)
        if filesystem is not None:
            self.data_read_method_kwargs["filesystem"] = filesystem
        self.materialize_data: bool = config.materialize_data
        self.materialize_mapped_data: bool = config.materialize_mapped_data
        self.prelearner_class: type[OfflinePreLearner] = config.prelearner_class or OfflinePreLearner
        self.map_batches_kwargs = self.default_map_batches_kwargs | config.map_batches_kwargs
        self.iter_batches_kwargs = self.default_iter_batches_kwargs | config.iter_batches_kwargs
        self.spaces: tuple[Any, Any] | None = None
        self.module_spec: Any = None
        self.data = storage.reader(self.data_read_method)(self.path, **self.data_read_method_kwargs)
        if self.materialize_data and not self.held:
            self.data = self.data.materialize()
        self._rng = np.random.default_rng(config.seed)
        self._samplers: dict[ModuleID, RowSampler] | None = None  # of the held rows or of the running chunk
        self._chunks: Iterator[dict[ModuleID, Rollout]] | None = None
        self._mapped: Any = None
        self._mapped_batches: Iterator[MultiAgentBatch] | None = None
        self._rows: int | None = None

    @property
    def default_map_batches_kwargs(self) -> dict[str, Any]:
        return {"concurrency": max(2, self.config.num_learners), "zero_copy_batch": True}

    @property
    def default_iter_batches_kwargs(self) -> dict[str, Any]:
        return {"prefetch_batches": 2}

    @property
    def held(self) -> bool:
        """Whether all rows are in memory."""
        return self.prelearner_class.is_plain() and (self.materialize_data or self.materialize_mapped_data)

    def num_rows(self) -> int:
        """Steps in the data: one epoch. Of recorded episodes and sample batches, their steps."""
        if self._rows is None:
            if self.held:
                self._rows = sum(sampler.rollout.rows for sampler in self._held_samplers().values())
            elif self.config.input_read_episodes or self.config.input_read_sample_batches:
                self._rows = sum(part.rows for chunk in self._one_epoch(256) for part in chunk.values())
            else:
                self._rows = int(self.data.count())
        return self._rows

    def sample(
        self,
        num_samples: int,
        return_iterator: bool = False,
        num_shards: int = 1,
        module_state: dict[str, Any] | None = None,
    ) -> Any:
        """Rows in random order.

        Args:
            num_samples: rows of each module.
            return_iterator: return endless iterators over such batches instead of one batch.
            num_shards: how many iterators, for as many learners.
            module_state: given to the constructor of a pre-learner of the user.

        Returns:
            A `MultiAgentBatch` whose columns are the recorded ones, "new_obs", "terminateds" and "truncateds"; or a
            list of iterators over them.
        """
        if return_iterator:
            return [self._endless(num_samples, module_state) for _ in range(max(1, num_shards))]
        if not self.prelearner_class.is_plain():
            return self._next_mapped(num_samples, module_state)
        parts: dict[ModuleID, list[SampleBatch]] = {}
        wanted: dict[ModuleID, int] = {}
        while not wanted or any(left > 0 for left in wanted.values()):
            for module_id, sampler in self._current(num_samples, wanted, segments=False).items():
                left = wanted.setdefault(module_id, num_samples)
                if left > 0:
                    batch = SampleBatch(sampler.rows(left))
                    parts.setdefault(module_id, []).append(batch)
                    wanted[module_id] -= batch.count
        batches = {module_id: concat_samples(some) for module_id, some in parts.items()}
        return MultiAgentBatch(batches, max(batch.count for batch in batches.values()))

    def sample_rollouts(self, num_rows: int) -> dict[ModuleID, Rollout]:
        """Whole segments of episodes in random order, `num_rows` rows of each module; the last segment is cut.

        Raises:
            ValueError: the pre-learner is one of the user's, which gives no segments.
        """
        if not self.prelearner_class.is_plain():
            raise ValueError(
                f"{self.prelearner_class.__name__} gives train batches, but value targets and recurrent modules need "
                "episodes: override `rollouts` only in a pre-learner for them, or use `BC`, `IQL` or `CQL`"
            )
        parts: dict[ModuleID, list[Rollout]] = {}
        wanted: dict[ModuleID, int] = {}
        while not wanted or any(left > 0 for left in wanted.values()):
            for module_id, sampler in self._current(num_rows, wanted, segments=True).items():
                left = wanted.setdefault(module_id, num_rows)
                if left > 0:
                    rollout = sampler.segments(left)
                    parts.setdefault(module_id, []).append(rollout)
                    wanted[module_id] -= rollout.rows
        return {module_id: rollouts_.concatenate(some) for module_id, some in parts.items()}

    # Held or streamed rows

    def _current(
        self, num_rows: int, wanted: dict[ModuleID, int], *, segments: bool
    ) -> dict[ModuleID, RowSampler]:
        """The held rows, or a chunk with rows left and with rows of a module that still wants some."""
        if self.held:
            return self._held_samplers()
        if self._samplers is not None:
            left = [s.segments_left if segments else s.rows_left for s in self._samplers.values()]
            of_use = not wanted or any(wanted.get(module_id, 1) > 0 for module_id in self._samplers)
            if any(left) and of_use:
                return self._samplers
        self._samplers = {
            module_id: self._sampler(rollout) for module_id, rollout in self._next_chunk(num_rows).items()
        }
        return self._samplers

    def _held_samplers(self) -> dict[ModuleID, RowSampler]:
        if self._samplers is None:
            chunks = list(self._one_epoch(None))
            modules = dict.fromkeys(module_id for chunk in chunks for module_id in chunk)
            self._samplers = {
                module_id: self._sampler(
                    rollouts_.concatenate([chunk[module_id] for chunk in chunks if module_id in chunk])
                )
                for module_id in modules
            }
        return self._samplers

    def _sampler(self, rollout: Rollout) -> RowSampler:
        if getattr(self.config, "needs_normalized_actions", False):
            largest = max(
                float(np.abs(leaf).max()) for leaf in trees.leaves(rollout.columns[Columns.ACTIONS])
            )
            if largest > _LARGEST_ACTION:
                raise ValueError(
                    f"The offline data has actions of up to {largest:.4g}, but {type(self.config).__name__} learns "
                    "from actions in [-1, 1], as modules give them before they are scaled to the action space. Scale "
                    "them in the files, or in a pre-learner: 2 * (actions - low) / (high - low) - 1"
                )
        return RowSampler(rollout, self._rng)

    def _next_chunk(self, num_rows: int) -> dict[ModuleID, Rollout]:
        rows = self.config.input_read_batch_size or num_rows * _BATCHES_PER_CHUNK
        for _ in range(2):
            if self._chunks is None:
                self._chunks = self._one_epoch(rows)
            chunk = next(self._chunks, None)
            if chunk is not None:
                return chunk
            self._chunks = None
        raise ValueError(f"There is no row of offline data in {self.path}")

    def _one_epoch(self, batch_size: int | None) -> Iterator[dict[ModuleID, Rollout]]:
        """Rollouts of consecutive rows; None: of all rows at once."""
        prelearner = self._prelearner()
        found = False
        for batch in self._tables(batch_size):
            rollouts = {name: part for name, part in prelearner.rollouts(batch).items() if part.rows}
            if rollouts:
                found = True
                yield rollouts
        if not found:
            raise ValueError(f"There is no row of offline data in {self.path}")

    def _tables(self, batch_size: int | None) -> Iterator[dict[str, Any]]:
        options = {"batch_format": "numpy", **self.iter_batches_kwargs}
        if batch_size is not None:
            yield from self.data.iter_batches(**{**options, "batch_size": batch_size})
            return
        options = {name: value for name, value in options.items() if not name.startswith("local_shuffle")}
        blocks = list(self.data.iter_batches(**{**options, "batch_size": None}))
        if blocks:
            names = [name for name in blocks[0] if all(name in block for block in blocks)]
            yield {name: _joined([block[name] for block in blocks]) for name in names}

    def _prelearner(self, module_state: dict[str, Any] | None = None) -> OfflinePreLearner:
        return self.prelearner_class(**self._prelearner_kwargs(module_state))

    def _prelearner_kwargs(self, module_state: dict[str, Any] | None) -> dict[str, Any]:
        return {
            "config": self.config,
            "spaces": self.spaces,
            "module_spec": self.module_spec,
            "module_state": module_state,
        }

    # Batches of a pre-learner of the user

    def _next_mapped(self, num_samples: int, module_state: dict[str, Any] | None) -> MultiAgentBatch:
        if self._mapped is None:
            self._mapped = self.data.map_batches(
                self.prelearner_class,
                fn_constructor_kwargs=self._prelearner_kwargs(module_state),
                batch_size=self.config.input_read_batch_size or num_samples,
                **self.map_batches_kwargs,
            )
            if self.materialize_mapped_data:
                self._mapped = self._mapped.materialize()
        for _ in range(2):
            if self._mapped_batches is None:
                self._mapped_batches = map(
                    _unflattened,
                    self._mapped.iter_batches(
                        **{"batch_format": "numpy", **self.iter_batches_kwargs, "batch_size": num_samples}
                    ),
                )
            batch = next(self._mapped_batches, None)
            if batch is not None:
                return batch
            self._mapped_batches = None
        raise ValueError(f"{self.prelearner_class.__name__} gave no row of the offline data in {self.path}")

    def _endless(self, num_samples: int, module_state: dict[str, Any] | None) -> Iterator[MultiAgentBatch]:
        while True:
            yield self.sample(num_samples, module_state=module_state)


def resolve_input(source: Any) -> str | list[str]:
    """The paths of `input_`: a path, a glob expression, a URI or a list of them.

    Raises:
        ValueError: it is none of them, or a glob expression matches nothing.
    """
    if isinstance(source, os.PathLike):
        source = os.fspath(source)
    if isinstance(source, str) and source != "sampler":
        if "://" in source or not glob.has_magic(source):
            return source
        found = sorted(glob.glob(source))
        if not found:
            raise ValueError(f"No file of offline data matches {source!r}")
        return found
    if isinstance(source, Sequence) and not isinstance(source, str) and source:
        paths: list[str] = []
        for path in source:
            resolved = resolve_input(path)
            paths += [resolved] if isinstance(resolved, str) else resolved
        return paths
    raise ValueError(
        "Offline data needs `.offline_data(input_=...)` with a path, a glob expression or a list of paths, "
        f"not {source!r}"
    )


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    """Memory of its own: rows that are kept must not keep blocks in the object store."""
    return np.concatenate(parts)


def _unflattened(flat: dict[str, np.ndarray]) -> MultiAgentBatch:
    """Of "module/column" and "module/column/key" columns."""
    nested: dict[str, Any] = {}
    for name, column in flat.items():
        *path, last = name.split("/")
        place = nested
        for part in path:
            place = place.setdefault(part, {})
        place[last] = column
    lengths = [len(next(trees.leaves(columns[Columns.OBS]))) for columns in nested.values()]
    return MultiAgentBatch(nested, max(lengths))
