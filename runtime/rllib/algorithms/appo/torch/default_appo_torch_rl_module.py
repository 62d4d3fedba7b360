"""APPO's default module in torch."""

from __future__ import annotations

from typing import Any

import torch

from ....core.models.base import ACTOR, ENCODER_OUT
from ....core.rl_module.apis.target_network_api import TARGET_NETWORK_ACTION_DIST_INPUTS
from ...ppo.torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule
from ..default_appo_rl_module import DefaultAPPORLModule


class DefaultAPPOTorchRLModule(DefaultPPOTorchRLModule, DefaultAPPORLModule):
    """PPO's module with a target network."""

    def forward_target(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Parameters of the target network's distribution over actions, without gradients."""
        with torch.no_grad():
            encoded = self._old_encoder(batch, inference_only=True)[ENCODER_OUT][ACTOR]
            return {TARGET_NETWORK_ACTION_DIST_INPUTS: self._old_pi(encoded)}
