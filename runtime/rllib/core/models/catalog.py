"""Which networks and distributions fit which spaces."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from ..._core import trees
from ...utils.error import UnsupportedSpaceException
from ...utils.spaces.space_utils import get_base_struct_from_space
from ..distribution.distribution import Distribution
from .configs import CNNEncoderConfig, MLPEncoderConfig, MLPHeadConfig, ModelConfig, RecurrentEncoderConfig

# Convolutions by the size of square images: [channels, kernel, stride].
_DEFAULT_FILTERS: dict[int, Sequence[Sequence[Any]]] = {
    10: ((16, (5, 5), 2), (32, (5, 5), 2)),
    42: ((16, (4, 4), 2), (32, (4, 4), 2), (256, (11, 11), 1)),
    64: ((16, (4, 4), 2), (32, (4, 4), 2), (64, (4, 4), 2), (128, (4, 4), 2)),
    84: ((16, (8, 8), 4), (32, (4, 4), 2), (256, (11, 11), 1)),
    96: ((16, (8, 8), 4), (32, (4, 4), 2), (256, (11, 11), 2)),
}


class Catalog:
    """Chooses an encoder by the observation space and a distribution by the action space.

    A subclass overrides `_get_encoder_config` (another encoder), `build_encoder` or `_get_dist_cls_from_action_space`
    (other distributions), and is passed as `catalog_class` of an `RLModuleSpec`.
    """

    def __init__(self, observation_space: Any, action_space: Any, model_config_dict: dict[str, Any]) -> None:
        """From spaces and complete settings of networks (`complete_model_config`).

        Raises:
            ValueError: no default encoder fits the observation space.
        """
        self.observation_space = observation_space
        self.action_space = action_space
        self._model_config_dict = model_config_dict
        self._latent_dims: tuple[int, ...] | None = None
        self._determine_components_hook()

    def _determine_components_hook(self) -> None:
        """Decides on configurations and distributions, once."""
        self._encoder_config = self._get_encoder_config(
            observation_space=self.observation_space,
            model_config_dict=self._model_config_dict,
            action_space=self.action_space,
        )
        self._action_dist_class_fn = functools.partial(
            self._get_dist_cls_from_action_space, action_space=self.action_space
        )

    @property
    def latent_dims(self) -> tuple[int, ...]:
        """The shape of the encoder's features."""
        return tuple(self._latent_dims or self._encoder_config.output_dims)

    @latent_dims.setter
    def latent_dims(self, value: Sequence[int]) -> None:
        self._latent_dims = tuple(value)

    def build_encoder(self, framework: str) -> Any:
        """The encoder."""
        return self._encoder_config.build(framework=framework)

    def get_action_dist_cls(self, framework: str) -> type[Distribution]:
        """The class of distributions over actions."""
        return self._action_dist_class_fn(framework=framework)

    @classmethod
    def _get_encoder_config(
        cls, observation_space: Any, model_config_dict: dict[str, Any], action_space: Any = None
    ) -> ModelConfig:
        """The configuration of an encoder for an observation space."""
        settings = model_config_dict
        tokenizer = cls.get_tokenizer_config(observation_space, settings)
        if not settings["use_lstm"]:
            return tokenizer
        if settings["lstm_use_prev_action"] or settings["lstm_use_prev_reward"]:
            raise ValueError(
                "Default modules take actions and rewards of earlier steps as parts of observations only: leave "
                "lstm_use_prev_action and lstm_use_prev_reward False, and add the connectors PrevActionsPrevRewards "
                "and FlattenObservations from rllib.connectors.env_to_module"
            )
        return RecurrentEncoderConfig(
            input_dims=observation_space.shape,
            recurrent_layer_type="lstm",
            hidden_dim=settings["lstm_cell_size"],
            hidden_weights_initializer=settings["lstm_kernel_initializer"],
            hidden_weights_initializer_config=settings["lstm_kernel_initializer_kwargs"],
            hidden_bias_initializer=settings["lstm_bias_initializer"],
            hidden_bias_initializer_config=settings["lstm_bias_initializer_kwargs"],
            tokenizer_config=tokenizer,
        )

    @classmethod
    def get_tokenizer_config(cls, observation_space: Any, model_config_dict: dict[str, Any]) -> ModelConfig:
        """The configuration of an encoder for single steps, without memory."""
        settings = model_config_dict
        if isinstance(observation_space, gym.spaces.Box) and len(observation_space.shape) == 1:
            return MLPEncoderConfig(
                input_dims=observation_space.shape,
                hidden_layer_dims=settings["fcnet_hiddens"],
                hidden_layer_activation=settings["fcnet_activation"],
                hidden_layer_use_layernorm=settings["fcnet_use_layernorm"],
                hidden_layer_weights_initializer=settings["fcnet_kernel_initializer"],
                hidden_layer_weights_initializer_config=settings["fcnet_kernel_initializer_kwargs"],
                hidden_layer_bias_initializer=settings["fcnet_bias_initializer"],
                hidden_layer_bias_initializer_config=settings["fcnet_bias_initializer_kwargs"],
            )
        if isinstance(observation_space, gym.spaces.Box) and len(observation_space.shape) == 3:
            return CNNEncoderConfig(
                input_dims=observation_space.shape,
                cnn_filter_specifiers=settings["conv_filters"] or default_filters(observation_space.shape),
                cnn_activation=settings["conv_activation"],
                cnn_kernel_initializer=settings["conv_kernel_initializer"],
                cnn_kernel_initializer_config=settings["conv_kernel_initializer_kwargs"],
                cnn_bias_initializer=settings["conv_bias_initializer"],
                cnn_bias_initializer_config=settings["conv_bias_initializer_kwargs"],
            )
        raise ValueError(
            f"Default modules have no encoder for the observation space {observation_space}. They take Box spaces of "
            "one dimension, or of three (height, width, channels). Flatten or one-hot encode others by a connector: "
            "config.env_runners(env_to_module_connector=lambda env, spaces, device: FlattenObservations()) from "
            "rllib.connectors.env_to_module; or write an RLModule for the space"
        )

    @classmethod
    def _get_dist_cls_from_action_space(
        cls, action_space: Any, *, framework: str | None = None
    ) -> type[Distribution]:
        """The class of distributions over an action space's actions.

        Raises:
            ValueError: `framework` is not "torch".
            UnsupportedSpaceException: no distribution fits the space.
        """
        if framework != "torch":
            raise ValueError(f"Distributions exist for framework 'torch', not for {framework!r}")
        from ..distribution.torch import torch_distribution as dists

        if isinstance(action_space, gym.spaces.Discrete):
            return dists.TorchCategorical
        if isinstance(action_space, gym.spaces.MultiDiscrete):
            nvec = np.asarray(action_space.nvec)
            if nvec.ndim == 1:
                return dists.TorchMultiCategorical.get_partial_dist_cls(input_lens=[int(n) for n in nvec])
        if isinstance(action_space, gym.spaces.Box):
            if not np.issubdtype(action_space.dtype, np.floating):
                raise UnsupportedSpaceException(
                    f"The action space {action_space} is a Box of integers. Use MultiDiscrete, or a Box of floats"
                )
            return dists.TorchDiagGaussian
        if isinstance(action_space, gym.spaces.Dict | gym.spaces.Tuple):
            spaces = get_base_struct_from_space(action_space)
            children = trees.tree_map(
                lambda s: cls._get_dist_cls_from_action_space(s, framework=framework), spaces
            )
            lens = trees.tree_map(lambda child, s: child.required_input_dim(s), children, spaces)
            return dists.TorchMultiDistribution.get_partial_dist_cls(
                child_distribution_cls_struct=children, input_lens=lens
            )
        raise UnsupportedSpaceException(
            f"There is no default distribution for the action space {action_space}. Use Discrete, MultiDiscrete of one "
            "dimension, Box of floats, or Dict and Tuple of these; or set `action_dist_cls` in an RLModule"
        )


