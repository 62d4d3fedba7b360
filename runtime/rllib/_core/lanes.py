"""Steps of a vector environment, time-major, until they are cut into a rollout."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Mapping
from typing import Any

import numpy as np

from . import trees
from .rollout import Rollout, Segments
from .trees import Tree


@dataclasses.dataclass(slots=True)
class Finished:
    """Episodes that ended, in the order of the rollout's segments."""

    returns: list[float]
    lengths: list[int]
    durations_s: list[float]
    ids: list[str]

    def take(self, numbers: list[int]) -> Finished:
        """Those of these numbers."""
        return Finished(
            [self.returns[number] for number in numbers],
            [self.lengths[number] for number in numbers],
            [self.durations_s[number] for number in numbers],
            [self.ids[number] for number in numbers],
        )


class Lanes:
    """The steps of N environments since the last `cut`, one lane each, and the episodes that run in them.

    `start` gives the observations that the first step acts on; `observations` is what the next step acts on. Arrays
    have the shape [T, N, ...] and are used again after each cut; a rollout's are copies.

    A step may be no step of an environment: one with autoreset in the next step ignores the action of a reset. Such
    rows are dropped.
    """

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.steps = 0
        """Vector steps since the last cut."""
        self.rows = 0
        """Steps of environments among them."""
        self._capacity = 0
        self._columns: dict[str, Tree] = {}
        self._obs: Tree = None  # [capacity + 1, N, ...]
        self._flat_obs: np.ndarray | None = None  # the same if it is one array
        self._valid = np.empty((0, num_envs), bool)
        self._all_valid = True
        self._terminated = np.empty((0, num_envs), bool)
        self._truncated = np.empty((0, num_envs), bool)
        self._times = np.empty(1)
        self._final_obs: dict[
            tuple[int, int], Tree
        ] = {}  # by lane and step: the reset's observation took its place
        self._infos: dict[int, list[dict[str, Any]]] = {}  # by step
        self._prefix = uuid.uuid4().hex[:20]
        self._count = 0
        self.episode_ids = [self.new_id() for _ in range(num_envs)]
        """Of the episodes that run, at the last cut."""
        self._t_started = [0] * num_envs
        self._returns = [0.0] * num_envs
        self._started_s = [0.0] * num_envs
        self._initial_state: Tree = None  # of a recurrent module
        self._state: Tree = None  # at the last cut, [N, ...]

    def new_id(self) -> str:
        """An id for an episode: unique, and cheaper than a random one each."""
        self._count += 1
        return f"{self._prefix}{self._count:012x}"

    # ------------------------------------------------------------ recording

    def start(self, observations: Tree, now_s: float, initial_state: Tree = None) -> None:
        """Begins episodes in all lanes; steps that were not cut are lost.

        Args:
            observations: [N, ...] each.
            now_s: the time.
            initial_state: a recurrent module's at the start of an episode, without the dimension of the lanes.
        """
        self._rewind()
        self._make_room(1)
        if self._obs is None or not _fits(self._obs, observations):
            self._columns = {}
            self._obs = trees.tree_map(lambda leaf: _obs_room(leaf, self._capacity + 1), observations)
            self._flat_obs = self._obs if isinstance(self._obs, np.ndarray) else None
        self._put_obs(0, observations)
        self.episode_ids = [self.new_id() for _ in range(self.num_envs)]
        self._t_started, self._returns = [0] * self.num_envs, [0.0] * self.num_envs
        self._started_s = [now_s] * self.num_envs
        self._initial_state = initial_state
        self._state = self._all_initial()

    @property
    def observations(self) -> Tree:
        """[N, ...] each, what the next action is for; a view that stays as it is until the next cut."""
        if self._flat_obs is not None:
            return self._flat_obs[self.steps]
        return trees.take(self._obs, self.steps)

    def expect(self, vector_steps: int) -> None:
        """Makes room for that many steps, so that arrays need not grow."""
        self._make_room(vector_steps)

    def add(
        self,
        columns: Mapping[str, Tree],
        observations: Tree,
        terminated: np.ndarray,
        truncated: np.ndarray,
        now_s: float,
        dropped: np.ndarray | None = None,
        final_obs: Mapping[int, Tree] | None = None,
        infos: list[dict[str, Any]] | None = None,
    ) -> None:
        """Records a step of all lanes.

        Args:
            columns: "actions", "rewards" and the module's outputs, [N, ...] each.
            observations: the next ones, [N, ...] each.
            terminated, truncated: bool [N].
            now_s: the time.
            dropped: bool [N], the lanes in which this was no step; None: none of them.
            final_obs: by lane, the last observation of an episode whose lane was reset in this step.
            infos: of the step, by lane.
        """
        t = self.steps
        if t == self._capacity:
            self._make_room(max(16, t + t // 2))
        if not t and self._columns.keys() != columns.keys():
            self._columns = {}
        mine = self._columns
        for name, value in columns.items():
            column = mine.get(name)
            if column is None:
                column = mine[name] = trees.tree_map(lambda leaf: _room_like(leaf, self._capacity), value)
            if isinstance(column, np.ndarray):
                column[t] = value
            else:
                trees.put(column, t, value)
        self._put_obs(t + 1, observations)
        self._terminated[t] = terminated
        self._truncated[t] = truncated
        self._times[t + 1] = now_s
        if dropped is None:
            self._valid[t] = True
            self.rows += self.num_envs
        else:
            np.logical_not(dropped, out=self._valid[t])
            self._all_valid = False
            self.rows += self.num_envs - int(dropped.sum())
        if final_obs:
            for lane, observation in final_obs.items():
                self._final_obs[lane, t] = observation
        if infos is not None:
            self._infos[t] = infos
        self.steps = t + 1

    def drop_open(self, observations: Tree, now_s: float) -> None:
        """Forgets the steps of episodes that have not ended: their environments failed and were reset.

        Args:
            observations: after the reset, [N, ...] each.
        """
        steps = self.steps
        done = (self._terminated[:steps] | self._truncated[:steps]) & self._valid[:steps]
        for lane in range(self.num_envs):
            ends = np.flatnonzero(done[:, lane])
            first = int(ends[-1]) + 1 if len(ends) else 0
            self.rows -= int(self._valid[first:steps, lane].sum())
            self._valid[first:steps, lane] = False
            if not len(ends):  # else the id and the counts of the next episode follow from its end
                self.episode_ids[lane] = self.new_id()
                self._t_started[lane], self._returns[lane], self._started_s[lane] = 0, 0.0, now_s
        self._all_valid = self._all_valid and not steps
        if steps:
            for lane in np.flatnonzero(done[steps - 1]).tolist():  # the last observation is overwritten below
                last = trees.tree_map(np.copy, trees.take(self._obs, (steps, lane)))
                self._final_obs.setdefault((lane, steps - 1), last)
        else:
            self._state = self._all_initial()
        self._put_obs(steps, observations)

    # ------------------------------------------------------------ cutting

    def cut(self, *, episodes: int | None = None, state: Tree = None) -> tuple[Rollout | None, Finished]:
        """The steps as a rollout, lane after lane, and the episodes that ended. The lanes go on from here.

        Args:
            state: a recurrent module's, with which the next step will be made, [N, ...] each.
            episodes: only the segments of the first so many episodes to end. The steps of others are lost; `start`
                must follow.

        Returns:
            No rollout if there were no steps.
        """
        T = self.steps
        finished = Finished([], [], [], [])
        if not T or not self.rows:
            self._rewind()
            self._state = state
            return None, finished
        valid = None if self._all_valid else np.ascontiguousarray(self._valid[:T].T)
        columns = {
            name: trees.tree_map(lambda leaf: _lane_major(leaf[:T], valid), column)
            for name, column in self._columns.items()
        }
        obs = trees.tree_map(lambda leaf: _lane_major(leaf[:T], valid), self._obs)
        terminated, truncated = self._terminated[:T].T, self._truncated[:T].T
        is_end = terminated | truncated
        if valid is None:
            is_end[:, -1] = True
            lane_of, step_of = np.nonzero(is_end)
            last_rows = lane_of * T + step_of
        else:
            is_end &= valid
            some = valid.any(axis=1)
            is_end[some, T - 1 - valid[some, ::-1].argmax(axis=1)] = True
            lane_of, step_of = np.nonzero(is_end)
            last_rows = (np.cumsum(valid.ravel()) - 1)[lane_of * T + step_of]
        lengths = np.diff(last_rows, prepend=-1)
        starts = last_rows - lengths + 1
        over_term, over_trunc = terminated[lane_of, step_of], truncated[lane_of, step_of]
        final_obs = trees.take(self._obs, (step_of + 1, lane_of))  # advanced indices: copies
        if self._final_obs:
            self._put_final_obs(final_obs, lane_of, step_of)
        state_in = self._states_at(lane_of, step_of, lengths)
        sums = np.add.reduceat(columns["rewards"], starts, dtype=np.float64)
        over = over_term | over_trunc
        ids, t_started = self._walk(lane_of, step_of, over, lengths, sums, finished)
        infos = self._infos_of(valid) if self._infos else None
        segments = Segments(lengths, over_term, over_trunc, ids, t_started)
        rollout = Rollout({"obs": obs, **columns}, segments, final_obs, state_in, infos)
        self._rewind()
        self._state = state
        if episodes is None:
            return rollout, finished
        ended = np.flatnonzero(over)
        order = np.argsort(step_of[ended], kind="stable")[:episodes]
        kept = np.sort(order)
        chosen = rollout.take_segments(ended[kept]) if len(kept) else None
        return chosen, finished.take(kept.tolist())

    def _walk(
        self,
        lane_of: np.ndarray,
        step_of: np.ndarray,
        over: np.ndarray,
        lengths: np.ndarray,
        sums: np.ndarray,
        finished: Finished,
    ) -> tuple[list[str], np.ndarray]:
        """Gives the segments the ids of their episodes, and carries on the counts of those that run."""
        ids, t_started = [], []
        current, started, returns, began = self.episode_ids, self._t_started, self._returns, self._started_s
        times = self._times
        for lane, step, is_over, length, total in zip(
            lane_of.tolist(), step_of.tolist(), over.tolist(), lengths.tolist(), sums.tolist(), strict=True
        ):
            ids.append(current[lane])
            t_started.append(started[lane])
            if is_over:
                now_s = float(times[step + 1])
                finished.ids.append(current[lane])
                finished.returns.append(returns[lane] + total)
                finished.lengths.append(started[lane] + length)
                finished.durations_s.append(now_s - began[lane])
                current[lane], started[lane], returns[lane], began[lane] = self.new_id(), 0, 0.0, now_s
            else:
                started[lane] += length
                returns[lane] += total
        return ids, np.array(t_started, np.int64)

    def _put_final_obs(self, final_obs: Tree, lane_of: np.ndarray, step_of: np.ndarray) -> None:
        """Where a lane was reset in the step that ended its episode, the observation behind it is the next one's."""
        for number, key in enumerate(zip(lane_of.tolist(), step_of.tolist(), strict=True)):
            observation = self._final_obs.get(key)
            if observation is not None:
                trees.put(final_obs, number, observation)

    def _states_at(self, lane_of: np.ndarray, step_of: np.ndarray, lengths: np.ndarray) -> Tree | None:
        """A recurrent module's states before the first row of each segment: that at the last cut for the first segment
        of a lane, if it starts with the lane, else the initial one."""
        if self._state is None:
            return None
        states = trees.take(self._state, lane_of)
        is_new = step_of - lengths + 1 > 0
        trees.put(states, is_new, self._initial_state)
        return states

    def _infos_of(self, valid: np.ndarray | None) -> list[dict[str, Any]]:
        """One per row."""
        none: list[dict[str, Any]] = [{}] * self.num_envs
        by_step = [self._infos.get(step, none) for step in range(self.steps)]
        return [
            infos[lane] or {}
            for lane in range(self.num_envs)
            for step, infos in enumerate(by_step)
            if valid is None or valid[lane, step]
        ]

    def _all_initial(self) -> Tree | None:
        if self._initial_state is None:
            return None
        return trees.tree_map(
            lambda leaf: np.repeat(np.asarray(leaf)[None], self.num_envs, 0), self._initial_state
        )

    # ------------------------------------------------------------ inside

    def _put_obs(self, t: int, observations: Tree) -> None:
        if self._flat_obs is not None:
            self._flat_obs[t] = observations
        else:
            trees.put(self._obs, t, observations)

    def _make_room(self, steps: int) -> None:
        if steps <= self._capacity:
            return
        self._columns = trees.tree_map(lambda leaf: _grown(leaf, steps), self._columns)
        if self._obs is not None:
            self._obs = trees.tree_map(lambda leaf: _grown(leaf, steps + 1), self._obs)
            self._flat_obs = self._obs if isinstance(self._obs, np.ndarray) else None
        self._valid, self._times = _grown(self._valid, steps), _grown(self._times, steps + 1)
        self._terminated, self._truncated = _grown(self._terminated, steps), _grown(self._truncated, steps)
        self._capacity = steps

    def _rewind(self) -> None:
        """After a cut: the last observations become the first."""
        if self.steps:
            trees.tree_map(lambda leaf: _copy_row(leaf, self.steps, 0), self._obs)
        self.steps = self.rows = 0
        self._all_valid = True
        self._final_obs.clear()
        self._infos.clear()


def _room_like(leaf: np.ndarray, steps: int) -> np.ndarray:
    array = np.asarray(leaf)
    return np.empty((steps, *array.shape), array.dtype)


def _obs_room(leaf: np.ndarray, steps: int) -> np.ndarray:
    """Modules compute in 32 bits, so wider observations are stored with 32."""
    array = np.asarray(leaf)
    return np.empty((steps, *array.shape), np.float32 if array.dtype == np.float64 else array.dtype)


def _grown(leaf: np.ndarray, steps: int) -> np.ndarray:
    result = np.empty((steps, *leaf.shape[1:]), leaf.dtype)
    result[: len(leaf)] = leaf
    return result


def _copy_row(leaf: np.ndarray, source: int, target: int) -> None:
    leaf[target] = leaf[source]


def _fits(room: Tree, tree: Tree) -> bool:
    mine, its = [*trees.leaves(room)], [_obs_room(leaf, 0) for leaf in trees.leaves(tree)]
    return [(leaf.shape[1:], leaf.dtype) for leaf in mine] == [(leaf.shape[1:], leaf.dtype) for leaf in its]


def _lane_major(leaf: np.ndarray, valid: np.ndarray | None) -> np.ndarray:
    """[T, N, ...] -> [rows, ...], lane after lane."""
    swapped = leaf.swapaxes(0, 1)
    if valid is not None:
        return swapped[valid]
    return swapped.copy().reshape(-1, *leaf.shape[2:])
