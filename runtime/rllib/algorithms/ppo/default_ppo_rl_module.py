"""PPO's default module, independent of a framework."""

from __future__ import annotations

from typing import Any

from ...core.rl_module.apis.inference_only_api import InferenceOnlyAPI
from ...core.rl_module.apis.value_function_api import ValueFunctionAPI
from ...core.rl_module.rl_module import RLModule
from .ppo_catalog import PPOCatalog


class DefaultPPORLModule(RLModule, InferenceOnlyAPI, ValueFunctionAPI):
    """An encoder for actor and critic (`encoder`), a policy head (`pi`) and a value head (`vf`)."""

    def setup(self) -> None:
        if self.catalog_class is None:
            self.catalog_class = PPOCatalog
        catalog = self.catalog
        if self.inference_only and self.framework == "torch":
            catalog.actor_critic_encoder_config.inference_only = True
        self.encoder = catalog.build_actor_critic_encoder(framework=self.framework)
        self.pi = catalog.build_pi_head(framework=self.framework)
        self.vf = catalog.build_vf_head(framework=self.framework)
        self.action_dist_cls = catalog.get_action_dist_cls(framework=self.framework)

    def get_initial_state(self) -> Any:
        """The encoder's state; {} unless it is recurrent."""
        if hasattr(self.encoder, "get_initial_state"):
            return self.encoder.get_initial_state()
        return {}

    def get_non_inference_attributes(self) -> list[str]:
        """The value head, and the critic's encoder if there is one that keeps no state."""
        config = self.catalog.actor_critic_encoder_config
        if config.shared or config.base_encoder_config.is_recurrent:
            return ["vf"]
        return ["vf", "encoder.critic_encoder"]
