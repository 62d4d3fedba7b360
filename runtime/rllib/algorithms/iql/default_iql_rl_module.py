"""The default module of IQL: that of SAC and a value network."""

from __future__ import annotations

from runtime.rllib.algorithms.sac.default_sac_rl_module import DefaultSACRLModule
from runtime.rllib.core.rl_module.apis import ValueFunctionAPI

__all__ = ["DefaultIQLRLModule"]


class DefaultIQLRLModule(DefaultSACRLModule, ValueFunctionAPI):
    """A policy; unless it is `inference_only`, Q networks, their targets and a value network, too."""

    def setup(self) -> None:
        """Builds the networks."""
        super().setup()
        if not self.inference_only:
            self.vf_encoder = self.catalog.build_encoder(framework=self.framework)
            self.vf = self.catalog.build_qf_head(framework=self.framework)  # of the same shape: one value

    def get_non_inference_attributes(self) -> list[str]:
        """All but the policy."""
        return [*super().get_non_inference_attributes(), "vf_encoder", "vf"]
