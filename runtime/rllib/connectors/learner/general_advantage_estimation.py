"""Generalized advantage estimation over a batch of episodes."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from runtime.rllib._core.gae import advantages_and_targets, standardized
from runtime.rllib._core.rollout import Segments
from runtime.rllib.core.columns import Columns

from ..batching import batch_items, split_and_zero_pad, unpad
from ..common.add_states_from_episodes_to_batch import max_seq_len_of
from ..connector_v2 import Batch, ConnectorV2


class GeneralAdvantageEstimation(ConnectorV2):
    """Adds "advantages", with mean 0 and deviation 1, and "value_targets", for modules that have a value function.

    It stands at the end of a pipeline, behind `NumpyToTensor`, with `AddOneTsToEpisodesAndTruncate` at its beginning.
    The extra steps have advantage and value target 0. Values come from one forward pass over the whole batch.

    Args:
        gamma: The discount factor.
        lambda_: 0: one-step advantages; 1: discounted returns less the values.
    """

    is_default_piece: ClassVar[bool] = True

    def __init__(
        self,
        input_observation_space: Any = None,
        input_action_space: Any = None,
        *,
        gamma: float,
        lambda_: float,
    ) -> None:
        super().__init__(input_observation_space, input_action_space)
        self.gamma = gamma
        self.lambda_ = lambda_

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
        every = self.single_agent_episode_iterator(episodes, agents_that_stepped_only=False)
        found = [episode for episode in every if len(episode)]
        for module_id, columns in batch.items():
            module = rl_module[module_id]
            if hasattr(module.unwrapped() if hasattr(module, "unwrapped") else module, "compute_values"):
                lengths = [len(episode) for episode in found if episode.module_id in (None, module_id)]
                self._add(module, columns, np.asarray(lengths, np.int64))
        return batch

    def _add(self, module: Any, columns: dict[str, Any], lengths: np.ndarray) -> None:
        """Adds the two columns to a module's batch of episodes of these lengths, including the extra steps."""
        values = module.compute_values(columns).detach()

        def rows(name: str) -> np.ndarray:
            return unpad(lengths, np.asarray(columns[name].cpu()))

        all_values = unpad(lengths, values.float().cpu().numpy())
        extra = np.zeros(len(all_values), bool)
        extra[np.cumsum(lengths) - 1] = True
        last = np.cumsum(lengths) - 2
        segments = Segments(
            lengths - 1,
            rows(Columns.TERMINATEDS)[last].astype(bool),
            rows(Columns.TRUNCATEDS)[last].astype(bool),
            [""] * len(lengths),
            np.zeros_like(lengths),
        )
        advantages, targets = advantages_and_targets(
            rows(Columns.REWARDS)[~extra],
            all_values[~extra],
            all_values[extra],
            segments,
            gamma=self.gamma,
            lambda_=self.lambda_,
        )
        results = {Columns.ADVANTAGES: standardized(advantages), Columns.VALUE_TARGETS: targets}
        for name, result in results.items():
            column = np.zeros(len(extra), np.float32)
            column[~extra] = result
            if module.is_stateful():
                parts = np.split(column, np.cumsum(lengths)[:-1])
                chunks = [
                    chunk
                    for part in parts
                    for chunk in split_and_zero_pad(list(part), max_seq_len_of(module))
                ]
                column = batch_items(chunks)
            columns[name] = values.new_tensor(column)
