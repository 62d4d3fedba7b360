"""The agents of one episode and the rows of the modules that act for them.

A module acts for many agents in many environments with one call, so its rows come in blocks, one block per call. An
agent's lane holds the numbers of its rows. A row's reward grows until its agent acts again: whatever the agent is given
in between belongs to its last action. A lane becomes a segment when its agent ends or the fragment is cut.

An action may still wait for the observation that follows it when the fragment is cut: the agent waits for its turn. Its
row then moves to the next fragment, because nothing can be learned from half a step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from . import trees
from .rollout import Rollout, Segments
from .trees import Tree
from .types import AgentID, ModuleID

ALL = "__all__"  # in the dicts of terminations and truncations, the key of the whole episode


class Lane:
    """The steps of one agent in one episode since its last segment."""

    __slots__ = (
        "agent_id",
        "before",
        "ended",
        "episode_id",
        "obs",
        "rows",
        "slot",
        "state",
        "state_in",
        "steps",
        "t_started",
        "table",
        "total",
        "waiting",
    )

    def __init__(self, agent_id: AgentID, episode_id: str, table: RowTable, obs: Any, slot: int = 0) -> None:
        """
        Args:
            agent_id, episode_id: whose steps they are.
            table: of the module that acts for the agent.
            obs: the agent's first observation.
            slot: the number of the environment.
        """
        self.agent_id = agent_id
        self.slot = slot
        self.episode_id = episode_id
        self.table = table
        self.rows: list[int] = []
        self.t_started = 0  # of the first of `rows`, in steps of the agent
        self.obs = obs  # the last observation
        self.waiting = False  # the agent acted on `obs` and has no observation since
        self.ended = False
        self.steps = 0  # actions in the episode
        self.total = 0.0  # rewards in the episode
        self.state = table.initial_state  # of a recurrent module, before its next row
        self.before = self.state  # before the last of `rows`
        self.state_in = self.state  # before the first of `rows`

    def act(self, row: int, state: Any = None) -> None:
        """The agent acts on its observation. `state`: a recurrent module's state after this row."""
        self.before = self.state
        if not self.rows:
            self.state_in = self.state
        self.state = state
        self.rows.append(row)
        self.waiting = True
        self.steps += 1


@dataclasses.dataclass(slots=True)
class _Closed:
    """A segment whose rows are not yet gathered."""

    rows: list[int]
    terminated: bool
    truncated: bool
    episode_id: str
    t_started: int
    agent_id: AgentID
    final_obs: Any
    state_in: Any


class RowTable:
    """The rows of one module since the last `cut`."""

    def __init__(self, module_id: ModuleID, initial_state: Any = None) -> None:
        """Args:
        module_id: the module.
        initial_state: state of a recurrent module before an agent's first row; None without state.
        """
        self.module_id = module_id
        self.initial_state = initial_state
        self.rewards: list[float] = []
        self._blocks: list[dict[str, Tree]] = []
        self._closed: list[_Closed] = []

    def __len__(self) -> int:
        return len(self.rewards)

    def append(self, columns: dict[str, Tree], number: int) -> int:
        """Adds a block of rows.

        Args:
            columns: "obs", "actions", ...: trees of arrays [number, ...]. All blocks have the same columns.
            number: of rows.

        Returns:
            The number of its first row.
        """
        first = len(self.rewards)
        self.rewards.extend([0.0] * number)
        self._blocks.append(columns)
        return first

    def close(self, lane: Lane, rows: list[int], terminated: bool, truncated: bool) -> None:
        """Makes a segment of a lane's rows. The lane's observation is the one after them."""
        if rows:
            self._closed.append(
                _Closed(
                    rows,
                    terminated,
                    truncated,
                    lane.episode_id,
                    lane.t_started,
                    lane.agent_id,
                    lane.obs,
                    lane.state_in,
                )
            )

    def cut(self, lanes: Sequence[Lane], *, keep: bool = True) -> Rollout | None:
        """Takes out everything sampled so far, and starts the next fragment.

        Args:
            lanes: the lanes of this module in episodes that go on.
            keep: whether those episodes go on in the next fragment. Otherwise their rows are thrown away.

        Returns:
            The segments, or None without any.
        """
        carried: list[Lane] = []
        for lane in lanes:
            if not keep or lane.ended:
                lane.rows = []
                continue
            if lane.waiting:
                carried.append(lane)
            done = lane.rows[:-1] if lane.waiting else lane.rows
            self.close(lane, done, False, False)
            lane.t_started += len(done)
        blocks = (
            {name: trees.concatenate([b[name] for b in self._blocks]) for name in self._blocks[0]}
            if self._blocks
            else {}
        )
        rewards, closed = self.rewards, self._closed
        self.rewards, self._blocks, self._closed = [], [], []
        rollout = self._gather(blocks, rewards, closed) if closed else None
        self._carry(carried, blocks, rewards)
        for lane in lanes:
            if not lane.waiting:
                lane.rows = []
        return rollout

    def _gather(self, blocks: dict[str, Tree], rewards: list[float], closed: list[_Closed]) -> Rollout:
        order = np.fromiter(chain.from_iterable(c.rows for c in closed), np.int64)
        columns = {name: trees.take(column, order) for name, column in blocks.items()}
        columns["rewards"] = np.asarray(rewards, np.float32)[order]
        return Rollout(
            columns,
            Segments(
                np.asarray([len(c.rows) for c in closed], np.int64),
                np.asarray([c.terminated for c in closed], bool),
                np.asarray([c.truncated for c in closed], bool),
                [c.episode_id for c in closed],
                np.asarray([c.t_started for c in closed], np.int64),
                [c.agent_id for c in closed],
            ),
            stack_as(columns["obs"], [c.final_obs for c in closed]),
            None if self.initial_state is None else trees.stack([c.state_in for c in closed]),
        )

    def _carry(self, lanes: list[Lane], blocks: dict[str, Tree], rewards: list[float]) -> None:
        """Moves the last row of each of these lanes to the next fragment."""
        if not lanes:
            return
        last = [lane.rows[-1] for lane in lanes]
        first = self.append(
            {name: trees.take(column, np.asarray(last)) for name, column in blocks.items()}, len(last)
        )
        for number, (lane, row) in enumerate(zip(lanes, last, strict=True), start=first):
            lane.rows = [number]
            lane.state_in = lane.before
            self.rewards[number] = rewards[row]


