"""The default module of SAC in torch."""

from __future__ import annotations

from typing import Any

import torch

from runtime.rllib.algorithms.sac.default_sac_rl_module import DefaultSACRLModule
from runtime.rllib.algorithms.sac.sac_learner import (
    ACTION_LOG_PROBS,
    ACTION_LOG_PROBS_NEXT,
    ACTION_PROBS,
    ACTION_PROBS_NEXT,
    LOGP_NEXT_RESAMPLED,
    LOGP_RESAMPLED,
    Q_CURR,
    QF_PREDS,
    QF_TARGET_NEXT,
    QF_TWIN_PREDS,
)
from runtime.rllib.core.columns import Columns
from runtime.rllib.core.models.base import ENCODER_OUT
from runtime.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule


class DefaultSACTorchRLModule(TorchRLModule, DefaultSACRLModule):
    """See `DefaultSACRLModule`."""

    def _policy(self, obs: Any) -> torch.Tensor:
        """Inputs of the action distribution [B, ...]."""
        logits: torch.Tensor = self.pi(self.pi_encoder({Columns.OBS: obs})[ENCODER_OUT])
        return logits

    def _forward_inference(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return {Columns.ACTION_DIST_INPUTS: self._policy(batch[Columns.OBS])}

    def _forward_exploration(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return self._forward_inference(batch)

    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        if hasattr(self.action_space, "n"):
            return self._forward_train_discrete(batch)
        return self._forward_train_continuous(batch)

    def _forward_train_continuous(self, batch: dict[str, Any]) -> dict[str, Any]:
        obs, next_obs = batch[Columns.OBS], batch[Columns.NEXT_OBS]
        distribution = self.get_train_action_dist_cls()
        output: dict[str, Any] = {}
        with torch.no_grad():
            following = distribution.from_logits(self._policy(next_obs))
            next_actions, output[LOGP_NEXT_RESAMPLED] = following.sample_and_logp()
            output[QF_TARGET_NEXT] = self.forward_target(
                {Columns.OBS: next_obs, Columns.ACTIONS: next_actions}
            )
        output[QF_PREDS], *twin = self._q_values(self.q_networks(), batch)
        if twin:
            output[QF_TWIN_PREDS] = twin[0]
        output[Columns.ACTION_DIST_INPUTS] = logits = self._policy(obs)
        actions, output[LOGP_RESAMPLED] = distribution.from_logits(logits).rsample_and_logp()
        # The policy's gradient goes through the actions; the Q networks learn from their own loss only.
        parameters = self._q_parameters()
        for parameter in parameters:
            parameter.requires_grad_(False)
        try:
            output[Q_CURR] = self.compute_q_values({Columns.OBS: obs, Columns.ACTIONS: actions})
        finally:
            for parameter in parameters:
                parameter.requires_grad_(True)
        return output

    def _q_parameters(self) -> list[torch.nn.Parameter]:
        """Of all Q networks. To look for them takes a few per cent of an update, so they are kept."""
        networks = [network for pair in self.q_networks() for network in pair]
        known: tuple[list[Any], list[torch.nn.Parameter]] | None = self.__dict__.get("_known_q_parameters")
        if known is None or known[0] != networks:
            known = (networks, [each for network in networks for each in network.parameters()])
            self.__dict__["_known_q_parameters"] = known
        return known[1]

    def _forward_train_discrete(self, batch: dict[str, Any]) -> dict[str, Any]:
        output: dict[str, Any] = {}
        with torch.no_grad():
            log_probs_next = self._policy(batch[Columns.NEXT_OBS]).log_softmax(-1)
            output[ACTION_LOG_PROBS_NEXT] = log_probs_next
            output[ACTION_PROBS_NEXT] = log_probs_next.exp()
            output[QF_TARGET_NEXT] = self.forward_target({Columns.OBS: batch[Columns.NEXT_OBS]})
        output[QF_PREDS], *twin = self._q_values(self.q_networks(), batch)
        if twin:
            output[QF_TWIN_PREDS] = twin[0]
        logits = self._policy(batch[Columns.OBS])
        output[Columns.ACTION_DIST_INPUTS] = logits
        output[ACTION_LOG_PROBS] = log_probs = logits.log_softmax(-1)
        output[ACTION_PROBS] = log_probs.exp()
        return output

    def _q_values(self, networks: list[tuple[Any, Any]], batch: dict[str, Any]) -> list[torch.Tensor]:
        """Values of each network: [B] of the batch's actions, or [B, A] of all for discrete actions."""
        values = [head(encoder(batch)[ENCODER_OUT]) for encoder, head in networks]
        return values if hasattr(self.action_space, "n") else [each.squeeze(-1) for each in values]

    def compute_q_values(self, batch: dict[str, Any]) -> Any:
        """The smaller of both networks' values, [B], or [B, A] for discrete actions."""
        return _smallest(self._q_values(self.q_networks(), batch))

    def forward_target(self, batch: dict[str, Any]) -> Any:
        """`compute_q_values` of the target networks."""
        return _smallest(self._q_values(self.q_networks("target_"), batch))


def _smallest(values: list[torch.Tensor]) -> torch.Tensor:
    return values[0] if len(values) == 1 else torch.minimum(*values)
