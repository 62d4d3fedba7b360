"""The learner of IQL."""

from __future__ import annotations

from typing import Any

import torch

from runtime.rllib._core.types import Config, ModuleID
from runtime.rllib.algorithms.dqn.torch.dqn_torch_learner import TorchTargetNetworkLearner
from runtime.rllib.algorithms.iql.iql_learner import QF_TARGET_PREDS, VF_LOSS, VF_PREDS_NEXT
from runtime.rllib.algorithms.sac.sac_learner import (
    QF_LOSS_KEY,
    QF_MAX_KEY,
    QF_MEAN_KEY,
    QF_MIN_KEY,
    QF_PREDS,
    QF_TWIN_LOSS_KEY,
    QF_TWIN_PREDS,
    TD_ERROR_MEAN_KEY,
)
from runtime.rllib.core.columns import Columns
from runtime.rllib.core.learner.learner import POLICY_LOSS_KEY
from runtime.rllib.core.rl_module.apis import QNetAPI, TargetNetworkAPI, ValueFunctionAPI

from . import losses

__all__ = ["IQLTorchLearner"]

ADAM_EPSILON = 1e-7


class IQLTorchLearner(TorchTargetNetworkLearner):
    """The losses of IQL: of values by expectile regression, of Q networks, and of the policy.

    No parameter is in two of them, so one backward pass of their sum gives each optimizer the gradients of its own.
    """

    @classmethod
    def rl_module_required_apis(cls) -> list[type]:
        """Modules have Q values, target networks and values."""
        return [QNetAPI, TargetNetworkAPI, ValueFunctionAPI]

    def configure_optimizers_for_module(self, module_id: ModuleID, config: Config | None = None) -> None:
        """An Adam each for "qf", "qf_twin", "policy" and "value"."""
        config = config or self.config.get_config_for_module(module_id)
        module = self.module[module_id].unwrapped()
        groups = {
            name: (networks, config.critic_lr)
            for name, networks in zip(("qf", "qf_twin"), module.q_networks(), strict=False)
        }
        groups["policy"] = ((module.pi_encoder, module.pi), config.actor_lr)
        groups["value"] = ((module.vf_encoder, module.vf), config.value_lr)
        for name, (networks, lr) in groups.items():
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
    ) -> torch.Tensor:
        """The sum of all losses of a module."""
        module = self.module[module_id].unwrapped()
        advantages = fwd_out[QF_TARGET_PREDS] - fwd_out[Columns.VF_PREDS]
        value_loss = losses.expectile_loss(advantages, config.expectile)
        distribution = module.get_train_action_dist_cls().from_logits(fwd_out[Columns.ACTION_DIST_INPUTS])
        policy_loss = losses.policy_loss(distribution.logp(batch[Columns.ACTIONS]), advantages, config.beta)
        target = losses.critic_target(
            batch[Columns.REWARDS], batch[Columns.TERMINATEDS], fwd_out[VF_PREDS_NEXT], config.gamma
        )
        predictions = [fwd_out[name] for name in (QF_PREDS, QF_TWIN_PREDS) if name in fwd_out]
        q_losses = [(each - target).square().mean() / len(predictions) for each in predictions]
        errors = sum((each.detach() - target).abs() for each in predictions) / len(predictions)
        self.td_errors[module_id] = errors
        self._latest[module_id] = {
            POLICY_LOSS_KEY: policy_loss.detach(),
            VF_LOSS: value_loss.detach(),
            "values": predictions[0].detach(),
            "errors": errors,
            **{
                name: each.detach()
                for name, each in zip((QF_LOSS_KEY, QF_TWIN_LOSS_KEY), q_losses, strict=False)
            },
        }
        return value_loss + policy_loss + torch.stack(q_losses).sum()

    def _report(
        self, module_id: ModuleID, config: Config, tensors: dict[str, torch.Tensor]
    ) -> dict[str, Any]:
        names = (POLICY_LOSS_KEY, VF_LOSS, QF_LOSS_KEY, QF_TWIN_LOSS_KEY)
        values = tensors["values"]
        return {name: tensors[name] for name in names if name in tensors} | {
            QF_MEAN_KEY: values.mean(),
            QF_MAX_KEY: values.max(),
            QF_MIN_KEY: values.min(),
            TD_ERROR_MEAN_KEY: tensors["errors"].mean(),
        }
