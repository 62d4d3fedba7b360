"""The learner of CQL."""

from __future__ import annotations

from typing import Any

import torch

from runtime.rllib._core.types import Config, ModuleID
from runtime.rllib.algorithms.dqn.torch.losses import bellman_target
from runtime.rllib.algorithms.sac.sac_learner import (
    LOGP_NEXT_RESAMPLED,
    LOGP_RESAMPLED,
    LOGPS_KEY,
    Q_CURR,
    QF_LOSS_KEY,
    QF_PREDS,
    QF_TARGET_NEXT,
    QF_TWIN_LOSS_KEY,
    QF_TWIN_PREDS,
)
from runtime.rllib.algorithms.sac.torch import losses as sac_losses
from runtime.rllib.algorithms.sac.torch.sac_torch_learner import ADAM_EPSILON, SACTorchLearner
from runtime.rllib.core.columns import Columns
from runtime.rllib.core.learner.learner import POLICY_LOSS_KEY

from . import losses
from .default_cql_torch_rl_module import LOGP_SAMPLES, QF_SAMPLES, QF_TWIN_SAMPLES

__all__ = ["CQLTorchLearner"]

CQL_LOSS_KEY = "cql_loss"
_STATE_KEY = "cql"


class CQLTorchLearner(SACTorchLearner):
    """The losses of SAC with a squared error of Q values, and the conservative penalty on each Q network.

    For the first `bc_iters` updates the policy maximizes the log-probability of the data's actions in place of their
    Q values.
    """

    def build(self) -> None:
        """Builds the module, target networks, temperatures and optimizers."""
        self.updates_by_module: dict[ModuleID, int] = {}
        self.log_alpha_prime: dict[ModuleID, torch.nn.Parameter] = {}
        super().build()

    def configure_optimizers_for_module(self, module_id: ModuleID, config: Config | None = None) -> None:
        """Those of SAC and, with `lagrangian`, one for the weight of the penalty."""
        config = config or self.config.get_config_for_module(module_id)
        super().configure_optimizers_for_module(module_id, config)
        if config.lagrangian:
            weight = self.log_alpha_prime[module_id] = torch.nn.Parameter(torch.zeros(1, device=self._device))
            self.register_optimizer(
                module_id=module_id,
                optimizer_name="alpha_prime",
                optimizer=self.new_adam([weight], eps=ADAM_EPSILON),
                params=[weight],
                lr_or_lr_schedule=config.critic_lr,
            )

    def compute_loss_for_module(
        self, *, module_id: ModuleID, config: Config, batch: dict[str, Any], fwd_out: dict[str, Any]
    ) -> torch.Tensor:
        """The sum of all losses of a module."""
        log_alpha = self.curr_log_alpha[module_id]
        alpha = log_alpha.detach().exp()
        updates = self.updates_by_module.get(module_id, 0)
        self.updates_by_module[module_id] = updates + 1
        logp = fwd_out[LOGP_RESAMPLED]
        if updates < config.bc_iters:
            distribution = self.module[module_id].unwrapped().get_train_action_dist_cls()
            policy = distribution.from_logits(fwd_out[Columns.ACTION_DIST_INPUTS])
            policy_loss = sac_losses.policy_loss(policy.logp(batch[Columns.ACTIONS]), logp, alpha)
        else:
            policy_loss = sac_losses.policy_loss(fwd_out[Q_CURR], logp, alpha)
        alpha_loss = sac_losses.alpha_loss(log_alpha, -logp, self.target_entropy[module_id])

        next_values = fwd_out[QF_TARGET_NEXT]
        if not config.deterministic_backup:
            next_values = sac_losses.soft_value(next_values, fwd_out[LOGP_NEXT_RESAMPLED], alpha)
        target = bellman_target(batch[Columns.REWARDS], batch[Columns.TERMINATEDS], next_values, config.gamma)
        predictions = [fwd_out[name] for name in (QF_PREDS, QF_TWIN_PREDS) if name in fwd_out]
        samples = [fwd_out[name] for name in (QF_SAMPLES, QF_TWIN_SAMPLES) if name in fwd_out]
        penalties = [
            config.min_q_weight
            * losses.conservative_penalty(of_data, of_samples, fwd_out[LOGP_SAMPLES], config.temperature)
            for of_data, of_samples in zip(predictions, samples, strict=True)
        ]
        weight_loss = torch.zeros((), device=target.device)
        if config.lagrangian:
            penalties, weight_loss = self._weighted(module_id, config, penalties)
        q_losses = [
            (each - target).square().mean() + penalty
            for each, penalty in zip(predictions, penalties, strict=True)
        ]
        errors = sum((each.detach() - target).abs() for each in predictions) / len(predictions)
        self.td_errors[module_id] = errors
        self._latest[module_id] = {
            POLICY_LOSS_KEY: policy_loss.detach(),
            CQL_LOSS_KEY: penalties[0].detach(),
            "alpha_loss": alpha_loss.detach(),
            "alpha_value": alpha,
            LOGPS_KEY: logp.detach(),
            "values": predictions[0].detach(),
            "errors": errors,
            **{
                name: each.detach()
                for name, each in zip((QF_LOSS_KEY, QF_TWIN_LOSS_KEY), q_losses, strict=False)
            },
        }
        return policy_loss + alpha_loss + torch.stack(q_losses).sum() + weight_loss

    def _weighted(
        self, module_id: ModuleID, config: Config, penalties: list[torch.Tensor]
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        """The penalties above the threshold times the learned weight, and the loss of that weight."""
        weight = self.log_alpha_prime[module_id].exp().clamp(0.0, 1e6).squeeze()
        above = [penalty - config.lagrangian_thresh for penalty in penalties]
        loss = -weight * torch.stack(above).detach().mean()
        return [weight.detach() * each for each in above], loss

    def _report(
        self, module_id: ModuleID, config: Config, tensors: dict[str, torch.Tensor]
    ) -> dict[str, Any]:
        report = super()._report(module_id, config, tensors) | {CQL_LOSS_KEY: tensors[CQL_LOSS_KEY]}
        if config.lagrangian:
            report["alpha_prime_value"] = self.log_alpha_prime[module_id].detach().exp().squeeze()
        return report

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """As `SACTorchLearner.get_state`, the number of updates and the weights of penalties."""
        weights = {name: float(value.detach()) for name, value in self.log_alpha_prime.items()}
        own = {"updates": dict(self.updates_by_module), "log_alpha_prime": weights}
        return {**super().get_state(*args, **kwargs), _STATE_KEY: own}

    def set_state(self, state: dict[str, Any]) -> None:
        """Sets what `get_state` gave."""
        super().set_state(state)
        own = state.get(_STATE_KEY, {})
        self.updates_by_module.update(own.get("updates", {}))
        with torch.no_grad():
            for module_id, value in own.get("log_alpha_prime", {}).items():
                self.log_alpha_prime[module_id].fill_(value)
