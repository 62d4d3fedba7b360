"""Earlier actions and rewards as part of the observation."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from runtime.rllib._core.trees import Tree

from ..connector_v2 import Batch, ConnectorV2
from ..spaces import Flattener
from ..vector_step import LastValues, VectorStep


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
        self._actions = LastValues(0)  # its size is that of the action space
        self._rewards = LastValues(n_prev_rewards)
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
            self._actions = LastValues(size)
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
            self.replace_last_observation(episode, new)
        return batch

    def _last_actions(self, episode: Any, flattener: Flattener) -> np.ndarray:
        result = np.zeros((self.n_prev_actions, flattener.size), np.float32)
        known = min(self.n_prev_actions, len(episode) + episode.actions.lookback)
        for place in range(1, known + 1):
            result[-place] = flattener(episode.get_actions(-place), batched=False)
        return result.reshape(-1)

    def on_vector_step(self, step: VectorStep) -> Tree:
        result = {self.ORIG_OBS_KEY: step.observations}
        if self.n_prev_actions:
            new = np.zeros((len(step.envs), self._flatteners[None].size), np.float32)
            if step.actions is not None:
                new = self._flatteners[None](step.actions, batched=True)
            new[step.started] = 0  # the action before belongs to another episode
            result[self.PREV_ACTIONS_KEY] = self._actions.pushed(new, step)
        if self.n_prev_rewards:
            rewards = np.zeros((len(step.envs), 1), np.float32)
            if step.rewards is not None:
                rewards[~step.started, 0] = step.rewards[~step.started]
            result[self.PREV_REWARDS_KEY] = self._rewards.pushed(rewards, step)
        return result
