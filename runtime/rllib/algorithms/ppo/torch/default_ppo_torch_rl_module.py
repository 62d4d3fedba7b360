"""PPO's default module in torch."""

from __future__ import annotations

from typing import Any

from ....core.columns import Columns
from ....core.models.base import ACTOR, CRITIC, ENCODER_OUT
from ....core.rl_module.torch.torch_rl_module import TorchRLModule
from ..default_ppo_rl_module import DefaultPPORLModule


class DefaultPPOTorchRLModule(TorchRLModule, DefaultPPORLModule):
    """An encoder for actor and critic, a policy head and a value head."""

    def _forward(self, batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Parameters of the distribution over actions; the critic is not computed."""
        encoded = self.encoder(batch, inference_only=True)
        result = {Columns.ACTION_DIST_INPUTS: self.pi(encoded[ENCODER_OUT][ACTOR])}
        if Columns.STATE_OUT in encoded:
            result[Columns.STATE_OUT] = encoded[Columns.STATE_OUT]
        return result

    def _forward_train(self, batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        """The same, and under "embeddings" the critic's features, for `compute_values`."""
        encoded = self.encoder(batch)
        result = {
            Columns.EMBEDDINGS: encoded[ENCODER_OUT][CRITIC],
            Columns.ACTION_DIST_INPUTS: self.pi(encoded[ENCODER_OUT][ACTOR]),
        }
        if Columns.STATE_OUT in encoded:
            result[Columns.STATE_OUT] = encoded[Columns.STATE_OUT]
        return result

    def compute_values(self, batch: dict[str, Any], embeddings: Any = None) -> Any:
        if embeddings is None:
            embeddings = self._critic_features(batch)
        return self.vf(embeddings).squeeze(-1)

    def _critic_features(self, batch: dict[str, Any]) -> Any:
        critic = getattr(self.encoder, "critic_encoder", None)
        if critic is None:
            return self.encoder(batch)[ENCODER_OUT][CRITIC]
        state = batch.get(Columns.STATE_IN)
        if isinstance(state, dict) and CRITIC in state:
            batch = {**batch, Columns.STATE_IN: state[CRITIC]}
        return critic(batch)[ENCODER_OUT]
