"""The default module of TQC: SAC's policy and several critics that give quantiles of the return."""

from __future__ import annotations

from runtime.rllib.algorithms.sac.default_sac_rl_module import DefaultSACRLModule
from runtime.rllib.algorithms.tqc.tqc_catalog import TQCCatalog


class DefaultTQCRLModule(DefaultSACRLModule):
    """Networks of TQC.

    `model_config` has, besides the fields of `DefaultModelConfig`, "n_quantiles", "n_critics" and
    "top_quantiles_to_drop_per_net".
    """

    def setup(self) -> None:
        """Builds the networks."""
        if self.catalog_class is None:
            self.catalog_class = TQCCatalog
        self.n_quantiles = int(self.model_config["n_quantiles"])
        self.n_critics = int(self.model_config["n_critics"])
        self.top_quantiles_to_drop_per_net = int(self.model_config["top_quantiles_to_drop_per_net"])
        super().setup()

    def _q_names(self) -> list[str]:
        return [f"qf_{i}" for i in range(self.n_critics)]
