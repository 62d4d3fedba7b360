"""Default piece: without the dimension of time that recurrent modules take."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from runtime.rllib._core import trees
from runtime.rllib.core.columns import Columns

from ..common.add_states_from_episodes_to_batch import module_of
from ..connector_v2 import Batch, ConnectorV2


class RemoveSingleTsTimeRankFromBatch(ConnectorV2):
    """Removes the first dimension, of length 1, of what stateful modules gave, except of their states."""

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
        if not (shared_data or {}).get("_added_single_ts_time_rank"):
            return batch

        def without_time(item: Any, _episode: Any, _agent: Any, module_id: Any) -> Any:
            if not module_of(rl_module, module_id).is_stateful():
                return item
            return trees.tree_map(lambda leaf: np.squeeze(leaf, axis=0), item)

        for column in batch:
            if column != Columns.STATE_OUT:
                self.foreach_batch_item_change_in_place(batch, column, without_time)
        return batch
