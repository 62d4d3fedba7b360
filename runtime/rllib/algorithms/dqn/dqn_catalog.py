"""Which networks DQN's default module has."""

from __future__ import annotations

from typing import Any

import gymnasium

from runtime.rllib.core.models.catalog import Catalog, head_config
from runtime.rllib.utils.error import UnsupportedSpaceException


class DQNCatalog(Catalog):
    """An encoder of observations, a head of `actions * num_atoms` outputs, and one of `num_atoms` for dueling.

    Raises:
        UnsupportedSpaceException: the action space is not discrete.
    """

    def __init__(self, observation_space: Any, action_space: Any, model_config_dict: dict[str, Any]) -> None:
        super().__init__(observation_space, action_space, model_config_dict)
        if not isinstance(action_space, gymnasium.spaces.Discrete):
            raise UnsupportedSpaceException(
                f"DQN needs a Discrete action space, not {action_space}; SAC takes Box spaces"
            )
        self.num_atoms = int(model_config_dict["num_atoms"])
        self.af_head_config = head_config(
            model_config_dict, self.latent_dims, int(action_space.n) * self.num_atoms
        )
        self.vf_head_config = head_config(model_config_dict, self.latent_dims, self.num_atoms)

    def build_af_head(self, framework: str = "torch") -> Any:
        """The head of advantages, or of Q values without dueling."""
        return self.af_head_config.build(framework=framework)

    def build_vf_head(self, framework: str = "torch") -> Any:
        """The head of state values."""
        return self.vf_head_config.build(framework=framework)
