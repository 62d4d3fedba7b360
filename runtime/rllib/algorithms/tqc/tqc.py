"""Truncated quantile critics (Kuznetsov et al. 2020): SAC whose critics give distributions."""

from __future__ import annotations

from typing import Any, Self

from runtime.rllib.algorithms._config.settings import NotProvided, setter
from runtime.rllib.algorithms.sac.sac import SAC, SACConfig
from runtime.rllib.core.rl_module.rl_module import RLModuleSpec


class TQCConfig(SACConfig):
    """Settings of TQC; `build_algo()` makes the algorithm."""

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or TQC)
        self.n_quantiles = 25
        self.n_critics = 2
        self.top_quantiles_to_drop_per_net = 2

    @setter
    def training(
        self,
        *,
        n_quantiles: int = NotProvided,
        n_critics: int = NotProvided,
        top_quantiles_to_drop_per_net: int = NotProvided,
        **kwargs: Any,
    ) -> Self:
        """Settings of the critics.

        Args:
            n_quantiles: of each critic.
            n_critics: how many.
            top_quantiles_to_drop_per_net: of all target quantiles together, so many times `n_critics` are left out.
            kwargs: see `SACConfig.training`.
        """
        super().training(**kwargs)
        return self.apply(
            n_quantiles=n_quantiles,
            n_critics=n_critics,
            top_quantiles_to_drop_per_net=top_quantiles_to_drop_per_net,
        )

    def validate(self) -> None:
        """Checks that the settings fit each other.

        Raises:
            ValueError: they do not.
        """
        super().validate()
        for name in ("n_quantiles", "n_critics"):
            if getattr(self, name) < 1:
                self._value_error(f"{name} must be at least 1, not {getattr(self, name)!r}.")
        if not 0 <= self.top_quantiles_to_drop_per_net < self.n_quantiles:
            self._value_error(
                f"top_quantiles_to_drop_per_net must be at least 0 and less than n_quantiles ({self.n_quantiles}), not "
                f"{self.top_quantiles_to_drop_per_net!r}."
            )

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """A policy and quantile critics."""
        from runtime.rllib.algorithms.tqc.torch.default_tqc_torch_rl_module import DefaultTQCTorchRLModule

        return RLModuleSpec(module_class=DefaultTQCTorchRLModule, model_config=self.model_config)

    def get_default_learner_class(self) -> type:
        """The learner with TQC's losses."""
        from runtime.rllib.algorithms.tqc.torch.tqc_torch_learner import TQCTorchLearner

        return TQCTorchLearner

    @property
    def _model_config_auto_includes(self) -> dict[str, Any]:
        return super()._model_config_auto_includes | {
            "n_quantiles": self.n_quantiles,
            "n_critics": self.n_critics,
            "top_quantiles_to_drop_per_net": self.top_quantiles_to_drop_per_net,
        }


class TQC(SAC):
    """See `SAC`."""

    @classmethod
    def get_default_config(cls) -> TQCConfig:
        """The defaults."""
        return TQCConfig()
