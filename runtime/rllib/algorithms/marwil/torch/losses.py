"""The losses of MARWIL on tensors (Wang et al. 2018)."""

from __future__ import annotations

import torch


def advantage_weights(advantages: torch.Tensor, beta: float, mean_square: torch.Tensor) -> torch.Tensor:
    """exp(beta * advantage / root of the mean square), without gradients; of the shape of `advantages`."""
    return torch.exp(beta * advantages.detach() / (1e-8 + mean_square.sqrt()))


def moved_mean_square(
    mean_square: torch.Tensor, advantages_squared_mean: torch.Tensor, rate: float
) -> torch.Tensor:
    """The moving average after one batch; a scalar without gradients."""
    return mean_square + rate * (advantages_squared_mean.detach() - mean_square)
