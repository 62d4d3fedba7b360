"""MARWIL's and BC's loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from runtime.rllib._core import gae, trees
from runtime.rllib._core.rollout import Rollout
from runtime.rllib._core.types import Config, ModuleID
from runtime.rllib.algorithms.marwil.marwil_learner import (
    LEARNER_RESULTS_MOVING_AVG_SQD_ADV_NORM_KEY,
    LEARNER_RESULTS_VF_EXPLAINED_VAR_KEY,
)
from runtime.rllib.core.columns import Columns
from runtime.rllib.core.learner.learner import POLICY_LOSS_KEY, VF_LOSS_KEY
from runtime.rllib.core.learner.torch.batches import (
    as_tensor,
    row_values,
    take,
    through_sequences,
    with_final_rows,
)
from runtime.rllib.core.learner.torch.losses import explained_variance, mean
from runtime.rllib.core.learner.torch.torch_learner import TorchLearner
from runtime.rllib.core.learner.training_data import row_count
from runtime.rllib.core.rl_module.apis import ValueFunctionAPI
from runtime.rllib.core.rl_module.rl_module import RLModule

from .losses import advantage_weights, moved_mean_square

__all__ = ["MARWILTorchLearner"]

_STATE_KEY = "moving_avg_sqd_adv_norms"


class MARWILTorchLearner(TorchLearner):
    """Imitates actions, each weighted by the exponential of its scaled advantage; with `beta=0.0`, all alike."""

    def build(self) -> None:
        """Builds the module, the optimizers and the moving averages of squared advantages."""
        self.moving_avg_sqd_adv_norms_per_module: dict[ModuleID, torch.Tensor] = {}
        super().build()

    def rl_module_is_compatible(self, module: RLModule) -> bool:
        """Whether it has a value function, which it needs unless `beta` is 0.0."""
        return self.config.beta == 0.0 or isinstance(module.unwrapped(), ValueFunctionAPI)

    def batch_from_rollout(self, module_id: ModuleID, rollout: Rollout) -> dict[str, Any]:
        """The columns and, unless `beta` is 0.0, "value_targets"; rows (of recurrent modules: sequences) in random
        order."""
        config = self.config.get_config_for_module(module_id)
        module = self.module[module_id].unwrapped()
        if config.beta == 0.0:
            batch = super().batch_from_rollout(module_id, rollout)
        elif module.is_stateful():
            batch = self._sequences_from_rollout(module, config, rollout)
        else:
            values = row_values(module, rollout.columns[Columns.OBS], rollout.rows, self._device)
            final_values = row_values(module, rollout.final_obs, len(rollout.segments), self._device)
            batch = super().batch_from_rollout(module_id, rollout)
            targets = _value_targets(config, rollout, values, final_values)
            batch[Columns.VALUE_TARGETS] = as_tensor(targets, self._device)
        # Rows of one episode resemble each other: minibatches get rows of all of them.
        order = as_tensor(self._rng.permutation(row_count(batch)), self._device)
        return {name: take(column, order) for name, column in batch.items()}

    def _sequences_from_rollout(self, module: Any, config: Config, rollout: Rollout) -> dict[str, Any]:
        """Sequences with "value_targets". The final observation of a segment is a masked row of its last sequence."""
        if rollout.state_in is None:
            rollout.state_in = _initial_states(module, len(rollout.segments))
        longer, is_own = with_final_rows(rollout)
        sequences = self.sequences_of(module, longer)
        values, state_in = through_sequences(module, longer, sequences, self._device, has_values=True)
        targets = np.zeros(len(values), np.float32)
        targets[is_own] = _value_targets(config, rollout, values[is_own], values[~is_own])
        return self.sequence_batch(longer, is_own, sequences, state_in, **{Columns.VALUE_TARGETS: targets})

    def compute_loss_for_module(
        self, *, module_id: ModuleID, config: Config, batch: dict[str, Any], fwd_out: dict[str, Any]
    ) -> torch.Tensor:
        """The negative weighted log-likelihood of the actions and, unless `beta` is 0.0, the values' squared error."""
        module = self.module[module_id].unwrapped()
        mask = batch.get(Columns.LOSS_MASK)
        if mask is not None and config.burnin_len > 0:
            mask = mask.clone()
            mask[:, : config.burnin_len] = False
        inputs = fwd_out[Columns.ACTION_DIST_INPUTS]
        logp = module.get_train_action_dist_cls().from_logits(inputs).logp(batch[Columns.ACTIONS])
        if config.bc_logstd_coeff > 0.0:
            logp = logp + config.bc_logstd_coeff * inputs.chunk(2, -1)[1].mean(-1)
        if config.beta == 0.0:
            policy_loss = -mean(logp, mask)
            if self.logs_losses:
                self.metrics.log_value((module_id, POLICY_LOSS_KEY), policy_loss.detach(), window=1)
            return policy_loss
        targets = batch[Columns.VALUE_TARGETS]
        values = module.compute_values(batch, embeddings=fwd_out.get(Columns.EMBEDDINGS))
        advantages = targets - values
        mean_square = mean(advantages.square(), mask)
        moved = moved_mean_square(
            self._mean_square(module_id, config), mean_square, config.moving_average_sqd_adv_norm_update_rate
        )
        self.moving_avg_sqd_adv_norms_per_module[module_id] = moved
        policy_loss = -mean(advantage_weights(advantages, config.beta, moved, mean_square) * logp, mask)
        vf_loss = 0.5 * mean_square
        if self.logs_losses:
            self.metrics.log_dict(
                {
                    POLICY_LOSS_KEY: policy_loss.detach(),
                    VF_LOSS_KEY: vf_loss.detach(),
                    LEARNER_RESULTS_VF_EXPLAINED_VAR_KEY: explained_variance(targets, values.detach(), mask),
                    LEARNER_RESULTS_MOVING_AVG_SQD_ADV_NORM_KEY: moved,
                },
                key=module_id,
                window=1,
            )
        return policy_loss + config.vf_coeff * vf_loss

    def remove_module(self, module_id: ModuleID, **kwargs: Any) -> Any:
        """Removes a module, its optimizers and its moving average."""
        self.moving_avg_sqd_adv_norms_per_module.pop(module_id, None)
        return super().remove_module(module_id, **kwargs)

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The state of `TorchLearner` and the moving averages."""
        averages = {name: float(value) for name, value in self.moving_avg_sqd_adv_norms_per_module.items()}
        return {**super().get_state(*args, **kwargs), _STATE_KEY: averages}

    def set_state(self, state: dict[str, Any]) -> None:
        """Sets what `get_state` gave."""
        super().set_state(state)
        self.moving_avg_sqd_adv_norms_per_module.update(
            {
                name: torch.tensor(value, device=self.device)
                for name, value in state.get(_STATE_KEY, {}).items()
            }
        )

    def _mean_square(self, module_id: ModuleID, config: Config) -> torch.Tensor:
        found = self.moving_avg_sqd_adv_norms_per_module.get(module_id)
        return (
            torch.tensor(config.moving_average_sqd_adv_norm_start, device=self.device)
            if found is None
            else found
        )


def _value_targets(
    config: Config, rollout: Rollout, values: np.ndarray, final_values: np.ndarray
) -> np.ndarray:
    """float [rows]."""
    rewards = np.asarray(rollout.columns[Columns.REWARDS], np.float32)
    _, targets = gae.advantages_and_targets(
        rewards, values, final_values, rollout.segments, gamma=config.gamma, lambda_=config.lambda_
    )
    return targets


def _initial_states(module: Any, count: int) -> Any:
    """Tree of arrays [count, ...]: recorded data has no states of this module."""
    initial = trees.tree_map(np.asarray, module.get_initial_state())
    return trees.tree_map(lambda leaf: np.repeat(leaf[None], count, axis=0), initial)
