"""Settings of the networks of default modules."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from typing import Any

from ...utils.typing import ConvFilterSpec

Initializer = str | Callable[..., Any] | None


@dataclasses.dataclass
class DefaultModelConfig:
    """Settings of the networks of default modules.

    The encoder is made of `conv_...` for images [height, width, channels], of `fcnet_...` for flat observations, and
    with `use_lstm` of an LSTM behind these. The heads for actions and values are made of `head_fcnet_...`.

    Attributes:
        fcnet_hiddens: sizes of the fully connected layers.
        fcnet_activation: name of their activation in torch.nn, or "linear"; likewise for the other `..._activation`.
        fcnet_kernel_initializer: function of torch.nn.init, by name or itself, for the weights; None for torch's
            default; its arguments are in `fcnet_kernel_initializer_kwargs`. Likewise for the other initializers.
        fcnet_use_layernorm: normalise each layer's outputs before its activation.
        conv_filters: [channels, kernel, stride] or [channels, kernel, stride, "same" | "valid"] of each convolution;
            None for a default by the image's size.
        head_fcnet_hiddens: sizes of the hidden layers of both heads.
        free_log_std: standard deviations are parameters, not outputs of a net.
        log_std_clip_param: their logarithms are clipped to +- this value.
        vf_share_layers: actor and critic share an encoder.
        use_lstm: put an LSTM behind the encoder.
        max_seq_len: longest sequence of a training batch, in steps.
        lstm_cell_size: size of the LSTM's state.
        lstm_use_prev_action: must be False: a connector adds earlier actions and rewards to observations.
        lstm_use_prev_reward: must be False, likewise.
        fusionnet_hiddens: sizes of layers that join several inputs, for catalogs of the user's; likewise the other
            `fusionnet_...`.
    """

    fcnet_hiddens: list[int] = dataclasses.field(default_factory=lambda: [256, 256])
    fcnet_activation: str = "tanh"
    fcnet_kernel_initializer: Initializer = None
    fcnet_kernel_initializer_kwargs: dict[str, Any] | None = None
    fcnet_bias_initializer: Initializer = None
    fcnet_bias_initializer_kwargs: dict[str, Any] | None = None
    fcnet_use_layernorm: bool = False

    conv_filters: ConvFilterSpec | None = None
    conv_activation: str = "relu"
    conv_kernel_initializer: Initializer = None
    conv_kernel_initializer_kwargs: dict[str, Any] | None = None
    conv_bias_initializer: Initializer = None
    conv_bias_initializer_kwargs: dict[str, Any] | None = None

    head_fcnet_hiddens: list[int] = dataclasses.field(default_factory=list)
    head_fcnet_activation: str = "relu"
    head_fcnet_kernel_initializer: Initializer = None
    head_fcnet_kernel_initializer_kwargs: dict[str, Any] | None = None
    head_fcnet_bias_initializer: Initializer = None
    head_fcnet_bias_initializer_kwargs: dict[str, Any] | None = None
    head_fcnet_use_layernorm: bool = False

    free_log_std: bool = False
    log_std_clip_param: float = 20.0
    vf_share_layers: bool = True

    use_lstm: bool = False
    max_seq_len: int = 20
    lstm_cell_size: int = 256
    lstm_use_prev_action: bool = False
    lstm_use_prev_reward: bool = False
    lstm_kernel_initializer: Initializer = None
    lstm_kernel_initializer_kwargs: dict[str, Any] | None = None
    lstm_bias_initializer: Initializer = None
    lstm_bias_initializer_kwargs: dict[str, Any] | None = None

    fusionnet_hiddens: list[int] = dataclasses.field(default_factory=lambda: [256, 256])
    fusionnet_activation: str = "tanh"
    fusionnet_kernel_initializer: Initializer = None
    fusionnet_kernel_initializer_kwargs: dict[str, Any] | None = None
    fusionnet_bias_initializer: Initializer = None
    fusionnet_bias_initializer_kwargs: dict[str, Any] | None = None


_FIELDS = frozenset(field.name for field in dataclasses.fields(DefaultModelConfig))
_SIMILAR = 0.85  # how like a setting's name a key must be to be taken for a misspelling of it


def complete_model_config(model_config: DefaultModelConfig | Mapping[str, Any] | None) -> dict[str, Any]:
    """All settings of default networks: the given ones over the defaults. Other keys are kept, for custom networks.

    Raises:
        ValueError: a key looks like a misspelled setting.
    """
    if model_config is None:
        given: dict[str, Any] = {}
    elif isinstance(model_config, DefaultModelConfig):
        given = dataclasses.asdict(model_config)
    else:
        given = dict(model_config)
    for key in given.keys() - _FIELDS:
        if close := difflib.get_close_matches(str(key), _FIELDS, n=1, cutoff=_SIMILAR):
            raise ValueError(f"model_config has no setting {key!r}. Did you mean {close[0]!r}?")
    return {**dataclasses.asdict(DefaultModelConfig()), **given}
