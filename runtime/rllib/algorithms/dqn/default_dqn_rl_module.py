"""The default module of DQN: an encoder, a head for actions and, dueling, one for the state; copies as targets."""

from __future__ import annotations

import abc
from typing import Any

from runtime.rllib.algorithms.dqn.dqn_catalog import DQNCatalog
from runtime.rllib.core.learner.utils import make_target_network
from runtime.rllib.core.rl_module.apis import InferenceOnlyAPI, QNetAPI, TargetNetworkAPI
from runtime.rllib.core.rl_module.rl_module import RLModule
from runtime.rllib.utils.exploration.epsilon_greedy import EpsilonGreedy

QF_PREDS = "qf_preds"
ATOMS = "atoms"
QF_LOGITS = "qf_logits"
QF_NEXT_PREDS = "qf_next_preds"
QF_PROBS = "qf_probs"
QF_TARGET_NEXT_PREDS = "qf_target_next_preds"
QF_TARGET_NEXT_PROBS = "qf_target_next_probs"


class DefaultDQNRLModule(RLModule, InferenceOnlyAPI, TargetNetworkAPI, QNetAPI):
    """Networks of DQN.

    `model_config` has, besides the fields of `DefaultModelConfig`: "dueling", "double_q", "epsilon", "num_atoms",
    "v_min" and "v_max", as `DQNConfig` sets them.
    """

    def setup(self) -> None:
        """Builds the networks."""
        if self.catalog_class is None:
            self.catalog_class = DQNCatalog
        config = self.model_config
        self.uses_dueling = bool(config["dueling"])
        self.uses_double_q = bool(config["double_q"])
        self.num_atoms = int(config["num_atoms"])
        self.v_min, self.v_max = float(config["v_min"]), float(config["v_max"])
        self.exploration = EpsilonGreedy(config["epsilon"])
        self.encoder = self.catalog.build_encoder(framework=self.framework)
        self.af = self.catalog.build_af_head(framework=self.framework)
        if self.uses_dueling:
            self.vf = self.catalog.build_vf_head(framework=self.framework)

    def make_target_networks(self) -> None:
        """Copies the networks."""
        self._target_encoder = make_target_network(self.encoder)
        self._target_af = make_target_network(self.af)
        if self.uses_dueling:
            self._target_vf = make_target_network(self.vf)

    def get_target_network_pairs(self) -> list[tuple[Any, Any]]:
        """(network, its target)."""
        pairs = [(self.encoder, self._target_encoder), (self.af, self._target_af)]
        if self.uses_dueling:
            pairs.append((self.vf, self._target_vf))
        return pairs

    def get_non_inference_attributes(self) -> list[str]:
        """The targets are only needed to train."""
        return ["_target_encoder", "_target_af", *(["_target_vf"] if self.uses_dueling else [])]

    def get_initial_state(self) -> Any:
        """That of the encoder."""
        return self.encoder.get_initial_state()

    def compute_q_values(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Values "qf_preds" [..., A] and, with several atoms, "atoms" [N], "qf_logits" and "qf_probs" [..., A, N]."""
        return self._qf_forward(batch, self.encoder, self.af, self.vf if self.uses_dueling else None)

    def forward_target(self, batch: dict[str, Any]) -> dict[str, Any]:
        """`compute_q_values` of the target networks."""
        return self._qf_forward(
            batch, self._target_encoder, self._target_af, self._target_vf if self.uses_dueling else None
        )

    @abc.abstractmethod
    def _qf_forward(self, batch: dict[str, Any], encoder: Any, advantages: Any, value: Any) -> dict[str, Any]:
        """The values by these networks; `value` is None without dueling."""
