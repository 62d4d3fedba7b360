"""Discounted returns, for learners."""

from __future__ import annotations

from typing import Any

import numpy as np

from runtime.rllib.core.columns import Columns

from ..connector_v2 import Batch, ConnectorV2


class ComputeReturnsToGo(ConnectorV2):
    """Adds "returns_to_go": for each step, the discounted sum of its reward and all later ones in the episode.

    Args:
        gamma: The discount factor.
    """

    def __init__(
        self, input_observation_space: Any = None, input_action_space: Any = None, *, gamma: float
    ) -> None:
        super().__init__(input_observation_space, input_action_space)
        self.gamma = gamma

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
        for episode in self.single_agent_episode_iterator(episodes, agents_that_stepped_only=False):
            returns = np.array(episode.get_rewards(slice(0, len(episode))), np.float64)
            for step in range(len(returns) - 2, -1, -1):
                returns[step] += self.gamma * returns[step + 1]
            self.add_n_batch_items(batch, Columns.RETURNS_TO_GO, returns, len(returns), episode)
        return batch
