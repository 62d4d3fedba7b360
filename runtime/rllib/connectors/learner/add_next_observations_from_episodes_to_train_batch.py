"""The observations after each step, for learners."""

from __future__ import annotations

import dataclasses
from typing import Any

from runtime.rllib._core.rollout import Rollout
from runtime.rllib.core.columns import Columns

from ..connector_v2 import Batch, ConnectorV2


class AddNextObservationsFromEpisodesToTrainBatch(ConnectorV2):
    """Adds "new_obs". It does nothing if the batch has it."""

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
        if Columns.NEXT_OBS not in batch:
            for episode in self.single_agent_episode_iterator(episodes, agents_that_stepped_only=False):
                observations = episode.get_observations(slice(1, len(episode) + 1))
                self.add_n_batch_items(batch, Columns.NEXT_OBS, observations, len(episode), episode)
        return batch

    def on_rollout(self, rollout: Rollout) -> Rollout:
        if Columns.NEXT_OBS in rollout.columns:
            return rollout
        return dataclasses.replace(rollout, columns={**rollout.columns, Columns.NEXT_OBS: rollout.next_obs()})
