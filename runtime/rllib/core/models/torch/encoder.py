"""From batches to features. A `config` is the class of `core.models.configs` whose `build` makes the network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from ...columns import Columns
from ..base import ACTOR, CRITIC, ENCODER_OUT, ActorCriticEncoder, Encoder
from .base import TorchModel
from .heads import mlp_of
from .primitives import TorchCNN, as_float, initialise


class TorchMLPEncoder(TorchModel, Encoder):
    """Fully connected layers over flat observations."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.net = mlp_of(config, config.output_layer_dim)

    def _forward(self, inputs: dict[str, Any], **_: Any) -> dict[str, Any]:
        return {ENCODER_OUT: self.net.mlp(as_float(inputs[Columns.OBS]))}


class TorchCNNEncoder(TorchModel, Encoder):
    """Convolutions over images, with any number of batch dimensions."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        cnn = TorchCNN(
            input_dims=config.input_dims,
            cnn_filter_specifiers=config.cnn_filter_specifiers,
            cnn_use_bias=config.cnn_use_bias,
            cnn_use_layernorm=config.cnn_use_layernorm,
            cnn_activation=config.cnn_activation,
            cnn_kernel_initializer=config.cnn_kernel_initializer,
            cnn_kernel_initializer_config=config.cnn_kernel_initializer_config,
            cnn_bias_initializer=config.cnn_bias_initializer,
            cnn_bias_initializer_config=config.cnn_bias_initializer_config,
        )
        self.net = nn.Sequential(cnn, nn.Flatten()) if config.flatten_at_end else nn.Sequential(cnn)

    def _forward(self, inputs: dict[str, Any], **_: Any) -> dict[str, Any]:
        images = inputs[Columns.OBS]
        batch = images.shape[:-3]
        if len(batch) == 1:
            return {ENCODER_OUT: self.net(images)}
        features = self.net(images.reshape(-1, *images.shape[-3:]))
        return {ENCODER_OUT: features.reshape(*batch, *features.shape[1:])}


class _RecurrentEncoder(TorchModel, Encoder):
    """An encoder of single steps, then a recurrent net.

    States are [batch, layers, hidden] outside of the net, so that the first dimension is that of the batch everywhere.
    """

    _state_keys: Sequence[str]

    def __init__(self, config: Any, layer: Any) -> None:
        super().__init__(config)
        self.tokenizer = None if config.tokenizer_config is None else config.tokenizer_config.build("torch")
        dims = config.input_dims if config.tokenizer_config is None else config.tokenizer_config.output_dims
        if len(dims) != 1:
            raise ValueError(f"A recurrent net takes inputs of one dimension, not of shape {tuple(dims)}")
        net = layer(
            dims[0],
            config.hidden_dim,
            config.num_layers,
            batch_first=config.batch_major,
            bias=config.use_bias,
        )
        for name, parameter in net.named_parameters():
            if name.startswith("weight"):
                initialise(
                    parameter, config.hidden_weights_initializer, config.hidden_weights_initializer_config
                )
            else:
                initialise(parameter, config.hidden_bias_initializer, config.hidden_bias_initializer_config)
        self._add_net(net)

    def _add_net(self, net: Any) -> None:
        raise NotImplementedError

    def get_initial_state(self) -> dict[str, Any]:
        return {key: torch.zeros(self.config.num_layers, self.config.hidden_dim) for key in self._state_keys}

    def _tokens(self, inputs: dict[str, Any]) -> Any:
        if self.tokenizer is None:
            return as_float(inputs[Columns.OBS])
        return self.tokenizer(inputs)[ENCODER_OUT]

    def _state(self, inputs: dict[str, Any]) -> list[Any]:
        if inputs.get(Columns.STATE_IN) is None:
            raise ValueError(
                "The batch has no 'state_in', which a recurrent module needs. Start an episode with "
                "module.get_initial_state(), with a batch dimension added, and pass each 'state_out' to the next call"
            )
        return [inputs[Columns.STATE_IN][key].transpose(0, 1).contiguous() for key in self._state_keys]


class TorchLSTMEncoder(_RecurrentEncoder):
    """A long short-term memory."""

    _state_keys = ("h", "c")

    def __init__(self, config: Any) -> None:
        super().__init__(config, nn.LSTM)

    def _add_net(self, net: Any) -> None:
        self.lstm = net

    def _forward(self, inputs: dict[str, Any], **_: Any) -> dict[str, Any]:
        h, c = self._state(inputs)
        features, (h, c) = self.lstm(self._tokens(inputs), (h, c))
        return {ENCODER_OUT: features, Columns.STATE_OUT: {"h": h.transpose(0, 1), "c": c.transpose(0, 1)}}


class TorchGRUEncoder(_RecurrentEncoder):
    """A gated recurrent unit."""

    _state_keys = ("h",)

    def __init__(self, config: Any) -> None:
        super().__init__(config, nn.GRU)

    def _add_net(self, net: Any) -> None:
        self.gru = net

    def _forward(self, inputs: dict[str, Any], **_: Any) -> dict[str, Any]:
        features, h = self.gru(self._tokens(inputs), self._state(inputs)[0])
        return {ENCODER_OUT: features, Columns.STATE_OUT: {"h": h.transpose(0, 1)}}


class TorchActorCriticEncoder(TorchModel, ActorCriticEncoder):
    """One encoder for both (`encoder`), or one for each (`actor_encoder`, `critic_encoder`)."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        base = config.base_encoder_config
        if config.shared:
            self.encoder = base.build("torch")
        else:
            self.actor_encoder = base.build("torch")
            if not config.inference_only or base.is_recurrent:
                self.critic_encoder = base.build("torch")

    def _forward(self, inputs: dict[str, Any], *, inference_only: bool = False, **_: Any) -> dict[str, Any]:
        """The features. With `inference_only` only the actor's are computed if the encoders are two."""
        if self.config.shared:
            features = self.encoder(inputs)[ENCODER_OUT]
            return {ENCODER_OUT: {ACTOR: features, CRITIC: features}}
        features = self.actor_encoder(inputs)[ENCODER_OUT]
        if inference_only or self.config.inference_only:
            return {ENCODER_OUT: {ACTOR: features}}
        return {ENCODER_OUT: {ACTOR: features, CRITIC: self.critic_encoder(inputs)[ENCODER_OUT]}}


