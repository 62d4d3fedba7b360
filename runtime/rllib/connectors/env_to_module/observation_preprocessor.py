"""Base classes for pieces that change each observation by itself."""

from __future__ import annotations

import abc
from typing import Any

from ..connector_v2 import Batch, ConnectorV2


class SingleAgentObservationPreprocessor(ConnectorV2):
    """Changes the last observation of each episode, or of each agent that took part in the last step.

    Subclasses override `preprocess`, and `recompute_output_observation_space` if the space changes.
    """

    @abc.abstractmethod
    def preprocess(self, observation: Any, episode: Any) -> Any:
        """The new observation. `episode` is the `SingleAgentEpisode`, with `agent_id` and `module_id`."""

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
            new = self.preprocess(observation=episode.get_observations(-1), episode=episode)
            self.replace_last_observation(episode, new)
        return batch


class MultiAgentObservationPreprocessor(ConnectorV2):
    """Changes the last observations of the agents of each multi-agent episode.

    Subclasses override `preprocess`, and `recompute_output_observation_space` if the space changes.
    """

    @abc.abstractmethod
    def preprocess(self, observations: Any, episode: Any) -> Any:
        """The new observations: a dict of agent ids, as `observations` is. `episode` is the `MultiAgentEpisode`."""

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
        for episode in episodes:
            new = self.preprocess(observations=episode.get_observations(-1), episode=episode)
            for agent_id, observation in new.items():
                self.replace_last_observation(episode.agent_episodes[agent_id], observation)
            episode.observation_space = self.observation_space
        return batch
