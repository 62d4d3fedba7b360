"""Parts of losses that several algorithms share."""

from __future__ import annotations

import torch


def mean(values: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """The mean of the values where the mask is true; of all values without a mask."""
    if mask is None:
        return values.mean()
    # Padding may hold anything, NaN too, so it is left out rather than multiplied by 0.
    return torch.where(mask, values, 0).sum() / mask.sum().clamp(min=1)


def explained_variance(
    targets: torch.Tensor, predictions: torch.Tensor, mask: torch.Tensor | None = None
) -> torch.Tensor:
    """1 less the share of the targets' variance that the predictions leave: 1 is perfect. At least -1."""
    if mask is not None:
        targets, predictions = targets[mask], predictions[mask]
    left = (targets - predictions).var(unbiased=False)
    return (1 - left / targets.var(unbiased=False).clamp(min=1e-8)).clamp(min=-1)
