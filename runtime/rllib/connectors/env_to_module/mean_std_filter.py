"""Observations with mean 0 and standard deviation 1."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

import numpy as np
from gymnasium import spaces

from runtime.rllib._core import trees
from runtime.rllib._core.trees import Tree

from .. import spaces as space_functions
from ..connector_v2 import Batch, ConnectorV2
from ..vector_step import VectorStep


@dataclasses.dataclass(slots=True)
class RunningStats:
    """Count, mean and sum of squared deviations of values [...] (Chan et al., 1979: parts can be combined exactly)."""

    shape: tuple[int, ...]
    count: int = 0
    mean: Any = 0.0
    squares: Any = 0.0

    def __post_init__(self) -> None:
        self.mean = np.zeros(self.shape) + self.mean
        self.squares = np.zeros(self.shape) + self.squares

    def add(self, count: int, mean: np.ndarray, squares: np.ndarray) -> None:
        """Adds `count` values with this mean and this sum of squared deviations from it."""
        if not count:
            return
        total = self.count + count
        delta = mean - self.mean
        self.mean = self.mean + delta * (count / total)
        self.squares = self.squares + squares + delta * delta * (self.count * count / total)
        self.count = total

    @property
    def std(self) -> np.ndarray:
        """The standard deviation of the sample; the absolute mean for a single value."""
        if self.count < 2:
            return np.abs(self.mean)
        return np.asarray(np.sqrt(self.squares / (self.count - 1)))

    def to_state(self) -> dict[str, Any]:
        """The fields, to be given to the class."""
        return {
            "shape": self.shape,
            "count": self.count,
            "mean": self.mean.copy(),
            "squares": self.squares.copy(),
        }


class MeanStdFilter(ConnectorV2):
    """Standardizes observations with mean and standard deviation of all before. Discrete parts stay as they are.

    The new observations replace those in the episodes. Runners have filters of their own; merging their states combines
    what each saw since the last merge, so that after it all have the statistics of all observations.

    Args:
        multi_agent: Whether the observation space is one of several agents, by agent id. Each has its own statistics.
        de_mean_to_zero: Whether to subtract the mean.
        de_std_to_one: Whether to divide by the standard deviation.
        clip_by_value: Limit of the result's absolute values. None: no limit.
        update_stats: Whether observations change the statistics. False: for inference after training.
    """

    def __init__(
        self,
        *,
        multi_agent: bool = False,
        de_mean_to_zero: bool = True,
        de_std_to_one: bool = True,
        clip_by_value: float | None = 10.0,
        update_stats: bool = True,
        **kwargs: Any,
    ) -> None:
        self._multi_agent = multi_agent
        self.de_mean_to_zero = de_mean_to_zero
        self.de_std_to_one = de_std_to_one
        self.clip_by_value = clip_by_value
        self._update_stats = update_stats
        # By agent id (None for single agents): statistics of the Box parts of the space, in order. Those of all
        # observations, and of those since the last set_state().
        self._stats: dict[Any, list[RunningStats]] = {}
        self._recent: dict[Any, list[RunningStats]] = {}
        super().__init__(**kwargs)

    def recompute_output_observation_space(
        self, input_observation_space: Any, input_action_space: Any
    ) -> Any:
        shapes = {
            agent: _box_shapes(space) for agent, space in self._by_agent(input_observation_space).items()
        }
        known = {agent: [stats.shape for stats in below] for agent, below in self._stats.items()}
        if shapes != known:
            self.reset_state()
        limit = np.inf if self.clip_by_value is None else self.clip_by_value

        def limited(space: Any) -> Any:
            if not isinstance(space, spaces.Box):
                return space
            return spaces.Box(
                -limit, limit, space.shape, space.dtype if space.dtype.kind == "f" else np.float32
            )

        return space_functions.map_space(limited, input_observation_space)

    def _by_agent(self, space: Any) -> dict[Any, Any]:
        return dict(space.spaces) if self._multi_agent else {None: space}

    def __call__(
        self,
        *,
        rl_module: Any,
        batch: Batch,
        episodes: list[Any],
        explore: bool | None = None,
        shared_data: dict[str, Any] | None = None,
        metrics: Any = None,
        **kwargs: Any,
    ) -> Batch:
        by_agent: dict[Any, list[Any]] = {}
        for episode in self.single_agent_episode_iterator(episodes):
            by_agent.setdefault(episode.agent_id, []).append(episode)
        for agent_id, found in by_agent.items():
            observations = trees.stack([episode.get_observations(-1) for episode in found])
            filtered = self._filtered(observations, agent_id)
            for row, episode in enumerate(found):
                self.replace_last_observation(episode, trees.take(filtered, row))
        return batch

    def on_vector_step(self, step: VectorStep) -> Tree:
        return self._filtered(step.observations, None)

    def _filtered(self, observations: Tree, agent_id: Any) -> Tree:
        """Observations [N, ...], which the statistics include first."""
        if agent_id not in self._stats:
            raise ValueError(
                f"MeanStdFilter has no statistics for agent {agent_id!r}. For several agents, make it with "
                "multi_agent=True; its input_observation_space must have all agents"
            )
        space = self._by_agent(self.input_observation_space)[agent_id]
        stats = iter(zip(self._stats[agent_id], self._recent[agent_id], strict=True))

        def leaf(below: Any, values: Any) -> Any:
            if not isinstance(below, spaces.Box):
                return values
            total, recent = next(stats)
            if self._update_stats:
                count, mean, squares = _moments(values)
                total.add(count, mean, squares)
                recent.add(count, mean, squares)
            result = np.asarray(values, np.float64)
            if self.de_mean_to_zero:
                result = result - total.mean
            if self.de_std_to_one:
                result = result / (total.std + 1e-8)
            if self.clip_by_value is not None:
                result = np.minimum(np.maximum(result, -self.clip_by_value), self.clip_by_value)
            return result.astype(below.dtype if below.dtype.kind == "f" else np.float32)

        return space_functions.map_leaves(leaf, space, observations)

    # ------------------------------------------------------------ state

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """By agent id: settings, and `RunningStats` of all observations and of those since `set_state`."""
        return {
            agent: {
                "de_mean_to_zero": self.de_mean_to_zero,
                "de_std_to_one": self.de_std_to_one,
                "clip_by_value": self.clip_by_value,
                "running_stats": [stats.to_state() for stats in self._stats[agent]],
                "recent_stats": [stats.to_state() for stats in self._recent[agent]],
            }
            for agent in self._stats
        }

    def set_state(self, state: dict[str, Any]) -> None:
        for agent, below in state.items():
            self.de_mean_to_zero = below["de_mean_to_zero"]
            self.de_std_to_one = below["de_std_to_one"]
            self.clip_by_value = below["clip_by_value"]
            self._stats[agent] = [RunningStats(**stats) for stats in below["running_stats"]]
            self._recent[agent] = [RunningStats(stats.shape) for stats in self._stats[agent]]

    def reset_state(self) -> None:
        shapes = {
            agent: _box_shapes(space) for agent, space in self._by_agent(self.input_observation_space).items()
        }
        self._stats = {agent: [RunningStats(shape) for shape in below] for agent, below in shapes.items()}
        self._recent = {agent: [RunningStats(shape) for shape in below] for agent, below in shapes.items()}

    def merge_states(self, states: list[dict[str, Any]]) -> dict[str, Any]:
        """The state of this filter with what the others saw since their last `set_state`.

        Raises:
            ValueError: the others have other settings or spaces.
        """
        for state in states:
            for agent, below in state.items():
                own = self._stats.get(agent)
                settings = (below["de_mean_to_zero"], below["de_std_to_one"], below["clip_by_value"])
                if (
                    own is None
                    or [stats.shape for stats in own]
                    != [tuple(stats["shape"]) for stats in below["recent_stats"]]
                    or settings != (self.de_mean_to_zero, self.de_std_to_one, self.clip_by_value)
                ):
                    raise ValueError(
                        f"States of MeanStdFilter of different spaces or settings cannot be merged ({agent=})"
                    )
                for stats, recent in zip(own, below["recent_stats"], strict=True):
                    stats.add(recent["count"], recent["mean"], recent["squares"])
        return self.get_state()


def _moments(values: Any) -> tuple[int, np.ndarray, np.ndarray]:
    """Of values [N, ...]: N, their mean and the sum of their squared deviations from it."""
    values = np.asarray(values, np.float64)
    mean = np.add.reduce(values, axis=0) / max(len(values), 1)
    deviations = values - mean
    return len(values), mean, np.add.reduce(deviations * deviations, axis=0)


def _box_shapes(space: Any) -> list[tuple[int, ...]]:
    below = space_functions.children(space)
    if below is not None:
        return [shape for child in below.values() for shape in _box_shapes(child)]
    return [tuple(space.shape)] if isinstance(space, spaces.Box) else []
