"""Which networks SAC's default module has."""

from __future__ import annotations

from typing import Any

from runtime.rllib.core.models.catalog import Catalog
from runtime.rllib.core.models.configs import MLPEncoderConfig, MLPHeadConfig


class SACCatalog(Catalog):
    """An encoder and a head of the policy, encoders and heads of Q networks.

    For Box actions a Q network's encoder reads observation and action together. Flat observations are joined with the
    action before the layers of `fcnet_hiddens`; others first go through an encoder like the policy's.

    Raises:
        ValueError: the action space is neither Box nor Discrete.
    """

    def __init__(self, observation_space: Any, action_space: Any, model_config_dict: dict[str, Any]) -> None:
        super().__init__(observation_space, action_space, model_config_dict)
        import gymnasium

        self.is_discrete = isinstance(action_space, gymnasium.spaces.Discrete)
        if not self.is_discrete and not isinstance(action_space, gymnasium.spaces.Box):
            raise ValueError(f"SAC needs a Box or Discrete action space, not {action_space}")
        self.qf_head_config = self._head_config(int(action_space.n) if self.is_discrete else 1)

    def build_qf_encoder(self, framework: str = "torch") -> Any:
        """The encoder of a Q network."""
        if self.is_discrete:
            return self.build_encoder(framework=framework)
        from runtime.rllib.algorithms.sac.torch.q_encoder import TorchQEncoder

        config = self._model_config_dict
        actions = 1
        for size in self.action_space.shape:
            actions *= size
        is_flat = isinstance(self._encoder_config, MLPEncoderConfig)
        observations = self.observation_space.shape[0] if is_flat else self.latent_dims[0]
        joint = MLPEncoderConfig(
            input_dims=(observations + actions,),
            hidden_layer_dims=config["fcnet_hiddens"],
            hidden_layer_activation=config["fcnet_activation"],
            hidden_layer_weights_initializer=config["fcnet_kernel_initializer"],
            hidden_layer_weights_initializer_config=config["fcnet_kernel_initializer_kwargs"],
            hidden_layer_bias_initializer=config["fcnet_bias_initializer"],
            hidden_layer_bias_initializer_config=config["fcnet_bias_initializer_kwargs"],
        )
        return TorchQEncoder(None if is_flat else self._encoder_config, joint)

    def build_qf_head(self, framework: str = "torch") -> Any:
        """The head of a Q network."""
        return self.qf_head_config.build(framework=framework)

    def build_pi_head(self, framework: str = "torch") -> Any:
        """The head of the policy."""
        outputs = self.get_action_dist_cls(framework).required_input_dim(space=self.action_space)
        return self._head_config(outputs).build(framework=framework)

    def get_action_dist_cls(self, framework: str = "torch") -> Any:
        """A Gaussian squashed to [-1, 1], or a categorical distribution."""
        from runtime.rllib.core.distribution.torch import torch_distribution

        return torch_distribution.TorchCategorical if self.is_discrete else torch_distribution.TorchSquashedGaussian

    def _head_config(self, outputs: int) -> MLPHeadConfig:
        config = self._model_config_dict
        return MLPHeadConfig(
            input_dims=self.latent_dims,
            hidden_layer_dims=config["head_fcnet_hiddens"],
            hidden_layer_activation=config["head_fcnet_activation"],
            output_layer_dim=outputs,
            output_layer_activation="linear",
        )
