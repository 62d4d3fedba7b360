"""Behaviour cloning: makes the actions of the data likely."""

from __future__ import annotations

from typing import Any

from runtime.rllib.algorithms.marwil.marwil import MARWIL, MARWILConfig
from runtime.rllib.core.columns import Columns

__all__ = ["BC", "BCConfig"]


class BCConfig(MARWILConfig):
    """The settings of `BC`: those of MARWIL with `beta=0.0`. The data needs neither rewards nor ends of episodes."""

    offline_columns = (Columns.OBS, Columns.ACTIONS)
    trains_on_segments = False

    def __init__(self, algo_class: Any = None) -> None:
        super().__init__(algo_class=algo_class or BC)
        self.beta = 0.0
        self.postprocess_inputs = False
        self.materialize_data = False
        self.materialize_mapped_data = True

    def get_default_rl_module_spec(self) -> Any:
        """An encoder and a policy head."""
        from runtime.rllib.algorithms.bc.torch.default_bc_torch_rl_module import DefaultBCTorchRLModule
        from runtime.rllib.core.rl_module.rl_module import RLModuleSpec

        return RLModuleSpec(module_class=DefaultBCTorchRLModule)

    def validate(self) -> None:
        """Checks that the settings fit each other.

        Raises:
            ValueError: they do not.
        """
        super().validate()
        if self.beta != 0.0:
            raise ValueError(
                f"BC has `beta=0.0`, not {self.beta}: use MARWIL to weigh actions by their advantages"
            )


class BC(MARWIL):
    """Trains a policy to act as the data does; see `BCConfig`."""

    @classmethod
    def get_default_config(cls) -> BCConfig:
        """The defaults."""
        return BCConfig()
