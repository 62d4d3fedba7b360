"""The environment's info dicts, for learners."""

from __future__ import annotations

from typing import Any

from runtime.rllib.core.columns import Columns

from ..connector_v2 import Batch, ConnectorV2


class AddInfosFromEpisodesToTrainBatch(ConnectorV2):
    """Adds "infos": a list of the info dicts that came with the observations. It does nothing if the batch has them."""

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
        if Columns.INFOS not in batch:
            for episode in self.single_agent_episode_iterator(episodes, agents_that_stepped_only=False):
                infos = list(episode.get_infos(slice(0, len(episode))))
                self.add_n_batch_items(batch, Columns.INFOS, infos, len(episode), episode)
        return batch
