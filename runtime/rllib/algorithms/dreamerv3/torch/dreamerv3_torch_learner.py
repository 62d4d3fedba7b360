"""DreamerV3's losses: the world model's on what happened, the actor's and the critic's on dreams."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from ...._core.types import Config, ModuleID
from ....core.columns import Columns
from ....core.learner.optimizers import ParamDict
from ....core.learner.torch.gradients import clip
from ....core.learner.torch.torch_learner import TorchLearner
from ....utils.torch_utils import update_target_network
from .losses import ReturnScale, balanced_kl, lambda_returns, two_hot_loss, two_hot_mean

DYNAMICS_SHARE, REPRESENTATION_SHARE = 0.5, 0.1  # of the world model's loss (eq. 2)
SLOW_CRITIC_TAU = 0.02
_RETURN_SCALES = "return_scales"
_NETWORKS = ("world_model", "actor", "critic")
_ADAM_EPS = {"world_model": 1e-8, "actor": 1e-5, "critic": 1e-5}


class DreamerV3TorchLearner(TorchLearner):
    """Three losses with an optimizer each. Batches are sequences [B, T, ...] (`SequenceReplay.sample`)."""

    def build(self) -> None:
        """Builds the learner."""
        self._return_scales: dict[ModuleID, ReturnScale] = {}
        super().build()

    def configure_optimizers_for_module(self, module_id: ModuleID, config: Config | None = None) -> None:
        """Registers one Adam for each of world model, actor and critic."""
        config = config or self.config.get_config_for_module(module_id)
        module = self.module[module_id].unwrapped()
        for name in _NETWORKS:
            params = list(getattr(module, name).parameters())
            self.register_optimizer(
                module_id=module_id,
                optimizer_name=name,
                optimizer=self.new_adam(params, eps=_ADAM_EPS[name]),
                params=params,
                lr_or_lr_schedule=getattr(config, f"{name}_lr"),
            )

    def postprocess_gradients_for_module(
        self, *, module_id: ModuleID, config: Config | None = None, module_gradients_dict: ParamDict
    ) -> ParamDict:
        """Clips the gradients of each network by their global norm."""
        config = config or self.config.get_config_for_module(module_id)
        for name, optimizer in self.get_optimizers_for_module(module_id):
            own = list(self.filter_param_dict_for_optimizer(module_gradients_dict, optimizer).values())
            limit = getattr(config, f"{name}_grad_clip_by_global_norm")
            if own and limit is not None:
                norm = clip(own, limit, "global_norm")
                if self.logs_losses and norm is not None:
                    self.metrics.log_value((module_id, f"gradients_{name}_global_norm"), norm, window=1)
        return module_gradients_dict

    def compute_loss_for_module(
        self, *, module_id: ModuleID, config: Config, batch: dict[str, Any], fwd_out: dict[str, Any]
    ) -> Any:
        """The sum of the losses; no loss reaches another's network."""
        module = self.module[module_id].unwrapped()
        report: dict[str, Any] = {}
        loss = self._world_model_loss(module, batch, fwd_out, report)
        if config.train_critic:
            loss = loss + self._behavior_loss(module_id, module, config, batch, fwd_out, report)
        self.metrics.log_dict(
            {name: value.detach() if hasattr(value, "detach") else value for name, value in report.items()},
            key=module_id,
            window=1,
        )
        return loss

    @staticmethod
    def _world_model_loss(
        module: Any, batch: dict[str, Any], out: dict[str, Any], report: dict[str, Any]
    ) -> Any:
        model = module.world_model
        features = torch.cat((out["h"], out["z"]), -1)
        errors = (model.decode(features) - model.targets(batch[Columns.OBS])).square()
        decoder = errors.flatten(2).sum(-1).mean()
        reward = two_hot_loss(model.reward_net(features), batch[Columns.REWARDS]).mean()
        goes_on = 1.0 - batch["is_terminated"].float()
        going_on = torch.nn.functional.binary_cross_entropy_with_logits(
            model.continue_net(features).squeeze(-1), goes_on
        )
        dynamics, representation = (each.mean() for each in balanced_kl(out["posterior"], out["prior"]))
        prediction = decoder + reward + going_on
        total = prediction + DYNAMICS_SHARE * dynamics + REPRESENTATION_SHARE * representation
        report |= {
            "WORLD_MODEL_L_decoder": decoder,
            "WORLD_MODEL_L_reward": reward,
            "WORLD_MODEL_L_continue": going_on,
            "WORLD_MODEL_L_prediction": prediction,
            "WORLD_MODEL_L_dynamics": dynamics,
            "WORLD_MODEL_L_representation": representation,
            "WORLD_MODEL_L_total": total,
        }
        return total

    def _behavior_loss(
        self,
        module_id: ModuleID,
        module: Any,
        config: Config,
        batch: dict[str, Any],
        out: dict[str, Any],
        report: dict[str, Any],
    ) -> Any:
        model = module.world_model
        dreams = module.dream(
            out["h"].detach().flatten(0, 1), out["z"].detach().flatten(0, 1), config.horizon_H
        )
        features, actions = dreams["features"], dreams["actions"]
        with torch.no_grad():
            rewards = two_hot_mean(model.reward_net(features[1:]))
            continues = torch.sigmoid(model.continue_net(features).squeeze(-1))
            continues[0] = 1.0 - batch["is_terminated"].float().flatten()  # known of the start
            values = two_hot_mean(module.critic(features))
            returns = lambda_returns(rewards, continues[1:], values[1:], config.gamma, config.gae_lambda)
            weights = (config.gamma * continues[:-1]).cumprod(0) / config.gamma
            scale = self._return_scale(module_id, config).update(returns)

        logits = module.critic(features[:-1])
        target_loss = (weights * two_hot_loss(logits, returns)).mean()
        with torch.no_grad():
            slow_values = two_hot_mean(module.slow_critic(features[:-1]))
        slow_loss = (weights * two_hot_loss(logits, slow_values)).mean()
        critic_loss = target_loss + slow_loss
        report |= {
            "CRITIC_L_total": critic_loss,
            "CRITIC_L_neg_logp_of_value_targets": target_loss,
            "CRITIC_L_slow_critic_regularization": slow_loss,
        }
        if not config.train_actor:
            return critic_loss

        logp, entropy = module.logp_and_entropy(module.actor(features[:-1]), actions)
        advantages = (returns - values[:-1]) / scale
        reinforce = -(weights * logp * advantages).mean()
        neg_entropy = -config.entropy_scale * (weights * entropy).mean()
        known = self._return_scale(module_id, config)
        report |= {
            "ACTOR_L_total": reinforce + neg_entropy,
            "ACTOR_L_neglogp_reinforce_term": reinforce,
            "ACTOR_L_neg_entropy_term": neg_entropy,
            "ACTOR_action_entropy": entropy.mean(),
            "ACTOR_value_targets_pct5_ema": known.low,
            "ACTOR_value_targets_pct95_ema": known.high,
        }
        return critic_loss + reinforce + neg_entropy

    def _return_scale(self, module_id: ModuleID, config: Config) -> ReturnScale:
        if module_id not in self._return_scales:
            self._return_scales[module_id] = ReturnScale(config.return_normalization_decay)
        return self._return_scales[module_id]

    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Moves the slow critics towards the critics."""
        super().after_gradient_based_update(timesteps=timesteps)
        for module_id in self._module_optimizers:
            module = self.module[module_id].unwrapped()
            update_target_network(module.critic, module.slow_critic, SLOW_CRITIC_TAU)

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """The learner's state with the ranges of returns."""
        state = super().get_state(components, not_components=not_components, **kwargs)
        ranges = {module_id: (scale.low, scale.high) for module_id, scale in self._return_scales.items()}
        return {**state, _RETURN_SCALES: ranges}

    def set_state(self, state: dict[str, Any]) -> None:
        """Sets what `get_state` gave."""
        super().set_state(state)
        for module_id, (low, high) in state.get(_RETURN_SCALES, {}).items():
            scale = self._return_scale(module_id, self.config.get_config_for_module(module_id))
            scale.low, scale.high = low, high
