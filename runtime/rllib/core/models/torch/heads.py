"""From features to outputs. A `config` is the class of `core.models.configs` whose `build` makes the network."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .base import TorchModel
from .primitives import TorchCNNTranspose, TorchMLP, initialise


def mlp_of(config: Any, output_dim: int | None) -> TorchMLP:
    """The layers that a configuration describes."""
    return TorchMLP(
        input_dim=config.input_dims[0],
        hidden_layer_dims=config.hidden_layer_dims,
        hidden_layer_activation=config.hidden_layer_activation,
        hidden_layer_use_bias=config.hidden_layer_use_bias,
        hidden_layer_use_layernorm=config.hidden_layer_use_layernorm,
        hidden_layer_weights_initializer=config.hidden_layer_weights_initializer,
        hidden_layer_weights_initializer_config=config.hidden_layer_weights_initializer_config,
        hidden_layer_bias_initializer=config.hidden_layer_bias_initializer,
        hidden_layer_bias_initializer_config=config.hidden_layer_bias_initializer_config,
        output_dim=output_dim,
        output_use_bias=config.output_layer_use_bias,
        output_layer_use_layernorm=config.output_layer_use_layernorm,
        output_activation=config.output_layer_activation,
        output_weights_initializer=config.output_layer_weights_initializer,
        output_weights_initializer_config=config.output_layer_weights_initializer_config,
        output_bias_initializer=config.output_layer_bias_initializer,
        output_bias_initializer_config=config.output_layer_bias_initializer_config,
    )


class TorchMLPHead(TorchModel):
    """Fully connected layers."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.net = mlp_of(config, config.output_layer_dim)
        self._clip = config.log_std_clip_param if config.clip_log_std else None

    def _forward(self, inputs: Any, **_: Any) -> Any:
        outputs = self.net.mlp(inputs)
        if self._clip is None:
            return outputs
        means, log_stds = outputs.chunk(2, -1)
        return torch.cat((means, log_stds.clamp(-self._clip, self._clip)), -1)


class TorchFreeLogStdMLPHead(TorchModel):
    """Fully connected layers to means, and free logarithms of standard deviations, at first 0."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        half = config.output_dims[0] // 2
        self.net = mlp_of(config, half)
        self.log_std = nn.Parameter(torch.zeros(half))
        self._clip = config.log_std_clip_param if config.clip_log_std else None

    def _forward(self, inputs: Any, **_: Any) -> Any:
        means = self.net.mlp(inputs)
        log_stds = self.log_std if self._clip is None else self.log_std.clamp(-self._clip, self._clip)
        return torch.cat((means, log_stds.expand_as(means)), -1)


class TorchCNNTransposeHead(TorchModel):
    """From features to images [batch, height, width, channels]."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        height, width, channels = config.initial_image_dims
        self.initial_dense = nn.Linear(config.input_dims[0], height * width * channels)
        initialise(
            self.initial_dense.weight,
            config.initial_dense_weights_initializer,
            config.initial_dense_weights_initializer_config,
        )
        initialise(
            self.initial_dense.bias,
            config.initial_dense_bias_initializer,
            config.initial_dense_bias_initializer_config,
        )
        self.cnn_transpose_net = TorchCNNTranspose(
            input_dims=config.initial_image_dims,
            cnn_transpose_filter_specifiers=config.cnn_transpose_filter_specifiers,
            cnn_transpose_use_bias=config.cnn_transpose_use_bias,
            cnn_transpose_activation=config.cnn_transpose_activation,
            cnn_transpose_use_layernorm=config.cnn_transpose_use_layernorm,
            cnn_transpose_kernel_initializer=config.cnn_transpose_kernel_initializer,
            cnn_transpose_kernel_initializer_config=config.cnn_transpose_kernel_initializer_config,
            cnn_transpose_bias_initializer=config.cnn_transpose_bias_initializer,
            cnn_transpose_bias_initializer_config=config.cnn_transpose_bias_initializer_config,
        )

    def _forward(self, inputs: Any, **_: Any) -> Any:
        return self.cnn_transpose_net(self.initial_dense(inputs).reshape(-1, *self.config.initial_image_dims))
