"""The default module of CQL in torch: that of SAC, with Q values of sampled actions."""

from __future__ import annotations

from typing import Any

import torch

from runtime.rllib._core import trees
from runtime.rllib.algorithms.cql.torch.losses import uniform_logp
from runtime.rllib.algorithms.sac.torch.default_sac_torch_rl_module import DefaultSACTorchRLModule
from runtime.rllib.core.columns import Columns

__all__ = ["LOGP_SAMPLES", "QF_SAMPLES", "QF_TWIN_SAMPLES", "DefaultCQLTorchRLModule"]

QF_SAMPLES = "qf_samples"
QF_TWIN_SAMPLES = "qf_twin_samples"
LOGP_SAMPLES = "logp_samples"


class DefaultCQLTorchRLModule(DefaultSACTorchRLModule):
    """`forward_train` also gives, for N = 3 * `num_actions` sampled actions per row, their log densities
    ("logp_samples", [B, N]) and Q values ("qf_samples" and "qf_twin_samples", [B, N])."""

    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        if hasattr(self.action_space, "n"):
            raise ValueError(f"CQL needs a Box action space, not {self.action_space}: use MARWIL or BC")
        output = super()._forward_train(batch, **kwargs)
        with torch.no_grad():
            actions, output[LOGP_SAMPLES] = self._sampled_actions(batch)
        rows, samples = output[LOGP_SAMPLES].shape
        repeated = trees.tree_map(lambda obs: obs.repeat_interleave(samples, 0), batch[Columns.OBS])
        values = self._q_values(
            self.q_networks(), {Columns.OBS: repeated, Columns.ACTIONS: actions.flatten(0, 1)}
        )
        for name, each in zip((QF_SAMPLES, QF_TWIN_SAMPLES), values, strict=False):
            output[name] = each.view(rows, samples)
        return output

    def _sampled_actions(self, batch: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """Uniform actions, and those of the policy before and after the step.

        Returns:
            actions [B, N, ...] in [-1, 1], and their log densities [B, N].
        """
        count = int(self.model_config["num_actions"])
        distribution = self.get_train_action_dist_cls()
        drawn = [
            distribution.from_logits(self._policy(batch[name])).sample_and_logp(sample_shape=(count,))
            for name in (Columns.OBS, Columns.NEXT_OBS)
        ]
        uniform = torch.empty_like(drawn[0][0]).uniform_(-1.0, 1.0)
        density = torch.full_like(drawn[0][1], uniform_logp(uniform[0, 0].numel()))
        parts = [(uniform, density), *drawn]
        actions = torch.cat([each for each, _ in parts]).transpose(0, 1)
        return actions, torch.cat([each for _, each in parts]).transpose(0, 1)
