"""Experience as columns: rows of arrays, segment after segment.

A segment is a stretch of one episode of one agent without a gap. It ends because the episode terminated, because a
limit truncated it, or because the fragment was cut and the episode goes on. The observation after a segment's last row
is `final_obs`, so that values can be bootstrapped and no observation is held twice.

Everything moves in this form: from environment runners to learners, replay buffers and files. Episodes are made from it
when a callback, a connector or a user asks for them (`runtime.rllib.env.single_agent_episode`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from . import trees
from .trees import Tree


@dataclasses.dataclass(slots=True)
class Segments:
    """Where each of S segments is, and what ended it. Rows of the segments follow one another without gaps."""

    lengths: np.ndarray  # int64 [S], rows; none is 0
    terminated: np.ndarray  # bool [S]
    truncated: np.ndarray  # bool [S]; neither: the episode goes on
    episode_ids: list[str]
    t_started: np.ndarray  # int64 [S], the time step in its episode of the segment's first row
    agent_ids: list[Any] | None = None  # of multi-agent environments

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def starts(self) -> np.ndarray:
        """int64 [S], the first row of each segment."""
        return np.cumsum(self.lengths) - self.lengths

    @property
    def last_rows(self) -> np.ndarray:
        """int64 [S], the last row of each segment."""
        return np.cumsum(self.lengths) - 1

    def take(self, index: Sequence[int] | np.ndarray) -> Segments:
        """The segments of these numbers."""
        rows = np.asarray(index, dtype=np.int64)
        return Segments(
            self.lengths[rows],
            self.terminated[rows],
            self.truncated[rows],
            [self.episode_ids[i] for i in rows],
            self.t_started[rows],
            None if self.agent_ids is None else [self.agent_ids[i] for i in rows],
        )


@dataclasses.dataclass(slots=True)
class Rollout:
    """Rows of experience of one module.

    columns: "obs", "actions", "rewards" and what the module gave ("action_logp", "action_dist_inputs", "vf_preds",
        ...), each a tree of arrays [rows, ...]; observations and actions of nested spaces are trees. Actions are the
        module's, before clipping or unsquashing for the environment.
    segments: see `Segments`.
    final_obs: tree of arrays [S, ...], the observation after each segment's last row.
    state_in: tree of arrays [S, ...], a recurrent module's state before each segment's first row; None without state.
    infos: one dict per row, that of the step's result; None unless somebody asked for them.
    """

    columns: dict[str, Tree]
    segments: Segments
    final_obs: Tree
    state_in: Tree | None = None
    infos: list[dict[str, Any]] | None = None

    @property
    def rows(self) -> int:
        return len(self.columns["rewards"])

    def __len__(self) -> int:
        return self.rows

    def next_obs(self) -> Tree:
        """Tree of arrays [rows, ...], the observation after each row."""

        def shifted(obs: np.ndarray, final: np.ndarray) -> np.ndarray:
            result = np.empty_like(obs)
            result[:-1] = obs[1:]
            result[self.segments.last_rows] = final
            return result

        return trees.tree_map(shifted, self.columns["obs"], self.final_obs)

    def terminateds(self) -> np.ndarray:
        """bool [rows], True where the episode ended of itself."""
        result = np.zeros(self.rows, bool)
        result[self.segments.last_rows] = self.segments.terminated
        return result

    def truncateds(self) -> np.ndarray:
        """bool [rows], True where a limit ended the episode."""
        result = np.zeros(self.rows, bool)
        result[self.segments.last_rows] = self.segments.truncated
        return result

    def take_segments(self, index: Sequence[int] | np.ndarray) -> Rollout:
        """These segments, in this order; copies."""
        starts = self.segments.starts
        chosen = self.segments.take(index)
        rows = np.concatenate(
            [np.arange(starts[i], starts[i] + n) for i, n in zip(index, chosen.lengths, strict=True)]
            or [np.empty(0, np.int64)]
        )
        return Rollout(
            {name: trees.take(column, rows) for name, column in self.columns.items()},
            chosen,
            trees.take(self.final_obs, np.asarray(index)),
            None if self.state_in is None else trees.take(self.state_in, np.asarray(index)),
            None if self.infos is None else [self.infos[row] for row in rows],
        )


def concatenate(rollouts: Sequence[Rollout]) -> Rollout:
    """One rollout of all segments. All have the same columns.

    Raises:
        ValueError: no rollout was given.
    """
    if not rollouts:
        raise ValueError("There is no rollout to concatenate")
    first = rollouts[0]
    if len(rollouts) == 1:
        return first
    segments = [rollout.segments for rollout in rollouts]
    return Rollout(
        {name: trees.concatenate([rollout.columns[name] for rollout in rollouts]) for name in first.columns},
        Segments(
            np.concatenate([s.lengths for s in segments]),
            np.concatenate([s.terminated for s in segments]),
            np.concatenate([s.truncated for s in segments]),
            [name for s in segments for name in s.episode_ids],
            np.concatenate([s.t_started for s in segments]),
            None
            if first.segments.agent_ids is None
            else [name for s in segments for name in s.agent_ids or ()],
        ),
        trees.concatenate([rollout.final_obs for rollout in rollouts]),
        None if first.state_in is None else trees.concatenate([rollout.state_in for rollout in rollouts]),
        None
        if all(rollout.infos is None for rollout in rollouts)
        else [*chain.from_iterable(map(_infos, rollouts))],
    )


def _infos(rollout: Rollout) -> list[dict[str, Any]]:
    return [{} for _ in range(rollout.rows)] if rollout.infos is None else rollout.infos
