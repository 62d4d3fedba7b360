"""The learner of TQC."""

from __future__ import annotations

from typing import Any

import torch

from runtime.rllib._core.types import Config, ModuleID
from runtime.rllib.algorithms.dqn.torch.losses import bellman_target, weighted_mean
from runtime.rllib.algorithms.sac.sac_learner import (
    LOGP_NEXT_RESAMPLED,
    LOGP_RESAMPLED,
    LOGPS_KEY,
    Q_CURR,
    QF_LOSS_KEY,
    QF_PREDS,
    QF_TARGET_NEXT,
)
from runtime.rllib.algorithms.sac.torch import losses
from runtime.rllib.algorithms.sac.torch.sac_torch_learner import SACTorchLearner
from runtime.rllib.algorithms.tqc.torch.losses import quantile_huber_loss
from runtime.rllib.core.columns import Columns
from runtime.rllib.core.learner.learner import POLICY_LOSS_KEY


class TQCTorchLearner(SACTorchLearner):
    """SAC's losses of policy and temperature, and quantile regression of all critics towards truncated targets."""

    def configure_optimizers_for_module(self, module_id: ModuleID, config: Config | None = None) -> None:
        """An Adam each for "qf" (all critics), "policy" and "alpha"."""
        config = config or self.config.get_config_for_module(module_id)
        module = self.module[module_id].unwrapped()
        critics = [network for networks in module.q_networks() for network in networks]
        self._add_adam(module_id, "qf", critics, config.critic_lr)
        self._add_policy_and_alpha(module_id, config, module)

    def compute_loss_for_module(
        self, *, module_id: ModuleID, config: Config, batch: dict[str, Any], fwd_out: dict[str, Any]
    ) -> Any:
        """The sum of all losses of a module."""
        log_alpha = self.curr_log_alpha[module_id]
        alpha = log_alpha.detach().exp()
        n_step = batch.get("n_step")
        with torch.no_grad():
            next_values = losses.soft_value(
                fwd_out[QF_TARGET_NEXT], fwd_out[LOGP_NEXT_RESAMPLED].unsqueeze(-1), alpha
            )
            targets = bellman_target(
                batch[Columns.REWARDS].unsqueeze(-1),
                batch[Columns.TERMINATEDS].unsqueeze(-1),
                next_values,
                config.gamma,
                None if n_step is None else n_step.unsqueeze(-1),
            )
        quantiles = fwd_out[QF_PREDS]
        q_loss = weighted_mean(quantile_huber_loss(quantiles, targets), batch.get("weights"))
        logp = fwd_out[LOGP_RESAMPLED]
        policy_loss = losses.policy_loss(fwd_out[Q_CURR], logp, alpha)
        alpha_loss = losses.alpha_loss(log_alpha, -logp, self.target_entropy[module_id])
        values = quantiles.detach().mean((1, 2))
        errors = (values - targets.mean(-1)).abs()
        self.td_errors[module_id] = errors
        self._latest[module_id] = {
            POLICY_LOSS_KEY: policy_loss.detach(),
            QF_LOSS_KEY: q_loss.detach(),
            "alpha_loss": alpha_loss.detach(),
            "alpha_value": alpha,
            LOGPS_KEY: logp.detach(),
            "values": values,
            "errors": errors,
        }
        return policy_loss + alpha_loss + q_loss
