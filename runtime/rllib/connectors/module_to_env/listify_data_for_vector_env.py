"""Default piece: from items of episodes to lists in the order of the environments."""

from __future__ import annotations

from typing import Any, ClassVar

from runtime.rllib.core.columns import Columns

from ..batching import batch_items
from ..connector_v2 import Batch, ConnectorV2, is_multi_agent


class ListifyDataForVectorEnv(ConnectorV2):
    """Makes a list of each column: an item per environment, or, for several agents, a dict of agents' items.

    Actions of single agents are made arrays, which vector environments take.
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
        if not is_multi_agent(episodes):
            result = {
                column: [item for items in data.values() for item in items] for column, data in batch.items()
            }
            for column in (Columns.ACTIONS, Columns.ACTIONS_FOR_ENV):
                if column in result:
                    result[column] = batch_items(result[column])
            return result
        place = {episode.id_: number for number, episode in enumerate(episodes)}
        by_env: Batch = {}
        for column, data in batch.items():
            by_env[column] = [{} for _ in episodes]
            for (episode_id, agent, _), (item,) in data.items():
                by_env[column][place[episode_id]][agent] = item
        return by_env