def default_filters(shape: Sequence[int]) -> Sequence[Sequence[Any]]:
    """The default convolutions for images of a shape [height, width, channels].

    Raises:
        ValueError: there is no default for this size.
    """
    height, width, _ = shape
    if height != width or height not in _DEFAULT_FILTERS:
        sizes = ", ".join(f"[{size}, {size}, K]" for size in _DEFAULT_FILTERS)
        raise ValueError(
            f"There are no default convolutions for images of shape {list(shape)}, only for {sizes}. Set "
            "`conv_filters` in model_config, for example [[16, 4, 2], [32, 4, 2], [64, 4, 2]], or scale the images"
        )
    return _DEFAULT_FILTERS[height]


def head_config(
    settings: dict[str, Any],
    input_dims: Sequence[int],
    output_dim: int,
    cls: type[Any] = MLPHeadConfig,
    **more: Any,
) -> Any:
    """The configuration of a head, by the `head_fcnet_...` settings."""
    return cls(
        input_dims=input_dims,
        hidden_layer_dims=settings["head_fcnet_hiddens"],
        hidden_layer_activation=settings["head_fcnet_activation"],
        hidden_layer_use_layernorm=settings["head_fcnet_use_layernorm"],
        hidden_layer_weights_initializer=settings["head_fcnet_kernel_initializer"],
        hidden_layer_weights_initializer_config=settings["head_fcnet_kernel_initializer_kwargs"],
        hidden_layer_bias_initializer=settings["head_fcnet_bias_initializer"],
        hidden_layer_bias_initializer_config=settings["head_fcnet_bias_initializer_kwargs"],
        output_layer_dim=output_dim,
        **more,
    )