def stack_as(column: Tree, items: list[Any]) -> Tree:
    """Items as one tree of arrays [len(items), ...], with the data types of `column`."""
    if isinstance(column, np.ndarray):
        return np.asarray(items, column.dtype)
    return trees.tree_map(lambda leaf, *parts: np.asarray(parts, leaf.dtype), column, *items)


class AgentEpisode:
    """The agents of one episode of one environment.

    `reset` starts it. Before each step, every lane in `acting` gets a row (`Lane.act`); then `step` takes what the
    environment gave.
    """

    __slots__ = ("_lane_for", "acting", "early_rewards", "id", "lanes", "length")

    def __init__(self, episode_id: str, lane_for: Callable[[AgentID, Any], Lane]) -> None:
        """Args:
        episode_id: its id.
        lane_for: (agent id, its first observation) -> a new lane.
        """
        self.id = episode_id
        self._lane_for = lane_for
        self.lanes: dict[AgentID, Lane] = {}
        self.acting: list[Lane] = []
        self.early_rewards: dict[
            AgentID, float
        ] = {}  # given before the agent's first action: no row can have them
        self.length = 0  # steps of the environment

    def reset(self, observations: Mapping[AgentID, Any]) -> None:
        """Starts the episode with the observations of the agents that act first."""
        for agent_id, obs in observations.items():
            lane = self.lanes[agent_id] = self._lane_for(agent_id, obs)
            self.acting.append(lane)

    def step(
        self,
        observations: Mapping[AgentID, Any],
        rewards: Mapping[AgentID, float],
        terminateds: Mapping[AgentID, bool],
        truncateds: Mapping[AgentID, bool],
    ) -> bool:
        """Takes what the environment gave.

        An agent's own flags go before "__all__": one that was truncated itself counts as truncated in an episode that
        terminated. An agent that ends without an observation gets its last one again.

        Returns:
            Whether the episode is over: "__all__" is set, or all agents that took part have ended.

        Raises:
            ValueError: an agent that ended before got an observation.
        """
        self.length += 1
        lanes = self.lanes
        for agent_id, reward in rewards.items():
            lane = lanes.get(agent_id)
            if lane is None or not lane.steps:
                self.early_rewards[agent_id] = self.early_rewards.get(agent_id, 0.0) + float(reward)
                continue
            lane.total += reward
            if lane.rows:  # else the agent ended before the last cut, and its rows are delivered
                lane.table.rewards[lane.rows[-1]] += reward
        acting = self.acting = []
        for agent_id, obs in observations.items():
            lane = lanes.get(agent_id)
            if lane is None:
                if terminateds.get(agent_id) or truncateds.get(agent_id):
                    continue  # it never acts
                lane = lanes[agent_id] = self._lane_for(agent_id, obs)
            elif lane.ended:
                raise ValueError(
                    f"Agent {agent_id!r} got an observation after it had terminated or was truncated in this episode. "
                    "Return no observations of agents that are done, or use a new agent id"
                )
            else:
                lane.obs = obs
                lane.waiting = False
            acting.append(lane)
        all_terminated, all_truncated = bool(terminateds.get(ALL)), bool(truncateds.get(ALL))
        if all_terminated or all_truncated:
            for agent_id, lane in lanes.items():
                if not lane.ended:
                    truncated = bool(truncateds.get(agent_id))
                    terminated = bool(terminateds.get(agent_id)) or (all_terminated and not truncated)
                    self._end(lane, terminated, truncated or (all_truncated and not terminated))
            return True
        ended = False
        for flags in (terminateds, truncateds):
            for agent_id, flag in flags.items():
                if flag and agent_id in lanes and not lanes[agent_id].ended:
                    self._end(
                        lanes[agent_id], bool(terminateds.get(agent_id)), bool(truncateds.get(agent_id))
                    )
                    ended = True
        if ended:
            self.acting = [lane for lane in acting if not lane.ended]
            return all(lane.ended for lane in lanes.values())
        return False

    def _end(self, lane: Lane, terminated: bool, truncated: bool) -> None:
        lane.ended = True
        lane.waiting = False
        # The environment may write its next observations into the same arrays.
        lane.obs = trees.tree_map(np.array, lane.obs)
        lane.table.close(lane, lane.rows, terminated, truncated)

    def returns(self) -> dict[AgentID, float]:
        """The sum of all rewards of each agent, those before its first action too."""
        totals = {agent_id: lane.total for agent_id, lane in self.lanes.items()}
        for agent_id, reward in self.early_rewards.items():
            totals[agent_id] = totals.get(agent_id, 0.0) + reward
        return totals


def batch_of(items: Sequence[Any]) -> Tree:
    """Items as one tree of arrays [len(items), ...]. Modules compute in 32 bits, so 64-bit floats become narrower."""
    first = items[0]
    if isinstance(first, dict | tuple):
        return trees.tree_map(lambda *parts: _narrow(np.array(parts)), first, *items[1:])
    return _narrow(np.array(items))


def _narrow(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) if array.dtype == np.float64 else array
