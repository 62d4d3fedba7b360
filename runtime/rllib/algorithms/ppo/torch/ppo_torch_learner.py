"""PPO's loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ...._core.gae import advantages_and_targets, standardized
from ...._core.rollout import Rollout
from ...._core.types import Config, ModuleID
from ....core.columns import Columns
from ....core.learner.learner import ENTROPY_KEY, POLICY_LOSS_KEY, VF_LOSS_KEY
from ....core.learner.torch.batches import as_tensor, row_values, through_sequences, with_final_rows
from ....core.learner.torch.losses import explained_variance, mean
from ....core.learner.torch.torch_learner import TorchLearner
from ..ppo_learner import PPOLearner
from ..results import (
    LEARNER_RESULTS_KL_KEY,
    LEARNER_RESULTS_VF_EXPLAINED_VAR_KEY,
    LEARNER_RESULTS_VF_LOSS_UNCLIPPED_KEY,
)

_NOT_NEEDED = frozenset({Columns.REWARDS, Columns.STATE_OUT, Columns.VF_PREDS})
"""Columns of rollouts that the loss does not use. Others are kept: a module's forward pass may want them."""


class PPOTorchLearner(PPOLearner, TorchLearner):
    """Maximizes the clipped surrogate of the advantage, and fits values to returns."""

    def batch_from_rollout(self, module_id: ModuleID, rollout: Rollout) -> dict[str, Any]:
        """Rows, or sequences of a recurrent module, with advantages (standardized over all rows) and value targets."""
        config = self.config_for_module(module_id)
        module = self.module[module_id].unwrapped()
        if module.is_stateful():
            return self._sequences_from_rollout(module, config, rollout)
        if config.use_critic:
            values = row_values(module, rollout.columns[Columns.OBS], rollout.rows, self._device)
            final_values = row_values(module, rollout.final_obs, len(rollout.segments), self._device)
        else:
            values, final_values = (
                np.zeros(rollout.rows, np.float32),
                np.zeros(len(rollout.segments), np.float32),
            )
        advantages, targets = _advantages(config, rollout, values, final_values)
        left_out = _NOT_NEEDED if config.use_kl_loss else _NOT_NEEDED | {Columns.ACTION_DIST_INPUTS}
        batch = self._tensors(
            {name: column for name, column in rollout.columns.items() if name not in left_out}
        )
        batch[Columns.ADVANTAGES] = as_tensor(advantages, self._device)
        batch[Columns.VALUE_TARGETS] = as_tensor(targets, self._device)
        return batch

    def _sequences_from_rollout(self, module: Any, config: Config, rollout: Rollout) -> dict[str, Any]:
        """The same of a recurrent module. The final observation of a segment is a masked row of its last sequence."""
        longer, is_own = with_final_rows(rollout)
        sequences = self.sequences_of(module, longer)
        values, state_in = through_sequences(
            module, longer, sequences, self._device, has_values=config.use_critic
        )
        more = {}
        computed = _advantages(config, rollout, values[is_own], values[~is_own])
        for name, column in zip((Columns.ADVANTAGES, Columns.VALUE_TARGETS), computed, strict=True):
            more[name] = np.zeros(len(values), np.float32)
            more[name][is_own] = column
        return self.sequence_batch(longer, is_own, sequences, state_in, **more)

    def compute_loss_for_module(
        self, *, module_id: ModuleID, config: Config, batch: dict[str, Any], fwd_out: dict[str, Any]
    ) -> Any:
        """The loss of one minibatch."""
        module = self.module[module_id].unwrapped()
        mask = batch.get(Columns.LOSS_MASK)
        current = module.get_train_action_dist_cls().from_logits(fwd_out[Columns.ACTION_DIST_INPUTS])
        advantages = batch[Columns.ADVANTAGES]

        log_ratio = current.logp(batch[Columns.ACTIONS]) - batch[Columns.ACTION_LOGP]
        if mask is not None:
            # Masked rows have actions that nobody took: an overflow there would make the gradients of all rows NaN.
            log_ratio = torch.where(mask, log_ratio, 0)
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1 - config.clip_param, 1 + config.clip_param)
        gain = mean(torch.minimum(ratio * advantages, clipped * advantages), mask)
        loss = -gain

        entropy_coeff = self.entropy_coeff_schedulers_per_module[module_id].get_current_value()
        entropy: Any = None
        if entropy_coeff != 0 or self.logs_losses:
            entropy = mean(current.entropy(), mask)
        if entropy_coeff != 0:
            loss = loss - entropy_coeff * entropy

        kl = None
        if config.use_kl_loss:
            behavior = module.get_exploration_action_dist_cls().from_logits(batch[Columns.ACTION_DIST_INPUTS])
            kl = mean(behavior.kl(current), mask)
            loss = loss + self.curr_kl_coeffs_per_module[module_id] * kl

        values = vf_loss = errors = None
        if config.use_critic:
            values = module.compute_values(batch, embeddings=fwd_out.get(Columns.EMBEDDINGS))
            errors = (values - batch[Columns.VALUE_TARGETS]).square()
            vf_loss = mean(errors.clamp(max=config.vf_clip_param), mask)
            loss = loss + config.vf_loss_coeff * vf_loss

        if self.logs_losses:
            with torch.no_grad():
                zero = loss.new_zeros(())
                if kl is not None:
                    self._latest_kl[module_id] = kl.detach()
                report = {
                    POLICY_LOSS_KEY: -gain,
                    VF_LOSS_KEY: zero if vf_loss is None else vf_loss,
                    LEARNER_RESULTS_VF_LOSS_UNCLIPPED_KEY: zero if errors is None else mean(errors, mask),
                    LEARNER_RESULTS_VF_EXPLAINED_VAR_KEY: zero
                    if values is None
                    else explained_variance(batch[Columns.VALUE_TARGETS], values, mask),
                    ENTROPY_KEY: entropy,
                    LEARNER_RESULTS_KL_KEY: zero if kl is None else kl,
                }
            self.metrics.log_dict(
                {name: each.detach() for name, each in report.items()}, key=module_id, window=1
            )
        return loss


def _advantages(
    config: Config, rollout: Rollout, values: np.ndarray, final_values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Standardized advantages and value targets, float32 [rows]."""
    advantages, targets = advantages_and_targets(
        np.asarray(rollout.columns[Columns.REWARDS], np.float32),
        values,
        final_values,
        rollout.segments,
        gamma=config.gamma,
        lambda_=config.lambda_ if config.use_gae else 1.0,
    )
    return standardized(advantages), targets
