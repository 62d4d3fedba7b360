"""The default module of IQL in torch."""

from __future__ import annotations

from typing import Any

import torch

from runtime.rllib.algorithms.iql.default_iql_rl_module import DefaultIQLRLModule
from runtime.rllib.algorithms.iql.iql_learner import QF_TARGET_PREDS, VF_PREDS_NEXT
from runtime.rllib.algorithms.sac.sac_learner import QF_PREDS, QF_TWIN_PREDS
from runtime.rllib.algorithms.sac.torch.default_sac_torch_rl_module import DefaultSACTorchRLModule
from runtime.rllib.core.columns import Columns
from runtime.rllib.core.models.base import ENCODER_OUT

__all__ = ["DefaultIQLTorchRLModule"]


class DefaultIQLTorchRLModule(DefaultSACTorchRLModule, DefaultIQLRLModule):
    """See `DefaultIQLRLModule`. Actions must be in a Box."""

    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        if hasattr(self.action_space, "n"):
            raise ValueError(f"IQL needs a Box action space, not {self.action_space}: use MARWIL or BC")
        if self.inference_only:
            raise RuntimeError(
                "This module was built with inference_only=True: it has no Q networks to train"
            )
        output: dict[str, Any] = {Columns.ACTION_DIST_INPUTS: self._policy(batch[Columns.OBS])}
        output[QF_PREDS], *twin = self._q_values(self.q_networks(), batch)
        if twin:
            output[QF_TWIN_PREDS] = twin[0]
        output[Columns.VF_PREDS] = self.compute_values(batch)
        with torch.no_grad():
            output[QF_TARGET_PREDS] = self.forward_target(batch)
            output[VF_PREDS_NEXT] = self.compute_values({Columns.OBS: batch[Columns.NEXT_OBS]})
        return output

    def compute_values(self, batch: dict[str, Any], embeddings: Any = None) -> torch.Tensor:
        """[B], the values of the batch's observations."""
        features = self.vf_encoder(batch)[ENCODER_OUT] if embeddings is None else embeddings
        values: torch.Tensor = self.vf(features).squeeze(-1)
        return values
