"""The default module of SAC: a policy, one or two Q networks, and their targets."""

from __future__ import annotations

from typing import Any

from runtime.rllib.algorithms.sac.sac_catalog import SACCatalog
from runtime.rllib.core.learner.utils import make_target_network
from runtime.rllib.core.rl_module.apis import InferenceOnlyAPI, QNetAPI, TargetNetworkAPI
from runtime.rllib.core.rl_module.rl_module import RLModule


class DefaultSACRLModule(RLModule, InferenceOnlyAPI, TargetNetworkAPI, QNetAPI):
    """Networks of SAC.

    The Q networks of Box action spaces take observations and actions, those of Discrete ones give a value per action.
    `model_config` has, besides the fields of `DefaultModelConfig`, "twin_q". Modules that are `inference_only` have
    the policy alone.
    """

    def setup(self) -> None:
        """Builds the networks."""
        if self.catalog_class is None:
            self.catalog_class = SACCatalog
        self.twin_q = bool(self.model_config["twin_q"])
        self.pi_encoder = self.catalog.build_encoder(framework=self.framework)
        self.pi = self.catalog.build_pi_head(framework=self.framework)
        if not self.inference_only:
            for name in self._q_names():
                setattr(self, f"{name}_encoder", self.catalog.build_qf_encoder(framework=self.framework))
                setattr(self, name, self.catalog.build_qf_head(framework=self.framework))

    def _q_names(self) -> list[str]:
        return ["qf", "qf_twin"] if self.twin_q else ["qf"]

    def q_networks(self, prefix: str = "") -> list[tuple[Any, Any]]:
        """(encoder, head) of each Q network; those of its target with the prefix "target_"."""
        return [
            (getattr(self, f"{prefix}{name}_encoder"), getattr(self, f"{prefix}{name}"))
            for name in self._q_names()
        ]

    def make_target_networks(self) -> None:
        """Copies the Q networks."""
        for name in self._q_names():
            setattr(self, f"target_{name}_encoder", make_target_network(getattr(self, f"{name}_encoder")))
            setattr(self, f"target_{name}", make_target_network(getattr(self, name)))

    def get_target_network_pairs(self) -> list[tuple[Any, Any]]:
        """(network, its target)."""
        return [
            pair
            for main, target in zip(self.q_networks(), self.q_networks("target_"), strict=True)
            for pair in zip(main, target, strict=True)
        ]

    def get_non_inference_attributes(self) -> list[str]:
        """All but the policy."""
        names = [f"{name}{part}" for name in self._q_names() for part in ("", "_encoder")]
        return [*names, *(f"target_{name}" for name in names)]

    def get_initial_state(self) -> Any:
        """{}: the module has no state."""
        return {}
