"""Which networks SAC's default module has."""

from __future__ import annotations

import math
from typing import Any

import gymnasium

from runtime.rllib.core.distribution.distribution import Distribution
from runtime.rllib.core.models.catalog import Catalog, head_config
from runtime.rllib.core.models.configs import MLPEncoderConfig, MLPHeadConfig
from runtime.rllib.utils.error import UnsupportedSpaceException


class SACCatalog(Catalog):
    """An encoder and a head of the policy, encoders and heads of Q networks.

    For Box actions a Q network's encoder reads observation and action together. Flat observations are joined with the
    action before the layers of `fcnet_hiddens`; others first go through an encoder like the policy's.

    Raises:
        UnsupportedSpaceException: the action space is neither Box nor Discrete.
        ValueError: the networks should be recurrent.
    """

    def __init__(self, observation_space: Any, action_space: Any, model_config_dict: dict[str, Any]) -> None:
        super().__init__(observation_space, action_space, model_config_dict)
        if model_config_dict["use_lstm"]:
            raise ValueError(
                "The default modules of SAC and of what builds on it have no memory: leave use_lstm False, and let the "
                "environment stack its last observations"
            )
        self.is_discrete = isinstance(action_space, gymnasium.spaces.Discrete)
        if not self.is_discrete and not isinstance(action_space, gymnasium.spaces.Box):
            raise UnsupportedSpaceException(f"SAC needs a Box or Discrete action space, not {action_space}")
        self.qf_head_config = self.q_head_config(int(action_space.n) if self.is_discrete else 1)

    def q_head_config(self, outputs: int) -> MLPHeadConfig:
        """The head of a Q network with so many outputs."""
        inputs = self.latent_dims if self.is_discrete else self.joint_config.output_dims
        head: MLPHeadConfig = head_config(self._model_config_dict, inputs, outputs)
        return head

    @property
    def joint_config(self) -> MLPEncoderConfig:
        """The layers over observation (or its features) and action."""
        config = self._model_config_dict
        observations = self.observation_space.shape[0] if self._is_flat else self.latent_dims[0]
        return MLPEncoderConfig(
            input_dims=(observations + math.prod(self.action_space.shape),),
            hidden_layer_dims=config["fcnet_hiddens"],
            hidden_layer_activation=config["fcnet_activation"],
            hidden_layer_use_layernorm=config["fcnet_use_layernorm"],
            hidden_layer_weights_initializer=config["fcnet_kernel_initializer"],
            hidden_layer_weights_initializer_config=config["fcnet_kernel_initializer_kwargs"],
            hidden_layer_bias_initializer=config["fcnet_bias_initializer"],
            hidden_layer_bias_initializer_config=config["fcnet_bias_initializer_kwargs"],
        )

    @property
    def _is_flat(self) -> bool:
        return isinstance(self._encoder_config, MLPEncoderConfig)

    def build_qf_encoder(self, framework: str = "torch") -> Any:
        """The encoder of a Q network."""
        if self.is_discrete:
            return self.build_encoder(framework=framework)
        from runtime.rllib.algorithms.sac.torch.q_encoder import TorchQEncoder

        return TorchQEncoder(None if self._is_flat else self._encoder_config, self.joint_config)

    def build_qf_head(self, framework: str = "torch") -> Any:
        """The head of a Q network."""
        return self.qf_head_config.build(framework=framework)

    def build_pi_head(self, framework: str = "torch") -> Any:
        """The head of the policy."""
        outputs = self.get_action_dist_cls(framework).required_input_dim(self.action_space)
        return head_config(self._model_config_dict, self.latent_dims, outputs).build(framework=framework)

    @classmethod
    def _get_dist_cls_from_action_space(
        cls, action_space: Any, *, framework: str | None = None
    ) -> type[Distribution]:
        """A Gaussian squashed to [-1, 1] for Box spaces."""
        if isinstance(action_space, gymnasium.spaces.Box):
            from runtime.rllib.core.distribution.torch.torch_distribution import TorchSquashedGaussian

            return TorchSquashedGaussian
        return super()._get_dist_cls_from_action_space(action_space, framework=framework)
