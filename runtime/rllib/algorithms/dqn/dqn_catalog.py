"""Which networks DQN's default module has."""

from __future__ import annotations

from typing import Any

from runtime.rllib.core.models.catalog import Catalog
from runtime.rllib.core.models.configs import MLPHeadConfig


class DQNCatalog(Catalog):
    """An encoder of observations, a head of `actions * num_atoms` outputs, and one of `num_atoms` for dueling.

    Raises:
        ValueError: the action space is not discrete.
    """

    def __init__(self, observation_space: Any, action_space: Any, model_config_dict: dict[str, Any]) -> None:
        super().__init__(observation_space, action_space, model_config_dict)
        if not hasattr(action_space, "n"):
            raise ValueError(f"DQN needs a Discrete action space, not {action_space}; SAC trains on Box spaces")
        self.num_atoms = int(self._model_config_dict["num_atoms"])
        self.af_head_config = self._head_config(int(action_space.n) * self.num_atoms)
        self.vf_head_config = self._head_config(self.num_atoms)

    def build_af_head(self, framework: str = "torch") -> Any:
        """The head of advantages, or of Q values without dueling."""
        return self.af_head_config.build(framework=framework)

    def build_vf_head(self, framework: str = "torch") -> Any:
        """The head of state values."""
        return self.vf_head_config.build(framework=framework)

    def get_action_dist_cls(self, framework: str = "torch") -> Any:
        """A categorical distribution over the actions."""
        from runtime.rllib.core.distribution.torch.torch_distribution import TorchCategorical

        return TorchCategorical

    def _head_config(self, outputs: int) -> MLPHeadConfig:
        config = self._model_config_dict
        weights, bias = config["head_fcnet_kernel_initializer"], config["head_fcnet_bias_initializer"]
        weights_config = config["head_fcnet_kernel_initializer_kwargs"]
        bias_config = config["head_fcnet_bias_initializer_kwargs"]
        return MLPHeadConfig(
            input_dims=self.latent_dims,
            hidden_layer_dims=config["head_fcnet_hiddens"],
            hidden_layer_activation=config["head_fcnet_activation"],
            hidden_layer_weights_initializer=weights,
            hidden_layer_weights_initializer_config=weights_config,
            hidden_layer_bias_initializer=bias,
            hidden_layer_bias_initializer_config=bias_config,
            output_layer_dim=outputs,
            output_layer_activation="linear",
            output_layer_weights_initializer=weights,
            output_layer_weights_initializer_config=weights_config,
            output_layer_bias_initializer=bias,
            output_layer_bias_initializer_config=bias_config,
        )
