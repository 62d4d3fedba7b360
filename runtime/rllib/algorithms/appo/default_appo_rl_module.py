"""APPO's default module, independent of a framework."""

from __future__ import annotations

from typing import Any

from ...core.learner.utils import make_target_network
from ...core.rl_module.apis.target_network_api import TargetNetworkAPI
from ..ppo.default_ppo_rl_module import DefaultPPORLModule


class DefaultAPPORLModule(DefaultPPORLModule, TargetNetworkAPI):
    """PPO's module with copies of encoder and policy head that follow them slowly."""

    def make_target_networks(self) -> None:
        """Makes the copies, with equal weights."""
        self._old_encoder = make_target_network(self.encoder)
        self._old_pi = make_target_network(self.pi)

    def get_target_network_pairs(self) -> list[tuple[Any, Any]]:
        """Encoder and policy head, each with its copy."""
        return [(self.encoder, self._old_encoder), (self.pi, self._old_pi)]

    def get_non_inference_attributes(self) -> list[str]:
        """Those of PPO's module, and the copies."""
        return [*super().get_non_inference_attributes(), "_old_encoder", "_old_pi"]
