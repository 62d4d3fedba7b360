"""Configurations of networks. `config.build("torch")` makes the network."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

from .layers import FilterSpecifier, Initializer, convolved_size, parse_filter


def _check_framework(framework: str) -> None:
    if framework != "torch":
        raise ValueError(f"Networks exist for framework 'torch', not for {framework!r}")


@dataclasses.dataclass
class ModelConfig(abc.ABC):
    """Common to all: `input_dims` is the shape of one input without its batch dimensions."""

    is_recurrent: ClassVar[bool] = False

    input_dims: Sequence[int] = ()

    @abc.abstractmethod
    def build(self, framework: str = "torch") -> Any:
        """The network.

        Raises:
            ValueError: the framework is unknown, or the configuration does not fit its input.
        """

    @property
    @abc.abstractmethod
    def output_dims(self) -> tuple[int, ...]:
        """The shape of one output without its batch dimensions."""


@dataclasses.dataclass
class MLPConfig(ModelConfig):
    """Fully connected layers. `output_layer_dim` None means no layer after the hidden ones."""

    hidden_layer_dims: Sequence[int] = (256, 256)
    hidden_layer_use_bias: bool = True
    hidden_layer_activation: str = "relu"
    hidden_layer_use_layernorm: bool = False
    hidden_layer_weights_initializer: Initializer = None
    hidden_layer_weights_initializer_config: dict[str, Any] | None = None
    hidden_layer_bias_initializer: Initializer = None
    hidden_layer_bias_initializer_config: dict[str, Any] | None = None
    output_layer_dim: int | None = None
    output_layer_use_layernorm: bool = False
    output_layer_use_bias: bool = True
    output_layer_activation: str = "linear"
    output_layer_weights_initializer: Initializer = None
    output_layer_weights_initializer_config: dict[str, Any] | None = None
    output_layer_bias_initializer: Initializer = None
    output_layer_bias_initializer_config: dict[str, Any] | None = None
    clip_log_std: bool = False
    log_std_clip_param: float = 20.0

    @property
    def output_dims(self) -> tuple[int, ...]:
        if self.output_layer_dim is not None:
            return (self.output_layer_dim,)
        return (self.hidden_layer_dims[-1],) if self.hidden_layer_dims else tuple(self.input_dims)

    def _validate(self) -> None:
        if len(self.input_dims) != 1:
            raise ValueError(
                f"Fully connected layers take inputs of one dimension, not of shape {self.input_dims}"
            )
        if self.output_layer_dim is None and not self.hidden_layer_dims:
            raise ValueError("A network needs hidden_layer_dims or output_layer_dim")


@dataclasses.dataclass
class MLPHeadConfig(MLPConfig):
    """Layers from features to outputs.

    With `clip_log_std` the second half of the outputs, logarithms of standard deviations, is clipped to
    [-log_std_clip_param, log_std_clip_param].
    """

    def build(self, framework: str = "torch") -> Any:
        _check_framework(framework)
        self._validate()
        from .torch.heads import TorchMLPHead

        return TorchMLPHead(self)


@dataclasses.dataclass
class FreeLogStdMLPHeadConfig(MLPConfig):
    """Layers to means; the logarithms of the standard deviations are parameters that do not depend on the input."""

    def build(self, framework: str = "torch") -> Any:
        _check_framework(framework)
        self._validate()
        if self.output_dims[0] % 2:
            raise ValueError(
                f"Means and standard deviations need an even output_layer_dim, not {self.output_dims[0]}"
            )
        from .torch.heads import TorchFreeLogStdMLPHead

        return TorchFreeLogStdMLPHead(self)


@dataclasses.dataclass
class MLPEncoderConfig(MLPConfig):
    """Layers from flat observations to features."""

    def build(self, framework: str = "torch") -> Any:
        _check_framework(framework)
        self._validate()
        from .torch.encoder import TorchMLPEncoder

        return TorchMLPEncoder(self)


@dataclasses.dataclass
class CNNEncoderConfig(ModelConfig):
    """Convolutions over images [height, width, channels]."""

    cnn_filter_specifiers: Sequence[FilterSpecifier] = ((16, (4, 4), 2), (32, (4, 4), 2), (64, (8, 8), 2))
    cnn_use_bias: bool = True
    cnn_activation: str = "relu"
    cnn_use_layernorm: bool = False
    cnn_kernel_initializer: Initializer = None
    cnn_kernel_initializer_config: dict[str, Any] | None = None
    cnn_bias_initializer: Initializer = None
    cnn_bias_initializer_config: dict[str, Any] | None = None
    flatten_at_end: bool = True

    @property
    def output_dims(self) -> tuple[int, ...]:
        height, width, channels = self._image_dims()
        return (height * width * channels,) if self.flatten_at_end else (height, width, channels)

    def _image_dims(self) -> tuple[int, int, int]:
        height, width, channels = self.input_dims
        for specifier in self.cnn_filter_specifiers:
            channels, kernel, stride, padding = parse_filter(specifier)
            height = convolved_size(height, kernel[0], stride[0], padding)
            width = convolved_size(width, kernel[1], stride[1], padding)
        return height, width, channels

    def build(self, framework: str = "torch") -> Any:
        _check_framework(framework)
        if len(self.input_dims) != 3:
            raise ValueError(
                f"Convolutions take images [height, width, channels], not of shape {self.input_dims}"
            )
        if min(self._image_dims()) < 1:
            raise ValueError(
                f"The convolutions {self.cnn_filter_specifiers} leave nothing of {self.input_dims}"
            )
        from .torch.encoder import TorchCNNEncoder

        return TorchCNNEncoder(self)


@dataclasses.dataclass
class CNNTransposeHeadConfig(ModelConfig):
    """A dense layer to a small image, then transposed convolutions that multiply its size by their strides."""

    initial_image_dims: Sequence[int] = (4, 4, 96)
    initial_dense_weights_initializer: Initializer = None
    initial_dense_weights_initializer_config: dict[str, Any] | None = None
    initial_dense_bias_initializer: Initializer = None
    initial_dense_bias_initializer_config: dict[str, Any] | None = None
    cnn_transpose_filter_specifiers: Sequence[FilterSpecifier] = (
        (48, (4, 4), 2),
        (24, (4, 4), 2),
        (3, (4, 4), 2),
    )
    cnn_transpose_use_bias: bool = True
    cnn_transpose_activation: str = "relu"
    cnn_transpose_use_layernorm: bool = False
    cnn_transpose_kernel_initializer: Initializer = None
    cnn_transpose_kernel_initializer_config: dict[str, Any] | None = None
    cnn_transpose_bias_initializer: Initializer = None
    cnn_transpose_bias_initializer_config: dict[str, Any] | None = None

    @property
    def output_dims(self) -> tuple[int, ...]:
        height, width, channels = self.initial_image_dims
        for specifier in self.cnn_transpose_filter_specifiers:
            channels, _, stride, _ = parse_filter(specifier)
            height, width = height * stride[0], width * stride[1]
        return (height, width, channels)

    def build(self, framework: str = "torch") -> Any:
        _check_framework(framework)
        if len(self.input_dims) != 1:
            raise ValueError(f"The head takes inputs of one dimension, not of shape {self.input_dims}")
        from .torch.heads import TorchCNNTransposeHead

        return TorchCNNTransposeHead(self)


@dataclasses.dataclass
class RecurrentEncoderConfig(ModelConfig):
    """An LSTM or a GRU over sequences [batch, time, ...], behind an encoder of single steps ("tokenizer")."""

    is_recurrent: ClassVar[bool] = True

    recurrent_layer_type: str = "lstm"
    hidden_dim: int = 256
    num_layers: int = 1
    batch_major: bool = True
    hidden_weights_initializer: Initializer = None
    hidden_weights_initializer_config: dict[str, Any] | None = None
    use_bias: bool = True
    hidden_bias_initializer: Initializer = None
    hidden_bias_initializer_config: dict[str, Any] | None = None
    tokenizer_config: ModelConfig | None = None

    @property
    def output_dims(self) -> tuple[int, ...]:
        return (self.hidden_dim,)

    def build(self, framework: str = "torch") -> Any:
        _check_framework(framework)
        from .torch.encoder import TorchGRUEncoder, TorchLSTMEncoder

        if self.recurrent_layer_type not in ("lstm", "gru"):
            raise ValueError(
                f"recurrent_layer_type must be 'lstm' or 'gru', not {self.recurrent_layer_type!r}"
            )
        return (TorchLSTMEncoder if self.recurrent_layer_type == "lstm" else TorchGRUEncoder)(self)


@dataclasses.dataclass
class ActorCriticEncoderConfig(ModelConfig):
    """One encoder for actor and critic, or two of the same configuration."""

    base_encoder_config: ModelConfig | None = None
    shared: bool = True
    inference_only: bool = False

    @property
    def output_dims(self) -> tuple[int, ...]:
        return self._base.output_dims

    @property
    def _base(self) -> ModelConfig:
        if self.base_encoder_config is None:
            raise ValueError("ActorCriticEncoderConfig needs a base_encoder_config")
        return self.base_encoder_config

    def build(self, framework: str = "torch") -> Any:
        _check_framework(framework)
        from .torch.encoder import TorchActorCriticEncoder, TorchStatefulActorCriticEncoder

        return (TorchStatefulActorCriticEncoder if self._base.is_recurrent else TorchActorCriticEncoder)(self)
