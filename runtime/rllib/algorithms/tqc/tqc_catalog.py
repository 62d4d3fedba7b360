"""Which networks TQC's default module has."""

from __future__ import annotations

from typing import Any

from runtime.rllib.algorithms.sac.sac_catalog import SACCatalog
from runtime.rllib.utils.error import UnsupportedSpaceException


class TQCCatalog(SACCatalog):
    """SAC's networks, with heads of "n_quantiles" outputs for the critics.

    Raises:
        UnsupportedSpaceException: the action space is not Box.
    """

    def __init__(self, observation_space: Any, action_space: Any, model_config_dict: dict[str, Any]) -> None:
        super().__init__(observation_space, action_space, model_config_dict)
        if self.is_discrete:
            raise UnsupportedSpaceException(
                f"TQC needs a Box action space, not {action_space}; use DQN or SAC"
            )
        self.qf_head_config = self.q_head_config(int(model_config_dict["n_quantiles"]))
