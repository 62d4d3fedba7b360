"""An extra time step, for values behind an episode's last step."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from runtime.rllib.core.columns import Columns

from ..connector_v2 import Batch, ConnectorV2, make_ids_unique


class AddOneTsToEpisodesAndTruncate(ConnectorV2):
    """Adds a step to each episode, so that the batch has a row for the observation after the last step.

    The extra step repeats the last observation, action and outputs, with reward 0. "loss_mask" is False for it.
    Episodes that are not done count as truncated. The episodes are changed, and their ids made unique.
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
        make_ids_unique(episodes, shared_data)
        for episode in self.single_agent_episode_iterator(episodes, agents_that_stepped_only=False):
            steps = len(episode)
            if not steps:  # an agent that has not acted yet
                continue
            _add_step(episode)
            real = np.arange(steps + 1) < steps
            last = np.arange(steps + 1) == steps - 1
            self.add_n_batch_items(batch, Columns.LOSS_MASK, real, steps + 1, episode)
            self.add_n_batch_items(
                batch, Columns.TERMINATEDS, last & episode.is_terminated, steps + 1, episode
            )
            self.add_n_batch_items(batch, Columns.TRUNCATEDS, last & episode.is_truncated, steps + 1, episode)
        if shared_data is not None:
            shared_data["_added_loss_mask_for_valid_episode_ts"] = True
        return batch


def _add_step(episode: Any) -> None:
    for buffer in (
        episode.observations,
        episode.infos,
        episode.actions,
        *episode.extra_model_outputs.values(),
    ):
        buffer.append(buffer[-1])
    episode.rewards.append(0.0)
    episode.t += 1
    if not episode.is_done:
        episode.is_truncated = True
    episode.validate()
