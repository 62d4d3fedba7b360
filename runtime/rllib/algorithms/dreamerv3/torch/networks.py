"""The networks of DreamerV3: world model, actor and critic."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ....core.models.base import ENCODER_OUT
from ....core.models.configs import CNNEncoderConfig, CNNTransposeHeadConfig
from ....core.models.torch.primitives import TorchMLP
from ....utils.torch_utils import symlog
from ..utils import ModelSize
from .losses import NUM_BUCKETS, mixed_log_probs, sample_straight_through

Tensor = Any  # torch.Tensor; torch's annotations are not followed


def mlp(
    size: ModelSize, input_dim: int, output_dim: int | None = None, *, zero_outputs: bool = False
) -> TorchMLP:
    """Fully connected layers of the size's units with layer normalisation and SiLU, and linear outputs.

    With `zero_outputs` the outputs are 0 at first, so that rewards and values are.
    """
    net = TorchMLP(
        input_dim=input_dim,
        hidden_layer_dims=[size.dense_hidden_units] * size.num_dense_layers,
        hidden_layer_activation="silu",
        hidden_layer_use_layernorm=True,
        output_dim=output_dim,
    )
    if zero_outputs:
        nn.init.zeros_(net.mlp[-1].weight)
        nn.init.zeros_(net.mlp[-1].bias)
    return net


class WorldModel(nn.Module):
    """A recurrent state-space model: a deterministic state h, and a stochastic one z of several categoricals.

    h follows from the state and action before; z is drawn from the posterior, given h and the observation, or in dreams
    from the prior, given h alone. "Features" are both, joined.
    """

    def __init__(self, observation_space: Any, action_dim: int, size: ModelSize, *, use_symlog: bool) -> None:
        """For observations of a Box of one dimension, or images with sides that are multiples of 16.

        Raises:
            ValueError: the observation space is neither.
        """
        super().__init__()
        shape = observation_space.shape
        self.size, self.use_symlog, self.is_image = size, use_symlog, len(shape or ()) == 3
        self.z_dim = size.num_z_categoricals * size.num_z_classes
        self.feature_dim = size.gru_units + self.z_dim
        if self.is_image:
            height, width, channels = shape
            if height % 16 or width % 16:
                raise ValueError(f"DreamerV3 takes images with sides that are multiples of 16, not {shape}")
            depth = size.cnn_multiplier
            self.encoder = CNNEncoderConfig(
                input_dims=shape,
                cnn_filter_specifiers=[[depth * 2**i, 4, 2] for i in range(4)],
                cnn_activation="silu",
                cnn_use_layernorm=True,
            ).build("torch")
            encoded = self.encoder.config.output_dims[0]
            self.decoder = CNNTransposeHeadConfig(
                input_dims=(self.feature_dim,),
                initial_image_dims=(height // 16, width // 16, depth * 8),
                cnn_transpose_filter_specifiers=[
                    *([depth * 2**i, 4, 2] for i in (2, 1, 0)),
                    [channels, 4, 2],
                ],
                cnn_transpose_activation="silu",
                cnn_transpose_use_layernorm=True,
            ).build("torch")
        elif shape is not None and len(shape) == 1:
            self.encoder = mlp(size, shape[0])
            encoded = self.encoder.output_dim
            self.decoder = mlp(size, self.feature_dim, shape[0])
        else:
            raise ValueError(
                f"DreamerV3 takes Box observations of one dimension, or images, not {observation_space}. Use a "
                "FlattenObservations connector"
            )
        self.sequence_input = mlp(size, self.z_dim + action_dim)
        self.sequence_model = nn.GRUCell(self.sequence_input.output_dim, size.gru_units)
        self.posterior_net = mlp(size, size.gru_units + encoded, self.z_dim)
        self.prior_net = mlp(size, size.gru_units, self.z_dim)
        self.reward_net = mlp(size, self.feature_dim, NUM_BUCKETS, zero_outputs=True)
        self.continue_net = mlp(size, self.feature_dim, 1)

    def targets(self, obs: Tensor) -> Tensor:
        """What the decoder has to give for observations: symlog of vectors; images from -0.5 to 0.5."""
        if self.is_image:
            return (obs.float() / 255.0 if obs.dtype == torch.uint8 else obs) - 0.5
        return symlog(obs.float()) if self.use_symlog else obs.float()

    def encode(self, obs: Tensor) -> Tensor:
        """[..., *shape] -> [..., encoded]."""
        if self.is_image:
            return self.encoder({"obs": self.targets(obs)})[ENCODER_OUT]
        return self.encoder(self.targets(obs))

    def decode(self, features: Tensor) -> Tensor:
        """[..., features] -> [..., *shape]."""
        if not self.is_image:
            return self.decoder(features)
        images = self.decoder(features.reshape(-1, self.feature_dim))
        return images.reshape(*features.shape[:-1], *images.shape[1:])

    def next_h(self, h: Tensor, z: Tensor, action: Tensor) -> Tensor:
        """The deterministic state after an action: [N, units], [N, z], [N, actions] -> [N, units]."""
        return self.sequence_model(self.sequence_input(torch.cat((z, action), -1)), h)

    def prior(self, h: Tensor) -> Tensor:
        """Log-probabilities [..., categoricals, classes]."""
        return mixed_log_probs(self.prior_net(h).reshape(*h.shape[:-1], *self._z_shape))

    def posterior(self, h: Tensor, encoded: Tensor) -> Tensor:
        """Log-probabilities [..., categoricals, classes]."""
        logits = self.posterior_net(torch.cat((h, encoded), -1))
        return mixed_log_probs(logits.reshape(*h.shape[:-1], *self._z_shape))

    @property
    def _z_shape(self) -> tuple[int, int]:
        return self.size.num_z_categoricals, self.size.num_z_classes

    def observe(self, obs: Tensor, prev_actions: Tensor, is_first: Tensor) -> dict[str, Tensor]:
        """States along sequences.

        Args:
            obs: [B, T, *shape].
            prev_actions: [B, T, actions], each before the observation.
            is_first: bool [B, T]; there the state before and the action are zeros.

        Returns:
            "h" [B, T, units], "z" [B, T, z], "posterior" and "prior" [B, T, categoricals, classes].
        """
        encoded = self.encode(obs)
        keep = (~is_first).to(encoded.dtype).unsqueeze(-1)
        h = encoded.new_zeros(len(obs), self.size.gru_units)
        z = encoded.new_zeros(len(obs), self.z_dim)
        hs, zs, posteriors = [], [], []
        for t in range(obs.shape[1]):
            h = self.next_h(h * keep[:, t], z * keep[:, t], prev_actions[:, t] * keep[:, t])
            posterior = self.posterior(h, encoded[:, t])
            z = sample_straight_through(posterior).flatten(-2)
            hs.append(h)
            zs.append(z)
            posteriors.append(posterior)
        h_all = torch.stack(hs, 1)
        return {
            "h": h_all,
            "z": torch.stack(zs, 1),
            "posterior": torch.stack(posteriors, 1),
            "prior": self.prior(h_all),
        }
