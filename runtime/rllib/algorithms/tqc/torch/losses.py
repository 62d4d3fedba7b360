"""The losses of truncated quantile critics on tensors (Kuznetsov et al. 2020)."""

from __future__ import annotations

import torch


def truncated_quantiles(quantiles: torch.Tensor, drop_per_critic: int) -> torch.Tensor:
    """The smallest of all critics' quantiles.

    Args:
        quantiles: [B, C, N] of C critics.
        drop_per_critic: D; of the C * N quantiles together, the C * D largest are left out.

    Returns:
        [B, C * (N - D)], ascending.
    """
    critics, count = quantiles.shape[1:]
    return quantiles.flatten(1).sort(-1).values[:, : critics * (count - drop_per_critic)]


def quantile_huber_loss(quantiles: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """[B] losses of quantile regression with the Huber loss (delta 1).

    For each pair of a critic's quantile at level tau = (i + 0.5) / N and a target, |tau - (target < quantile)| times
    the Huber loss of their difference; the mean over targets and quantiles, the sum over critics.

    Args:
        quantiles: [B, C, N].
        targets: [B, M]; no gradient flows here.
    """
    difference = targets.detach()[:, None, None, :] - quantiles[..., None]  # [B, C, N, M]
    size = difference.abs()
    huber = torch.where(size > 1, size - 0.5, 0.5 * difference * difference)
    count = quantiles.shape[-1]
    levels = (torch.arange(count, device=quantiles.device, dtype=quantiles.dtype) + 0.5) / count
    pinball = (levels[:, None] - (difference < 0).to(quantiles.dtype)).abs() * huber
    return pinball.mean(-1).mean(-1).sum(-1)
