"""The default module of TQC in torch."""

from __future__ import annotations

from typing import Any

import torch

from runtime.rllib.algorithms.sac.torch.default_sac_torch_rl_module import DefaultSACTorchRLModule
from runtime.rllib.algorithms.tqc.default_tqc_rl_module import DefaultTQCRLModule
from runtime.rllib.algorithms.tqc.torch.losses import truncated_quantiles
from runtime.rllib.core.models.base import ENCODER_OUT


class DefaultTQCTorchRLModule(DefaultSACTorchRLModule, DefaultTQCRLModule):
    """See `DefaultTQCRLModule`."""

    def _q_values(self, networks: list[tuple[Any, Any]], batch: dict[str, Any]) -> list[torch.Tensor]:
        """One entry: the quantiles of all critics, [B, critics, quantiles]."""
        return [torch.stack([head(encoder(batch)[ENCODER_OUT]) for encoder, head in networks], 1)]

    def compute_q_values(self, batch: dict[str, Any]) -> Any:
        """[B], the mean over all quantiles of all critics."""
        return self._q_values(self.q_networks(), batch)[0].mean((1, 2))

    def forward_target(self, batch: dict[str, Any]) -> Any:
        """The targets' quantiles without the largest, ascending, [B, M]."""
        quantiles = self._q_values(self.q_networks("target_"), batch)[0]
        return truncated_quantiles(quantiles, self.top_quantiles_to_drop_per_net)
