"""From the batch into the episodes."""

from __future__ import annotations

from typing import Any

from runtime.rllib.core.columns import Columns

from ..connector_v2 import Batch, ConnectorV2


class WriteObservationsToEpisodes(ConnectorV2):
    """Replaces the last observation of each episode by the one in the batch, so that it reaches the learner."""

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
        observations = batch.get(Columns.OBS)
        if observations is None:
            raise ValueError(
                "WriteObservationsToEpisodes needs observations in the batch: put a piece that adds them before it"
            )
        for episode, new in self.single_agent_episode_iterator(episodes, zip_with_batch_column=observations):
            self.replace_last_observation(episode, new)
        return batch
