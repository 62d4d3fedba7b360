"""Draws rows or whole segments of a rollout, each once per epoch in a random order."""

from __future__ import annotations

import numpy as np

from runtime.rllib.core.columns import Columns

from . import trees
from .rollout import Rollout, Segments
from .trees import Tree


class RowSampler:
    """Batches of one epoch after another.

    Rows (`rows`) and segments (`segments`) have epochs of their own. A draw ends with its epoch, so that the caller
    can go on with other data or with the next epoch.
    """

    def __init__(self, rollout: Rollout, rng: np.random.Generator) -> None:
        self.rollout = rollout
        self._rng = rng
        self._order = np.empty(0, np.int64)  # rows left in this epoch
        self._queue = np.empty(0, np.int64)  # segments left in this epoch
        self._taken = 0  # rows of the first of them that were drawn
        self._segment_of = np.repeat(np.arange(len(rollout.segments)), rollout.segments.lengths)

    @property
    def rows_left(self) -> int:
        """In the running epoch of `rows`."""
        return len(self._order)

    @property
    def segments_left(self) -> int:
        """In the running epoch of `segments`."""
        return len(self._queue)

    def rows(self, count: int) -> dict[str, Tree]:
        """At most `count` rows: the rollout's columns, "new_obs", "terminateds" and "truncateds", [rows, ...] each."""
        if not len(self._order):
            self._order = self._rng.permutation(self.rollout.rows)
        index, self._order = self._order[:count], self._order[count:]
        return self.at(index)

    def at(self, index: np.ndarray) -> dict[str, Tree]:
        """The batch of these rows."""
        rollout, segments = self.rollout, self.rollout.segments
        segment = self._segment_of[index]
        last = segments.last_rows[segment] == index

        def after(obs: np.ndarray, final: np.ndarray) -> np.ndarray:
            result = obs[np.minimum(index + 1, len(obs) - 1)]
            result[last] = final[segment[last]]
            return result

        return {
            **{name: trees.take(column, index) for name, column in rollout.columns.items()},
            Columns.NEXT_OBS: trees.tree_map(after, rollout.columns[Columns.OBS], rollout.final_obs),
            Columns.TERMINATEDS: last & segments.terminated[segment],
            Columns.TRUNCATEDS: last & segments.truncated[segment],
        }

    def segments(self, count: int) -> Rollout:
        """Segments of together at most `count` rows; the last one is cut, and the next draw goes on with it."""
        if not len(self._queue):
            self._queue = self._rng.permutation(len(self.rollout.segments))
        lengths = self.rollout.segments.lengths[self._queue].copy()
        starts = self.rollout.segments.starts[self._queue].copy()
        lengths[0] -= self._taken
        starts[0] += self._taken
        total = np.cumsum(lengths)
        used = int(np.searchsorted(total, count)) + 1  # segments that the draw touches
        chosen, starts, lengths = self._queue[:used], starts[:used], lengths[:used]
        surplus = int(total[min(used, len(total)) - 1]) - count
        if surplus > 0:
            lengths[-1] -= surplus
            self._taken = int(starts[-1] + lengths[-1] - self.rollout.segments.starts[chosen[-1]])
            self._queue = self._queue[used - 1 :]
        else:
            self._taken = 0
            self._queue = self._queue[used:]
        return self._pieces(chosen, starts, lengths, surplus > 0)

    def _pieces(self, chosen: np.ndarray, starts: np.ndarray, lengths: np.ndarray, cut: bool) -> Rollout:
        """Rows `starts` to `starts + lengths` of these segments; `cut`: the last goes on after its piece."""
        rollout = self.rollout
        segments = rollout.segments.take(chosen)
        index = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(int(lengths.sum()))
        final_obs = trees.take(rollout.final_obs, chosen)
        goes_on = np.zeros(len(chosen), bool)
        goes_on[-1] = cut
        if cut:
            follows = int(starts[-1] + lengths[-1])

            def replace(final: np.ndarray, obs: np.ndarray) -> np.ndarray:
                final[-1] = obs[follows]
                return final

            final_obs = trees.tree_map(replace, final_obs, rollout.columns[Columns.OBS])
        return Rollout(
            {name: trees.take(column, index) for name, column in rollout.columns.items()},
            Segments(
                lengths,
                segments.terminated & ~goes_on,
                segments.truncated & ~goes_on,
                segments.episode_ids,
                segments.t_started + (starts - rollout.segments.starts[chosen]),
                segments.agent_ids,
            ),
            final_obs,
        )


def transitions(rollout: Rollout) -> dict[str, Tree]:
    """All rows in order: the columns, "new_obs", "terminateds" and "truncateds"."""
    return {
        **rollout.columns,
        Columns.NEXT_OBS: rollout.next_obs(),
        Columns.TERMINATEDS: rollout.terminateds(),
        Columns.TRUNCATEDS: rollout.truncateds(),
    }
