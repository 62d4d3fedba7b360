"""Default piece: observations from the episodes."""

from __future__ import annotations

from typing import Any, ClassVar

from runtime.rllib.core.columns import Columns

from ..connector_v2 import Batch, make_ids_unique
from .either_pipeline import EitherPipelineConnector


class AddObservationsFromEpisodesToBatch(EitherPipelineConnector):
    """Adds each episode's last observation to the batch, or, for a learner, all observations with an action.

    It does nothing if the batch has observations.
    """

    is_default_piece: ClassVar[bool] = True

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
        make_ids_unique(episodes, shared_data)
        for episode in self.single_agent_episode_iterator(episodes, agents_that_stepped_only=False):
            observations = episode.get_observations(slice(0, len(episode)))
            self.add_n_batch_items(batch, Columns.OBS, observations, len(episode), episode)
        return batch
