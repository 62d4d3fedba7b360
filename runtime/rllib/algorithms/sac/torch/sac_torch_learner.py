"""The learner of SAC, for continuous and discrete actions."""

from __future__ import annotations

import math
from typing import Any

import torch

from runtime.rllib._core.types import Config, ModuleID
from runtime.rllib.algorithms.dqn.torch.dqn_torch_learner import TorchTargetNetworkLearner
from runtime.rllib.algorithms.dqn.torch.losses import (
    bellman_target,
    elementwise_loss,
    take_actions,
    weighted_mean,
)
from runtime.rllib.algorithms.sac.sac_learner import (
    ACTION_LOG_PROBS,
    ACTION_LOG_PROBS_NEXT,
    ACTION_PROBS,
    ACTION_PROBS_NEXT,
    LOGP_NEXT_RESAMPLED,
    LOGP_RESAMPLED,
    LOGPS_KEY,
    Q_CURR,
    QF_LOSS_KEY,
    QF_MAX_KEY,
    QF_MEAN_KEY,
    QF_MIN_KEY,
    QF_PREDS,
    QF_TARGET_NEXT,
    QF_TWIN_LOSS_KEY,
    QF_TWIN_PREDS,
    TD_ERROR_MEAN_KEY,
    SACLearner,
)
from runtime.rllib.algorithms.sac.torch import losses
from runtime.rllib.core.columns import Columns
from runtime.rllib.core.learner.learner import POLICY_LOSS_KEY

ADAM_EPSILON = 1e-7
_LOG_ALPHA = "log_alpha"


class SACTorchLearner(SACLearner, TorchTargetNetworkLearner):
    """The losses of SAC: of the policy, of each Q network and of the temperature.

    No parameter is in two of them, so one backward pass of their sum gives each optimizer the gradients of its own
    loss. Batches have the columns of `DQNTorchLearner`'s.
    """

    def configure_optimizers_for_module(self, module_id: ModuleID, config: Config | None = None) -> None:
        """An Adam each for "qf", "qf_twin", "policy" and "alpha"."""
        config = config or self.config.get_config_for_module(module_id)
        module = self.module[module_id].unwrapped()
        groups = dict(zip(("qf", "qf_twin"), module.q_networks(), strict=False))
        for name, networks in groups.items():
            self._add_adam(module_id, name, networks, config.critic_lr)
        self._add_policy_and_alpha(module_id, config, module)

    def _add_policy_and_alpha(self, module_id: ModuleID, config: Config, module: Any) -> None:
        self._add_adam(module_id, "policy", (module.pi_encoder, module.pi), config.actor_lr)
        start = torch.tensor([math.log(config.initial_alpha)], device=self._device)
        log_alpha = self.curr_log_alpha[module_id] = torch.nn.Parameter(start)
        self.target_entropy[module_id] = self._get_target_entropy(module_id, config)
        self.register_optimizer(
            module_id=module_id,
            optimizer_name="alpha",
            optimizer=self.new_adam([log_alpha], eps=ADAM_EPSILON),
            params=[log_alpha],
            lr_or_lr_schedule=config.alpha_lr,
        )

    def _add_adam(self, module_id: ModuleID, name: str, networks: Any, lr: Any) -> None:
        params = [parameter for network in networks for parameter in network.parameters()]
        self.register_optimizer(
            module_id=module_id,
            optimizer_name=name,
            optimizer=self.new_adam(params, eps=ADAM_EPSILON),
            params=params,
            lr_or_lr_schedule=lr,
        )

    def compute_loss_for_module(
        self, *, module_id: ModuleID, config: Config, batch: dict[str, Any], fwd_out: dict[str, Any]
    ) -> Any:
        """The sum of all losses of a module."""
        log_alpha = self.curr_log_alpha[module_id]
        alpha = log_alpha.detach().exp()
        is_discrete = ACTION_PROBS in fwd_out
        with torch.no_grad():
            if is_discrete:
                next_values = losses.soft_value_discrete(
                    fwd_out[QF_TARGET_NEXT], fwd_out[ACTION_PROBS_NEXT], fwd_out[ACTION_LOG_PROBS_NEXT], alpha
                )
            else:
                next_values = losses.soft_value(fwd_out[QF_TARGET_NEXT], fwd_out[LOGP_NEXT_RESAMPLED], alpha)
            target = bellman_target(
                batch[Columns.REWARDS],
                batch[Columns.TERMINATEDS],
                next_values,
                config.gamma,
                batch.get("n_step"),
            )
        predictions = [fwd_out[name] for name in (QF_PREDS, QF_TWIN_PREDS) if name in fwd_out]
        values = predictions
        if is_discrete:
            values = [take_actions(each, batch[Columns.ACTIONS]) for each in predictions]
        weights, mask = batch.get("weights"), batch.get(Columns.LOSS_MASK)
        q_losses = [weighted_mean(elementwise_loss(each, target, "huber"), weights, mask) for each in values]
        errors = sum((each.detach() - target).abs() for each in values) / len(values)
        if is_discrete:
            smallest = predictions[0].detach()
            if len(predictions) > 1:
                smallest = torch.minimum(smallest, predictions[1].detach())
            probs, logp = fwd_out[ACTION_PROBS], fwd_out[ACTION_LOG_PROBS]
            policy_loss = -weighted_mean(losses.soft_value_discrete(smallest, probs, logp, alpha), mask=mask)
            entropy = -(probs * logp).sum(-1)
        else:
            logp = fwd_out[LOGP_RESAMPLED]
            policy_loss = losses.policy_loss(fwd_out[Q_CURR], logp, alpha, mask)
            entropy = -logp
        alpha_loss = losses.alpha_loss(log_alpha, entropy, self.target_entropy[module_id], mask)
        self.td_errors[module_id] = errors
        self._latest[module_id] = {
            POLICY_LOSS_KEY: policy_loss.detach(),
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
        return policy_loss + alpha_loss + sum(q_losses)

    def _report(
        self, module_id: ModuleID, config: Config, tensors: dict[str, torch.Tensor]
    ) -> dict[str, Any]:
        alpha = tensors["alpha_value"].squeeze()
        values = tensors["values"]
        report = {
            name: tensors[name]
            for name in (POLICY_LOSS_KEY, QF_LOSS_KEY, QF_TWIN_LOSS_KEY, "alpha_loss")
            if name in tensors
        }
        return report | {
            "alpha_value": alpha,
            "log_alpha_value": alpha.log(),
            "target_entropy": self.target_entropy[module_id],
            LOGPS_KEY: tensors[LOGPS_KEY].mean(),
            QF_MEAN_KEY: values.mean(),
            QF_MAX_KEY: values.max(),
            QF_MIN_KEY: values.min(),
            TD_ERROR_MEAN_KEY: tensors["errors"].mean(),
        }

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """As `Learner.get_state`, and the temperatures."""
        alphas = {
            module_id: value.detach().cpu().numpy().copy() for module_id, value in self.curr_log_alpha.items()
        }
        return {**super().get_state(*args, **kwargs), _LOG_ALPHA: alphas}

    def set_state(self, state: dict[str, Any]) -> None:
        """Sets what `get_state` gave."""
        super().set_state(state)
        with torch.no_grad():
            for module_id, value in state.get(_LOG_ALPHA, {}).items():
                self.curr_log_alpha[module_id].copy_(torch.as_tensor(value))
