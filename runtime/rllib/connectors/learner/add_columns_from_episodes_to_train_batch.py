"""Default piece: all columns of episodes but observations, infos and states."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from runtime.rllib.core.columns import Columns

from ..connector_v2 import Batch, ConnectorV2


class AddColumnsFromEpisodesToTrainBatch(ConnectorV2):
    """Adds actions, rewards, terminateds, truncateds and the module's other outputs, where the batch has none yet."""

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
        there = {*batch, Columns.STATE_IN, Columns.STATE_OUT}
        for episode in self.single_agent_episode_iterator(episodes, agents_that_stepped_only=False):
            steps = slice(0, len(episode))
            columns = {
                Columns.ACTIONS: episode.get_actions(steps),
                Columns.REWARDS: np.asarray(episode.get_rewards(steps), np.float32),
                Columns.TERMINATEDS: _at_end(len(episode), episode.is_terminated),
                Columns.TRUNCATEDS: _at_end(len(episode), episode.is_truncated),
            }
            for name in episode.extra_model_outputs:
                if name not in there:
                    columns[name] = episode.get_extra_model_outputs(name, steps)
            for name, items in columns.items():
                if name not in there:
                    self.add_n_batch_items(batch, name, items, len(episode), episode)
        return batch


def _at_end(length: int, value: bool) -> np.ndarray:
    result = np.zeros(length, bool)
    result[-1:] = value
    return result
