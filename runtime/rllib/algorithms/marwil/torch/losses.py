"""The losses of MARWIL on tensors (Wang et al. 2018)."""

from __future__ import annotations

import torch


def advantage_weights(
    advantages: torch.Tensor, beta: float, moving_mean_square: torch.Tensor, mean_square: torch.Tensor
) -> torch.Tensor:
    """exp(beta * advantage / scale), without gradients; of the shape of `advantages`.

    The scale is the root of the larger of both mean squares. While values are untrained, advantages are about as large
    as returns: scaled by a moving average that lags behind, their exponentials would be so large that Adam would make
    tiny steps for thousands of updates.

    Args:
        advantages: of any shape.
        beta: how strongly they weigh.
        moving_mean_square: a scalar, the moving average.
        mean_square: a scalar, of this batch.
    """
    scale = torch.maximum(moving_mean_square, mean_square.detach()).sqrt()
    return torch.exp(beta * advantages.detach() / (1e-8 + scale))


def moved_mean_square(
    mean_square: torch.Tensor, advantages_squared_mean: torch.Tensor, rate: float
) -> torch.Tensor:
    """The moving average after one batch; a scalar without gradients."""
    return mean_square + rate * (advantages_squared_mean.detach() - mean_square)
