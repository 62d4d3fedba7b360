"""Default piece: observations from the episodes."""

from __future__ import annotations

from typing import Any, ClassVar

from runtime.rllib.core.columns import Columns

from ..connector_v2 import Batch, ConnectorV2, is_multi_agent, make_unique


class AddObservationsFromEpisodesToBatch(ConnectorV2):
    """Adds each episode's last observation to the batch, or, for a learner, all observations with an action.

    It does nothing if the batch has observations.

    Args:
        as_learner_connector: Whether the piece is in a learner pipeline.
    """

    is_default_piece: ClassVar[bool] = True

    def __init__(
        self,
        input_observation_space: Any = None,
        input_action_space: Any = None,
        *,
        as_learner_connector: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(input_observation_space, input_action_space, **kwargs)
        self._as_learner_connector = as_learner_connector

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
        if Columns.OBS in batch:
            return batch
        if not self._as_learner_connector:
            for episode in self.single_agent_episode_iterator(episodes):
                self.add_batch_item(batch, Columns.OBS, episode.get_observations(-1), episode)
            return batch
        for place, episode in enumerate(
            self.single_agent_episode_iterator(episodes, agents_that_stepped_only=False)
        ):
            if not is_multi_agent(episodes) and "_" not in episode.id_:
                make_unique(episode, place)
            observations = episode.get_observations(slice(0, len(episode)))
            self.add_n_batch_items(batch, Columns.OBS, observations, len(episode), episode)
        return batch
