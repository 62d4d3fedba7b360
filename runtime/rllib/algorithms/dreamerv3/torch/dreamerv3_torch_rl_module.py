"""DreamerV3's module in torch."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from ....core.columns import Columns
from ....core.rl_module.apis.inference_only_api import InferenceOnlyAPI
from ....core.rl_module.torch.torch_rl_module import TorchRLModule
from ....utils.error import UnsupportedSpaceException
from ..utils import model_size
from .losses import NUM_BUCKETS, mixed_log_probs, sample_straight_through
from .networks import Tensor, WorldModel, mlp

_MIN_STD, _MAX_STD = 0.1, 1.0  # of continuous actions


class DreamerV3TorchRLModule(TorchRLModule, InferenceOnlyAPI):
    """A world model, an actor and a critic over the world model's features.

    Settings in `model_config`: "model_size" ("XS"), "symlog_obs" ("auto": of vectors, not of images).
    """

    def setup(self) -> None:
        size = model_size(self.model_config.get("model_size", "XS"))
        use_symlog = self.model_config.get("symlog_obs", "auto")
        self.is_discrete = isinstance(self.action_space, gym.spaces.Discrete)
        if not self.is_discrete and not isinstance(self.action_space, gym.spaces.Box):
            raise UnsupportedSpaceException(
                f"DreamerV3 takes Discrete and Box actions, not {self.action_space}"
            )
        self.action_dim = int(self.action_space.n if self.is_discrete else np.prod(self.action_space.shape))
        self.world_model = WorldModel(
            self.observation_space, self.action_dim, size, use_symlog=use_symlog in (True, "auto")
        )
        features = self.world_model.feature_dim
        self.actor = mlp(size, features, self.action_dim * (1 if self.is_discrete else 2))
        self.critic = mlp(size, features, NUM_BUCKETS, zero_outputs=True)
        self.slow_critic = copy.deepcopy(self.critic).requires_grad_(False)

    def get_non_inference_attributes(self) -> list[str]:
        """All that only dreams and losses need."""
        heads = ("decoder", "prior_net", "reward_net", "continue_net")
        return ["critic", "slow_critic", *(f"world_model.{head}" for head in heads)]

    def get_initial_state(self) -> dict[str, Any]:
        """Zeros: states "h" and "z", and the action before, "a"."""
        size = self.world_model.size
        return {
            "h": torch.zeros(size.gru_units),
            "z": torch.zeros(self.world_model.z_dim),
            "a": torch.zeros(self.action_dim),
        }

    # ---- acting

    def _forward_inference(self, batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        return self._act(batch, explore=False)

    def _forward_exploration(self, batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        return self._act(batch, explore=True)

    def _act(self, batch: dict[str, Any], explore: bool) -> dict[str, Any]:
        """Actions for observations [B, T, ...], step after step."""
        model, state = self.world_model, batch[Columns.STATE_IN]
        h, z, action = state["h"], state["z"], state["a"]
        encoded = model.encode(batch[Columns.OBS])
        inputs, actions = [], []
        for t in range(encoded.shape[1]):
            h = model.next_h(h, z, action)
            z = sample_straight_through(model.posterior(h, encoded[:, t])).flatten(-2)
            inputs.append(self.actor(torch.cat((h, z), -1)))
            action = self.sample_action(inputs[-1]) if explore else self.best_action(inputs[-1])
            actions.append(action)
        taken = torch.stack(actions, 1)
        return {
            Columns.ACTION_DIST_INPUTS: torch.stack(inputs, 1),
            Columns.ACTIONS: self._for_env(taken),
            Columns.STATE_OUT: {"h": h, "z": z, "a": action},
        }

    def _for_env(self, actions: Tensor) -> Tensor:
        if self.is_discrete:
            return actions.argmax(-1)
        return actions.reshape(*actions.shape[:-1], *self.action_space.shape)

    def encode_actions(self, actions: Tensor) -> Tensor:
        """Actions as the networks take them: one-hot vectors, or flat numbers; [..., actions]."""
        if self.is_discrete:
            return torch.nn.functional.one_hot(actions.long(), self.action_dim).float()
        return actions.float().reshape(*actions.shape[: actions.dim() - len(self.action_space.shape)], -1)

    def sample_action(self, inputs: Tensor) -> Tensor:
        """A random action of the actor's distribution, without a gradient."""
        with torch.no_grad():
            if self.is_discrete:
                return sample_straight_through(mixed_log_probs(inputs))
            mean, std = self._gaussian(inputs)
            return torch.addcmul(mean, torch.randn_like(mean), std)

    def best_action(self, inputs: Tensor) -> Tensor:
        """The mode of the actor's distribution."""
        if self.is_discrete:
            return torch.nn.functional.one_hot(inputs.argmax(-1), self.action_dim).float()
        return self._gaussian(inputs)[0]

    def logp_and_entropy(self, inputs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities of encoded actions, and entropies: [..., actions] -> [...] each."""
        if self.is_discrete:
            log_probs = mixed_log_probs(inputs)
            return (log_probs * actions).sum(-1), -(log_probs.exp() * log_probs).sum(-1)
        normal = torch.distributions.Normal(*self._gaussian(inputs), validate_args=False)
        return normal.log_prob(actions).sum(-1), normal.entropy().sum(-1)

    @staticmethod
    def _gaussian(inputs: Tensor) -> tuple[Tensor, Tensor]:
        mean, raw = inputs.chunk(2, -1)
        return mean.tanh(), _MIN_STD + (_MAX_STD - _MIN_STD) * torch.sigmoid(raw + 2.0)

    # ---- learning

    def _forward_train(self, batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        """The world model along sequences [B, T, ...]: see `WorldModel.observe`."""
        actions = self.encode_actions(batch["prev_actions"])
        return self.world_model.observe(batch[Columns.OBS], actions, batch["is_first"].bool())

    def dream(self, h: Tensor, z: Tensor, horizon: int) -> dict[str, Tensor]:
        """What the actor does in the world model, without gradients.

        Args:
            h: [N, units], where the dreams start.
            z: [N, z].
            horizon: H, steps.

        Returns:
            "features" [H + 1, N, features], the first of the start, and "actions" [H, N, actions], encoded.
        """
        model = self.world_model
        with torch.no_grad():
            features, actions = [torch.cat((h, z), -1)], []
            for _ in range(horizon):
                actions.append(self.sample_action(self.actor(features[-1])))
                h = model.next_h(h, z, actions[-1])
                z = sample_straight_through(model.prior(h)).flatten(-2)
                features.append(torch.cat((h, z), -1))
            return {"features": torch.stack(features), "actions": torch.stack(actions)}
