"""Sizes of DreamerV3's networks: those of the paper's table B, and smaller ones for tests."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class ModelSize:
    """Sizes of the networks.

    gru_units: of the deterministic state.
    num_z_categoricals, num_z_classes: of the stochastic state.
    dense_hidden_units, num_dense_layers: of all fully connected nets.
    cnn_multiplier: channels of the first convolution.
    """

    gru_units: int
    num_z_categoricals: int
    num_z_classes: int
    dense_hidden_units: int
    num_dense_layers: int
    cnn_multiplier: int


MODEL_SIZES = {
    "nano": ModelSize(16, 4, 4, 16, 1, 2),
    "micro": ModelSize(32, 8, 8, 32, 1, 4),
    "mini": ModelSize(64, 16, 16, 64, 1, 8),
    "XXS": ModelSize(128, 32, 32, 128, 1, 16),
    "XS": ModelSize(256, 32, 32, 256, 1, 24),
    "S": ModelSize(512, 32, 32, 512, 2, 32),
    "M": ModelSize(1024, 32, 32, 640, 3, 48),
    "L": ModelSize(2048, 32, 32, 768, 4, 64),
    "XL": ModelSize(4096, 32, 32, 1024, 5, 96),
}


def model_size(name: str) -> ModelSize:
    """The sizes by name.

    Raises:
        ValueError: the name is unknown.
    """
    if name not in MODEL_SIZES:
        raise ValueError(f"model_size must be one of {', '.join(MODEL_SIZES)}, not {name!r}")
    return MODEL_SIZES[name]
