"""The learner of DQN: double Q-learning, n steps, priorities, distributions of returns (Rainbow without noise)."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from runtime.rllib._core.rollout import Rollout
from runtime.rllib._core.types import Config, ModuleID
from runtime.rllib.algorithms.dqn.dqn_learner import (
    ATOMS,
    QF_LOGITS,
    QF_LOSS_KEY,
    QF_MAX_KEY,
    QF_MEAN_KEY,
    QF_MIN_KEY,
    QF_NEXT_PREDS,
    QF_PREDS,
    QF_PROBS,
    QF_TARGET_NEXT_PREDS,
    QF_TARGET_NEXT_PROBS,
    TD_ERROR_MEAN_KEY,
    DQNLearner,
)
from runtime.rllib.algorithms.dqn.torch.losses import (
    bellman_target,
    cross_entropy,
    elementwise_loss,
    project_distribution,
    take_actions,
    weighted_mean,
)
from runtime.rllib.core.columns import Columns
from runtime.rllib.core.learner.torch.torch_learner import TorchLearner


class TorchTargetNetworkLearner(DQNLearner, TorchLearner):
    """What the torch learners of DQN and SAC share."""

    def batch_from_rollout(self, module_id: ModuleID, rollout: Rollout) -> dict[str, Any]:
        """Transitions [rows, ...] of a rollout, or sequences [B, T, ...] of them for recurrent modules."""
        columns = {
            **rollout.columns,
            Columns.NEXT_OBS: rollout.next_obs(),
            Columns.TERMINATEDS: rollout.terminateds(),
            Columns.TRUNCATEDS: rollout.truncateds(),
        }
        return super().batch_from_rollout(module_id, dataclasses.replace(rollout, columns=columns))

    def _move_targets(self, module_id: ModuleID, config: Config) -> None:
        """Moves all targets of a module by `tau`, in one operation over all their tensors."""
        tensors = self._target_pairs.get(module_id)
        if tensors is None:
            tensors = self._target_pairs[module_id] = ([], [])
            for main, target in self.module[module_id].unwrapped().get_target_network_pairs():
                for into, network in zip(tensors, (main, target), strict=True):
                    # Counters of batches and the like cannot be mixed; floating point buffers are.
                    into += [
                        each
                        for each in network.state_dict(keep_vars=True).values()
                        if each.is_floating_point()
                    ]
        main_tensors, target_tensors = tensors
        with torch.no_grad():
            if config.tau == 1.0:
                torch._foreach_copy_(target_tensors, main_tensors)
            else:
                torch._foreach_lerp_(target_tensors, main_tensors, config.tau)


class DQNTorchLearner(TorchTargetNetworkLearner):
    """The loss of DQN.

    Batches have "obs", "actions", "rewards", "new_obs", "terminateds" and, where they apply, "n_step", "weights",
    "loss_mask" and "state_in".
    """

    def configure_optimizers_for_module(self, module_id: ModuleID, config: Config | None = None) -> None:
        """One Adam with `lr` and `adam_epsilon`."""
        config = config or self.config.get_config_for_module(module_id)
        params = [param for param in self.get_parameters(self.module[module_id]) if param.requires_grad]
        optimizer = self.new_adam(params, eps=config.adam_epsilon)
        self.register_optimizer(
            module_id=module_id, optimizer=optimizer, params=params, lr_or_lr_schedule=config.lr
        )

    def compute_loss_for_module(
        self, *, module_id: ModuleID, config: Config, batch: dict[str, Any], fwd_out: dict[str, Any]
    ) -> Any:
        """The weighted temporal-difference loss, or the cross-entropy of distributions with several atoms."""
        mask = batch.get(Columns.LOSS_MASK)
        if mask is not None and config.burn_in_len:
            mask = mask.clone()
            mask[:, : config.burn_in_len] = False
        actions, n_step, weights = batch[Columns.ACTIONS], batch.get("n_step"), batch.get("weights")
        target_values = fwd_out[QF_TARGET_NEXT_PREDS]
        best = (fwd_out[QF_NEXT_PREDS] if config.double_q else target_values).argmax(-1)
        selected = take_actions(fwd_out[QF_PREDS], actions)
        rewards, terminateds = batch[Columns.REWARDS], batch[Columns.TERMINATEDS]
        if config.num_atoms > 1:
            shape = rewards.shape
            with torch.no_grad():
                target = project_distribution(
                    _of_actions(fwd_out[QF_TARGET_NEXT_PROBS], best).flatten(0, -2),
                    rewards.flatten(),
                    terminateds.flatten(),
                    config.gamma,
                    None if n_step is None else n_step.flatten(),
                    config.v_min,
                    config.v_max,
                )
            losses = cross_entropy(_of_actions(fwd_out[QF_LOGITS], actions.long()).flatten(0, -2), target)
            losses = losses.view(shape)
            errors = losses.detach()
        else:
            with torch.no_grad():
                target = bellman_target(
                    rewards, terminateds, take_actions(target_values, best), config.gamma, n_step
                )
                errors = (selected - target).abs()
            losses = elementwise_loss(selected, target, config.td_error_loss_fn)
        loss = weighted_mean(losses, weights, mask)
        self.td_errors[module_id] = errors
        latest = {"loss": loss.detach(), "values": selected.detach(), "errors": errors}
        if mask is not None:
            latest["mask"] = mask
        if config.num_atoms > 1:
            latest |= {QF_PROBS: fwd_out[QF_PROBS].detach(), ATOMS: fwd_out[ATOMS]}
        self._latest[module_id] = latest
        return loss

    def _report(
        self, module_id: ModuleID, config: Config, tensors: dict[str, torch.Tensor]
    ) -> dict[str, Any]:
        mask = tensors.get("mask")
        values, errors = (
            each if mask is None else each[mask] for each in (tensors["values"], tensors["errors"])
        )
        report = {QF_LOSS_KEY: tensors["loss"]}
        if values.numel():
            report |= {
                QF_MEAN_KEY: values.mean(),
                QF_MAX_KEY: values.max(),
                QF_MIN_KEY: values.min(),
                TD_ERROR_MEAN_KEY: errors.mean(),
            }
        if config.num_atoms > 1:
            report |= _distribution_report(tensors[QF_PROBS], tensors[ATOMS])
        return report


def _of_actions(per_action: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
    """[..., A, N] and actions [...] -> [..., N]."""
    index = actions[..., None, None].expand(*actions.shape, 1, per_action.shape[-1])
    return per_action.gather(-2, index).squeeze(-2)


def _distribution_report(probs: torch.Tensor, atoms: torch.Tensor) -> dict[str, torch.Tensor]:
    """How much the distributions of actions differ from each other, and their entropy."""
    mean = probs.flatten(0, -3).mean(0)  # [A, N]
    difference = mean.diff(dim=0)
    return {
        ATOMS: atoms.mean(),
        "expectations_abs_diff": (mean * atoms).sum(-1).diff().abs().mean(),
        "dist_total_variation_dist": 0.5 * difference.abs().sum(),
        "dist_max_abs_distance": difference.abs().max(),
        "action_dist_mean_entropy": -(mean * mean.clamp_min(1e-30).log()).sum(-1).mean(),
    }
