"""The default module of DQN in torch."""

from __future__ import annotations

from typing import Any

import torch

from runtime.rllib._core import trees
from runtime.rllib.algorithms.dqn.default_dqn_rl_module import (
    ATOMS,
    QF_LOGITS,
    QF_NEXT_PREDS,
    QF_PREDS,
    QF_PROBS,
    QF_TARGET_NEXT_PREDS,
    QF_TARGET_NEXT_PROBS,
    DefaultDQNRLModule,
)
from runtime.rllib.core.columns import Columns
from runtime.rllib.core.models.base import ENCODER_OUT
from runtime.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule


class DefaultDQNTorchRLModule(TorchRLModule, DefaultDQNRLModule):
    """See `DefaultDQNRLModule`. Gives actions itself: greedy ones, or epsilon-greedy ones to explore."""

    def _forward_inference(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        out = self.compute_q_values(batch)
        values = out[QF_PREDS]
        return _with_state({Columns.ACTIONS: values.argmax(-1), Columns.ACTION_DIST_INPUTS: values}, out)

    def _forward_exploration(self, batch: dict[str, Any], *, t: int = 0, **kwargs: Any) -> dict[str, Any]:
        out = self.compute_q_values(batch)
        return _with_state({Columns.ACTIONS: self.exploration.actions(out[QF_PREDS], t)}, out)

    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        now = self.compute_q_values(_only_inputs(batch, batch[Columns.OBS]))
        output = {QF_PREDS: now[QF_PREDS]}
        with torch.no_grad():
            following = self._following(batch)
            then = self.forward_target(following)
            output[QF_TARGET_NEXT_PREDS] = self._of_following(batch, then[QF_PREDS])
            if self.uses_double_q:
                online = self.compute_q_values(following)
                output[QF_NEXT_PREDS] = self._of_following(batch, online[QF_PREDS])
            if self.num_atoms > 1:
                output[QF_TARGET_NEXT_PROBS] = self._of_following(batch, then[QF_PROBS])
        if self.num_atoms > 1:
            output |= {name: now[name] for name in (ATOMS, QF_LOGITS, QF_PROBS)}
        return _with_state(output, now)

    @staticmethod
    def _following(batch: dict[str, Any]) -> dict[str, Any]:
        """The next observations; of recurrent modules all T + 1 observations, so that the state is right."""
        if Columns.STATE_IN not in batch:
            return {Columns.OBS: batch[Columns.NEXT_OBS]}
        obs = trees.tree_map(
            lambda first, rest: torch.cat([first[:, :1], rest], 1),
            batch[Columns.OBS],
            batch[Columns.NEXT_OBS],
        )
        return _only_inputs(batch, obs)

    @staticmethod
    def _of_following(batch: dict[str, Any], values: torch.Tensor) -> torch.Tensor:
        return values[:, 1:] if Columns.STATE_IN in batch else values

    def _qf_forward(self, batch: dict[str, Any], encoder: Any, advantages: Any, value: Any) -> dict[str, Any]:
        encoded = encoder(batch)
        features = encoded[ENCODER_OUT]
        values = advantages(features)
        if self.num_atoms > 1:
            logits = values.unflatten(-1, (-1, self.num_atoms))
            if value is not None:
                logits = logits - logits.mean(-2, keepdim=True) + value(features).unsqueeze(-2)
            probs = logits.softmax(-1)
            atoms = torch.linspace(self.v_min, self.v_max, self.num_atoms, device=logits.device)
            result = {QF_PREDS: (probs * atoms).sum(-1), ATOMS: atoms, QF_LOGITS: logits, QF_PROBS: probs}
        elif value is None:
            result = {QF_PREDS: values}
        else:
            result = {QF_PREDS: values - values.mean(-1, keepdim=True) + value(features)}
        return _with_state(result, encoded)

    def compute_advantage_distribution(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The "atoms" [N], "logits" and "probs" [..., A, N] of the head of advantages, for observations."""
        logits = self.af(self.encoder(batch)[ENCODER_OUT]).unflatten(-1, (-1, self.num_atoms))
        atoms = torch.linspace(self.v_min, self.v_max, self.num_atoms, device=logits.device)
        return {ATOMS: atoms, "logits": logits, "probs": logits.softmax(-1)}


def _only_inputs(batch: dict[str, Any], obs: Any) -> dict[str, Any]:
    if Columns.STATE_IN not in batch:
        return {Columns.OBS: obs}
    return {Columns.OBS: obs, Columns.STATE_IN: batch[Columns.STATE_IN]}


def _with_state(output: dict[str, Any], source: dict[str, Any]) -> dict[str, Any]:
    if Columns.STATE_OUT in source:
        output[Columns.STATE_OUT] = source[Columns.STATE_OUT]
    return output
