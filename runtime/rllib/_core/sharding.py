"""How several learners share the rows of a rollout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from . import trees
from .rollout import Rollout, Segments


def shards(rollout: Rollout, count: int) -> list[Rollout]:
    """`count` rollouts of nearly as many rows each; a rollout of fewer rows or segments than that is given to all.

    Segments are cut where a shard ends, and the next observation is the final one of the first part. Those of a
    recurrent module stay whole, because the state at the cut is not known. Columns are views.
    """
    if count == 1:
        return [rollout]
    if rollout.state_in is not None:
        return _of_whole_segments(rollout, count)
    if rollout.rows < count:
        return [rollout] * count
    borders = [rollout.rows * i // count for i in range(count + 1)]
    return [_slice(rollout, start, stop) for start, stop in pairwise(borders)]


def shards_by_module(rollouts: Mapping[str, Rollout], count: int) -> list[dict[str, Rollout]]:
    """For each of `count` learners its shard of each module's rollout."""
    parts = {module_id: shards(rollout, count) for module_id, rollout in rollouts.items()}
    return [{module_id: each[i] for module_id, each in parts.items()} for i in range(count)]


def _slice(rollout: Rollout, start: int, stop: int) -> Rollout:
    """Rows from start to stop."""
    segments = rollout.segments
    first = int(np.searchsorted(segments.last_rows, start))
    last = int(np.searchsorted(segments.last_rows, stop - 1))
    chosen = segments.take(range(first, last + 1))
    starts = segments.starts[first : last + 1]
    ends = starts + chosen.lengths
    is_cut = int(ends[-1]) > stop
    lengths = np.minimum(ends, stop) - np.maximum(starts, start)
    t_started = chosen.t_started + np.maximum(start - starts, 0)
    final_obs = trees.take(rollout.final_obs, slice(first, last + 1))
    terminated, truncated = chosen.terminated, chosen.truncated
    if is_cut:
        terminated, truncated = terminated.copy(), truncated.copy()
        terminated[-1] = truncated[-1] = False

        def with_next(final: np.ndarray, obs: np.ndarray) -> np.ndarray:
            final = final.copy()
            final[-1] = obs[stop]
            return final

        final_obs = trees.tree_map(with_next, final_obs, rollout.columns["obs"])
    return Rollout(
        {name: trees.take(column, slice(start, stop)) for name, column in rollout.columns.items()},
        Segments(lengths, terminated, truncated, chosen.episode_ids, t_started, chosen.agent_ids),
        final_obs,
        infos=None if rollout.infos is None else rollout.infos[start:stop],
    )


def _of_whole_segments(rollout: Rollout, count: int) -> list[Rollout]:
    """The longest segment goes to the shard with the fewest rows, and so on."""
    if len(rollout.segments) < count:
        return [rollout] * count
    chosen: list[list[int]] = [[] for _ in range(count)]
    sizes = [0] * count
    for segment in np.argsort(-rollout.segments.lengths, kind="stable"):
        smallest = sizes.index(min(sizes))
        chosen[smallest].append(int(segment))
        sizes[smallest] += int(rollout.segments.lengths[segment])
    return [rollout.take_segments(sorted(segments)) for segments in chosen]


def share(items: Sequence[object], count: int) -> list[list[object]]:
    """The items dealt to `count` learners, one by one."""
    return [list(items[i::count]) for i in range(count)]
