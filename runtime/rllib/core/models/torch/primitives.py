"""Stacks of layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from ..layers import FilterSpecifier, Initializer, parse_filter, same_padding

_ACTIVATIONS: dict[str, Any] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "silu": nn.SiLU,
    "swish": nn.SiLU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "leaky_relu": nn.LeakyReLU,
    "sigmoid": nn.Sigmoid,
    "selu": nn.SELU,
    "softplus": nn.Softplus,
}
_EPSILON = 1e-3  # of layer normalisation


def make_activation(name: str | Callable[[], Any] | None) -> Any:
    """A module of an activation by name or class; None for "linear".

    Raises:
        ValueError: the name is unknown.
    """
    if name is None or name == "linear":
        return None
    if callable(name):
        return name()
    found = _ACTIVATIONS.get(name.lower()) or getattr(nn, name, None)
    if found is None:
        raise ValueError(
            f"Unknown activation {name!r}. Use 'linear', a name of torch.nn or {sorted(_ACTIVATIONS)}"
        )
    return found()


def initialise(tensor: Any, initializer: Initializer, config: dict[str, Any] | None) -> None:
    """Fills a tensor by a function of torch.nn.init, given by name (with or without "_") or itself. None keeps it.

    Raises:
        ValueError: there is no such function.
    """
    if initializer is None or tensor is None:
        return
    if isinstance(initializer, str):
        name = initializer if initializer.endswith("_") else initializer + "_"
        function = getattr(nn.init, name, None)
        if function is None:
            raise ValueError(f"Unknown initializer {initializer!r}: torch.nn.init has no {name}")
    else:
        function = initializer
    function(tensor, **(config or {}))


class TorchMLP(nn.Module):
    """Fully connected layers over the last dimension."""

    def __init__(
        self,
        *,
        input_dim: int,
        hidden_layer_dims: Sequence[int],
        hidden_layer_activation: Any = "relu",
        hidden_layer_use_bias: bool = True,
        hidden_layer_use_layernorm: bool = False,
        hidden_layer_weights_initializer: Initializer = None,
        hidden_layer_weights_initializer_config: dict[str, Any] | None = None,
        hidden_layer_bias_initializer: Initializer = None,
        hidden_layer_bias_initializer_config: dict[str, Any] | None = None,
        output_dim: int | None = None,
        output_use_bias: bool = True,
        output_layer_use_layernorm: bool = False,
        output_activation: Any = "linear",
        output_weights_initializer: Initializer = None,
        output_weights_initializer_config: dict[str, Any] | None = None,
        output_bias_initializer: Initializer = None,
        output_bias_initializer_config: dict[str, Any] | None = None,
    ) -> None:
        """Layers of `hidden_layer_dims`, and one of `output_dim` unless that is None."""
        super().__init__()
        layers: list[Any] = []
        width = input_dim

        def add(size: int, use_bias: bool, norm: bool, activation: Any, initializers: Sequence[Any]) -> None:
            nonlocal width
            layer = nn.Linear(width, size, bias=use_bias)
            initialise(layer.weight, initializers[0], initializers[1])
            initialise(layer.bias, initializers[2], initializers[3])
            layers.append(layer)
            if norm:
                layers.append(nn.LayerNorm(size, eps=_EPSILON))
            if (module := make_activation(activation)) is not None:
                layers.append(module)
            width = size

        for size in hidden_layer_dims:
            add(
                size,
                hidden_layer_use_bias,
                hidden_layer_use_layernorm,
                hidden_layer_activation,
                (
                    hidden_layer_weights_initializer,
                    hidden_layer_weights_initializer_config,
                    hidden_layer_bias_initializer,
                    hidden_layer_bias_initializer_config,
                ),
            )
        if output_dim is not None:
            add(
                output_dim,
                output_use_bias,
                output_layer_use_layernorm,
                output_activation,
                (
                    output_weights_initializer,
                    output_weights_initializer_config,
                    output_bias_initializer,
                    output_bias_initializer_config,
                ),
            )
        self.output_dim = width
        self.mlp = nn.Sequential(*layers)

    def forward(self, x: Any) -> Any:
        """[..., input_dim] -> [..., output_dim]."""
        return self.mlp(as_float(x))


class ChannelLayerNorm(nn.Module):
    """Layer normalisation over the channels of images [batch, channels, height, width]."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layer_norm = nn.LayerNorm(channels, eps=_EPSILON)

    def forward(self, x: Any) -> Any:
        """The normalised images."""
        return self.layer_norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class TorchCNN(nn.Module):
    """Convolutions over images [batch, height, width, channels]."""

    def __init__(
        self,
        *,
        input_dims: Sequence[int],
        cnn_filter_specifiers: Sequence[FilterSpecifier],
        cnn_use_bias: bool = True,
        cnn_use_layernorm: bool = False,
        cnn_activation: Any = "relu",
        cnn_kernel_initializer: Initializer = None,
        cnn_kernel_initializer_config: dict[str, Any] | None = None,
        cnn_bias_initializer: Initializer = None,
        cnn_bias_initializer_config: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        height, width, depth = input_dims
        layers: list[Any] = []
        for specifier in cnn_filter_specifiers:
            channels, kernel, stride, padding = parse_filter(specifier)
            if padding == "same":
                above, below = same_padding(height, kernel[0], stride[0])
                left, right = same_padding(width, kernel[1], stride[1])
                if any((above, below, left, right)):
                    layers.append(nn.ZeroPad2d((left, right, above, below)))
                height, width = height + above + below, width + left + right
            conv = nn.Conv2d(depth, channels, kernel, stride, bias=cnn_use_bias)
            initialise(conv.weight, cnn_kernel_initializer, cnn_kernel_initializer_config)
            initialise(conv.bias, cnn_bias_initializer, cnn_bias_initializer_config)
            layers.append(conv)
            if cnn_use_layernorm:
                layers.append(ChannelLayerNorm(channels))
            if (module := make_activation(cnn_activation)) is not None:
                layers.append(module)
            height, width = (height - kernel[0]) // stride[0] + 1, (width - kernel[1]) // stride[1] + 1
            depth = channels
        self.output_height, self.output_width, self.output_depth = height, width, depth
        self.cnn = nn.Sequential(*layers)

    def forward(self, inputs: Any) -> Any:
        """[batch, height, width, channels] -> [batch, output_height, output_width, output_depth]."""
        return self.cnn(as_float(inputs).permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


class TorchCNNTranspose(nn.Module):
    """Transposed convolutions over images [batch, height, width, channels]; each multiplies the size by its stride."""

    def __init__(
        self,
        *,
        input_dims: Sequence[int],
        cnn_transpose_filter_specifiers: Sequence[FilterSpecifier],
        cnn_transpose_use_bias: bool = True,
        cnn_transpose_activation: Any = "relu",
        cnn_transpose_use_layernorm: bool = False,
        cnn_transpose_kernel_initializer: Initializer = None,
        cnn_transpose_kernel_initializer_config: dict[str, Any] | None = None,
        cnn_transpose_bias_initializer: Initializer = None,
        cnn_transpose_bias_initializer_config: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        height, width, depth = input_dims
        layers: list[Any] = []
        last = len(cnn_transpose_filter_specifiers) - 1
        for i, specifier in enumerate(cnn_transpose_filter_specifiers):
            channels, kernel, stride, _ = parse_filter(specifier)
            excess = [k - s for k, s in zip(kernel, stride, strict=True)]
            if min(excess) < 0:
                raise ValueError(
                    f"The kernel of a transposed convolution is smaller than its stride: {specifier}"
                )
            conv = nn.ConvTranspose2d(
                depth,
                channels,
                kernel,
                stride,
                padding=[(e + 1) // 2 for e in excess],
                output_padding=[e % 2 for e in excess],
                bias=cnn_transpose_use_bias or i == last,
            )
            initialise(conv.weight, cnn_transpose_kernel_initializer, cnn_transpose_kernel_initializer_config)
            initialise(conv.bias, cnn_transpose_bias_initializer, cnn_transpose_bias_initializer_config)
            layers.append(conv)
            if i < last:
                if cnn_transpose_use_layernorm:
                    layers.append(ChannelLayerNorm(channels))
                if (module := make_activation(cnn_transpose_activation)) is not None:
                    layers.append(module)
            height, width, depth = height * stride[0], width * stride[1], channels
        self.output_height, self.output_width, self.output_depth = height, width, depth
        self.cnn_transpose = nn.Sequential(*layers)

    def forward(self, inputs: Any) -> Any:
        """[batch, height, width, channels] -> [batch, output_height, output_width, output_depth]."""
        return self.cnn_transpose(inputs.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


def as_float(x: Any) -> Any:
    """The tensor itself if it is of float32 or half precision, else a copy in float32."""
    if x.dtype in (torch.float32, torch.float16, torch.bfloat16):
        return x
    return x.float()
