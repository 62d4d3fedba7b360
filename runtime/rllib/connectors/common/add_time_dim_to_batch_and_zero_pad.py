"""Default piece: the dimension of time for recurrent modules."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from runtime.rllib._core import trees
from runtime.rllib.core.columns import Columns
from runtime.rllib.utils.spaces.space_utils import BatchedNdArray

from ..batching import mask_and_lengths, split_and_zero_pad
from ..connector_v2 import Batch
from .add_states_from_episodes_to_batch import max_seq_len_of, module_of
from .either_pipeline import EitherPipelineConnector


class AddTimeDimToBatchAndZeroPad(EitherPipelineConnector):
    """Gives the items of stateful modules a dimension of time: of length 1, or, for a learner, of `max_seq_len`.

    For a learner, each episode is cut into chunks; the last is filled up with zeros. "seq_lens" has the chunks' lengths
    and "loss_mask" tells real steps.
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
        if rl_module is None or not rl_module.is_stateful() or Columns.STATE_IN in batch:
            return batch
        shared_data = {} if shared_data is None else shared_data
        if self._as_learner_connector:
            self._pad(rl_module, batch, episodes, shared_data)
            return batch

        def with_time(leaf: Any) -> Any:
            return np.expand_dims(leaf, 1 if isinstance(leaf, BatchedNdArray) else 0)

        for column in batch:
            self.foreach_batch_item_change_in_place(
                batch,
                column,
                lambda item, _episode, _agent, module_id: (
                    trees.tree_map(with_time, item) if module_of(rl_module, module_id).is_stateful() else item
                ),
            )
        shared_data["_added_single_ts_time_rank"] = True
        return batch

    def _pad(self, rl_module: Any, batch: Batch, episodes: list[Any], shared_data: dict[str, Any]) -> None:
        for column, by_episode in batch.items():
            if column == Columns.INFOS or not isinstance(by_episode, dict):
                continue
            for key, items in by_episode.items():
                if isinstance(key, tuple):
                    module = module_of(rl_module, key[2] if len(key) == 3 else None)
                    if module.is_stateful():
                        by_episode[key] = split_and_zero_pad(items, max_seq_len_of(module))
        for episode in self.single_agent_episode_iterator(episodes, agents_that_stepped_only=False):
            module = module_of(rl_module, episode.module_id)
            if not module.is_stateful():
                continue
            masks, lengths = mask_and_lengths(len(episode), max_seq_len_of(module))
            self.add_n_batch_items(batch, Columns.SEQ_LENS, lengths, len(lengths), episode)
            if not shared_data.get("_added_loss_mask_for_valid_episode_ts"):
                self.add_n_batch_items(batch, Columns.LOSS_MASK, masks, len(masks), episode)
