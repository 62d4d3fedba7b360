"""Metrics of episodes with several agents."""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Mapping
from typing import Any

from .._core.agents import AgentEpisode
from .._core.rollout import Rollout
from .._core.types import AgentID, Config, ModuleID
from ..core import DEFAULT_AGENT_ID as DEFAULT_AGENT_ID
from ..utils import metrics as names
from ..utils.metrics.metrics_logger import MetricsLogger


def steps_by_agent(rollouts: Mapping[ModuleID, Rollout]) -> dict[ModuleID, dict[AgentID, int]]:
    """Module id -> agent id -> its rows."""
    result: dict[ModuleID, dict[AgentID, int]] = {}
    for module_id, rollout in rollouts.items():
        mine = result.setdefault(module_id, {})
        segments = rollout.segments
        for agent_id, length in zip(segments.agent_ids or (), segments.lengths.tolist(), strict=True):
            mine[agent_id] = mine.get(agent_id, 0) + length
    return result


@dataclasses.dataclass(slots=True)
class FinishedEpisode:
    """What is reported of an episode that ended.

    length: steps of the environment.
    agent_returns, agent_steps, modules: by agent; returns have all rewards, those before an agent's first action too.
    """

    length: int
    duration_s: float
    agent_returns: dict[AgentID, float]
    agent_steps: dict[AgentID, int]
    modules: dict[AgentID, ModuleID]

    @classmethod
    def of(cls, episode: AgentEpisode, duration_s: float) -> FinishedEpisode:
        """That of rows in tables."""
        lanes = episode.lanes
        return cls(
            episode.length,
            duration_s,
            episode.returns(),
            {agent_id: lane.steps for agent_id, lane in lanes.items()},
            {agent_id: lane.table.module_id for agent_id, lane in lanes.items()},
        )


def smoothing_window(config: Config) -> int:
    """How many of its last episodes a runner's means are of: all runners' together are of the number that the
    configuration says."""
    return max(1, math.ceil(config.metrics_num_episodes_for_smoothing / (config.num_env_runners or 1)))


def log_steps(
    logger: MetricsLogger,
    env_steps: int,
    episodes: int,
    agent_steps: Mapping[ModuleID, Mapping[AgentID, int]],
) -> None:
    """Logs what a call has sampled: steps of environments, episodes that ended, steps of agents by module."""

    def count(key: str, lifetime_key: str, value: int, *of: str, **more: Any) -> None:
        logger.log_value((key, *of) if of else key, value, reduce="sum")
        logger.log_value((lifetime_key, *of) if of else lifetime_key, value, reduce="lifetime_sum", **more)

    count(names.NUM_ENV_STEPS_SAMPLED, names.NUM_ENV_STEPS_SAMPLED_LIFETIME, env_steps, with_throughput=True)
    count(names.NUM_EPISODES, names.NUM_EPISODES_LIFETIME, episodes)
    agents: dict[str, int] = {}
    for module_id, steps_of in agent_steps.items():
        total = sum(steps_of.values())
        count(names.NUM_MODULE_STEPS_SAMPLED, names.NUM_MODULE_STEPS_SAMPLED_LIFETIME, total, module_id)
        for agent_id, steps in steps_of.items():
            agents[str(agent_id)] = agents.get(str(agent_id), 0) + steps
    for agent, steps in agents.items():
        count(names.NUM_AGENT_STEPS_SAMPLED, names.NUM_AGENT_STEPS_SAMPLED_LIFETIME, steps, agent)


def log_episode(logger: MetricsLogger, window: int, total: float, length: int, duration_s: float) -> None:
    """Logs return, steps and seconds of an episode that ended."""
    log = logger.log_value
    log(names.EPISODE_LEN_MEAN, length, window=window)
    log(names.EPISODE_RETURN_MEAN, total, window=window)
    log(names.EPISODE_DURATION_SEC_MEAN, duration_s, window=window)
    log(names.EPISODE_LEN_MIN, length, reduce="min", window=window)
    log(names.EPISODE_LEN_MAX, length, reduce="max", window=window)
    log(names.EPISODE_RETURN_MIN, total, reduce="min", window=window)
    log(names.EPISODE_RETURN_MAX, total, reduce="max", window=window)


class AgentMetrics:
    """Logs steps and episodes of a runner under RLlib's names."""

    def __init__(self, logger: MetricsLogger, config: Config) -> None:
        """
        Args:
            logger: the runner's.
            config: says of how many episodes of all runners together the means are.
        """
        self._logger = logger
        self._window = smoothing_window(config)
        self._finished: deque[FinishedEpisode] = deque(maxlen=self._window)
        self._episodes = 0

    def finished(self, episode: FinishedEpisode) -> None:
        """An episode ended."""
        self._finished.append(episode)
        self._episodes += 1

    def sampled(self, env_steps: int, agent_steps: Mapping[ModuleID, Mapping[AgentID, int]]) -> None:
        """A call has sampled these steps: of environments, and of agents by module."""
        log_steps(self._logger, env_steps, self._episodes, agent_steps)
        self._episodes = 0

    def flush(self) -> None:
        """Logs the episodes that ended since the last call."""
        log, window = self._logger.log_value, self._window
        for episode in self._finished:
            total = sum(episode.agent_returns.values())
            log_episode(self._logger, window, total, episode.length, episode.duration_s)
            modules: dict[ModuleID, float] = {}
            for agent_id, value in episode.agent_returns.items():
                log((names.EPISODE_AGENT_RETURN_MEAN, str(agent_id)), value, window=window)
                if agent_id in episode.modules:
                    module_id = episode.modules[agent_id]
                    modules[module_id] = modules.get(module_id, 0.0) + value
            for agent_id, steps in episode.agent_steps.items():
                log((names.EPISODE_AGENT_STEPS, str(agent_id)), steps, window=window)
            for module_id, value in modules.items():
                log((names.EPISODE_MODULE_RETURN_MEAN, module_id), value, window=window)
        self._finished.clear()
