"""Features of observation and action together."""

from __future__ import annotations

from typing import Any

import torch

from runtime.rllib.core.columns import Columns
from runtime.rllib.core.models.base import ENCODER_OUT


class TorchQEncoder(torch.nn.Module):
    """An encoder that reads "obs" and "actions" of a batch.

    Args:
        obs_config: configuration of an encoder of observations; None joins flat observations as they are.
        joint_config: configuration of the layers over features and action.
    """

    def __init__(self, obs_config: Any, joint_config: Any) -> None:
        super().__init__()
        self.obs_encoder = None if obs_config is None else obs_config.build("torch")
        self.joint = joint_config.build("torch")

    def forward(self, batch: dict[str, Any]) -> dict[str, Any]:
        """{"encoder_out": features [B, F]}."""
        obs = batch[Columns.OBS] if self.obs_encoder is None else self.obs_encoder(batch)[ENCODER_OUT]
        actions = batch[Columns.ACTIONS].flatten(1)
        features: dict[str, Any] = self.joint({Columns.OBS: torch.cat([obs, actions], -1)})
        return features
