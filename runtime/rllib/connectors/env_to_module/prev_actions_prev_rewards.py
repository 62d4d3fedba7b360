"""Earlier actions and rewards as part of the observation."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from runtime.rllib._core.trees import Tree

from ..connector_v2 import Batch, ConnectorV2
from ..spaces import Flattener
from ..vector_step import VectorStep


class PrevActionsPrevRewards(ConnectorV2):
    """Makes a dict of each observation: itself, the last actions (discrete ones as one-hot vectors), the last rewards.

    Before an episode they are zeros. The dicts replace the observations in the episodes. Put `FlattenObservations`
    behind this piece for modules that take vectors.

    Args:
        multi_agent: Whether the spaces are those of several agents, by agent id.
        n_prev_actions: The number of actions; their vectors are joined, the newest last. 0: none.
        n_prev_rewards: The number of rewards, the newest last. 0: none.
    """

    ORIG_OBS_KEY = "_orig_obs"
    PREV_ACTIONS_KEY = "prev_n_actions"
    PREV_REWARDS_KEY = "prev_n_rewards"

    def __init__(
        self,
        input_observation_space: Any = None,
        input_action_space: Any = None,
        *,
        multi_agent: bool = False,
        n_prev_actions: int = 1,
        n_prev_rewards: int = 1,
        **kwargs: Any,
    ) -> None:
        self._multi_agent = multi_agent
        self.n_prev_actions = n_prev_actions
        self.n_prev_rewards = n_prev_rewards
        self._flatteners: dict[Any, Flattener] = {}  # of actions, by agent id (None for single agents)
        self._actions = np.zeros((0, 0), np.float32)  # [environments of a runner, n_prev_actions * size]
        self._rewards = np.zeros((0, 0), np.float32)  # [environments of a runner, n_prev_rewards]
        super().__init__(input_observation_space, input_action_space, **kwargs)

    def recompute_output_observation_space(
        self, input_observation_space: Any, input_action_space: Any
    ) -> Any:
        if not self._multi_agent:
            return self._with_previous(None, input_observation_space, input_action_space)
        agents = input_observation_space.spaces.items()
        return spaces.Dict(
            {agent: self._with_previous(agent, space, input_action_space[agent]) for agent, space in agents}
        )

    def _with_previous(self, agent_id: Any, observation_space: Any, action_space: Any) -> Any:
        parts = {self.ORIG_OBS_KEY: observation_space}
        if self.n_prev_actions:
            self._flatteners[agent_id] = Flattener(action_space)
            size = self._flatteners[agent_id].size * self.n_prev_actions
            one_hot = isinstance(action_space, spaces.Discrete | spaces.MultiDiscrete)
            low, high = (0.0, 1.0) if one_hot else (-np.inf, np.inf)
            parts[self.PREV_ACTIONS_KEY] = spaces.Box(low, high, (size,), np.float32)
        if self.n_prev_rewards:
            parts[self.PREV_REWARDS_KEY] = spaces.Box(-np.inf, np.inf, (self.n_prev_rewards,), np.float32)
        return spaces.Dict(parts)

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
        for episode in self.single_agent_episode_iterator(episodes):
            new = {self.ORIG_OBS_KEY: episode.get_observations(-1)}
            if self.n_prev_actions:
                flattener = self._flatteners[episode.agent_id if self._multi_agent else None]
                new[self.PREV_ACTIONS_KEY] = self._last_actions(episode, flattener)
            if self.n_prev_rewards:
                rewards = episode.get_rewards(slice(-self.n_prev_rewards, None), fill=0.0)
                new[self.PREV_REWARDS_KEY] = np.asarray(rewards, np.float32)
            episode.set_observations(at_indices=-1, new_data=new)
            episode.observation_space = self.observation_space
        return batch

    def _last_actions(self, episode: Any, flattener: Flattener) -> np.ndarray:
        result = np.zeros((self.n_prev_actions, flattener.size), np.float32)
        known = min(self.n_prev_actions, len(episode) + episode.actions.lookback)
        for place in range(1, known + 1):
            result[-place] = flattener(episode.get_actions(-place), batched=False)
        return result.reshape(-1)

    def on_vector_step(self, step: VectorStep) -> Tree:
        result = {self.ORIG_OBS_KEY: step.observations}
        envs = int(step.envs.max(initial=-1)) + 1
        if self.n_prev_actions:
            flattener = self._flatteners[None]
            self._actions = _grown(self._actions, envs, self.n_prev_actions * flattener.size)
            new = np.zeros((len(step.envs), flattener.size), np.float32)
            if step.actions is not None:
                new = flattener(step.actions, batched=True)
            result[self.PREV_ACTIONS_KEY] = _pushed(self._actions, new, step)
        if self.n_prev_rewards:
            self._rewards = _grown(self._rewards, envs, self.n_prev_rewards)
            rewards = np.zeros(len(step.envs), np.float32) if step.rewards is None else step.rewards
            result[self.PREV_REWARDS_KEY] = _pushed(self._rewards, rewards[:, None], step)
        return result


def _grown(rows: np.ndarray, count: int, width: int) -> np.ndarray:
    """The rows, followed by zeros if there are fewer than `count`."""
    if len(rows) >= count:
        return rows
    result = np.zeros((count, width), np.float32)
    if len(rows):
        result[: len(rows)] = rows
    return result


def _pushed(rows: np.ndarray, new: np.ndarray, step: VectorStep) -> np.ndarray:
    """The rows of the step's environments with `new` at their end. They are kept, too."""
    result = rows[step.envs]
    width = new.shape[1]
    result[:, :-width] = result[:, width:]
    result[:, -width:] = new
    result[step.started] = 0
    rows[step.envs] = result
    return result