class TorchStatefulActorCriticEncoder(TorchActorCriticEncoder):
    """The same with recurrent encoders: with two, states are {"actor": state, "critic": state}.

    The critic's state must go on in every step, so that the state before a fragment's first step is known when the
    learner computes values: both nets run in inference, too.
    """

    def get_initial_state(self) -> dict[str, Any]:
        if self.config.shared:
            return self.encoder.get_initial_state()
        return {
            ACTOR: self.actor_encoder.get_initial_state(),
            CRITIC: self.critic_encoder.get_initial_state(),
        }

    def _forward(self, inputs: dict[str, Any], *, inference_only: bool = False, **_: Any) -> dict[str, Any]:
        if self.config.shared:
            result = self.encoder(inputs)
            features = result[ENCODER_OUT]
            return {
                ENCODER_OUT: {ACTOR: features, CRITIC: features},
                Columns.STATE_OUT: result[Columns.STATE_OUT],
            }
        states = inputs.get(Columns.STATE_IN) or {}
        nets = {ACTOR: self.actor_encoder, CRITIC: self.critic_encoder}
        results = {name: net({**inputs, Columns.STATE_IN: states.get(name)}) for name, net in nets.items()}
        return {
            ENCODER_OUT: {name: result[ENCODER_OUT] for name, result in results.items()},
            Columns.STATE_OUT: {name: result[Columns.STATE_OUT] for name, result in results.items()},
        }
