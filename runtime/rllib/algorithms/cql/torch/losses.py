"""The conservative penalty of CQL on tensors (Kumar, Zhou, Tucker, Levine 2020)."""

from __future__ import annotations

import math

import torch


def conservative_penalty(
    q_data: torch.Tensor, q_samples: torch.Tensor, logp_samples: torch.Tensor, temperature: float
) -> torch.Tensor:
    """How much larger Q values of sampled actions are than those of the data's actions; a scalar.

    The log-sum-exp over the samples is corrected for the density from which each was drawn.

    Args:
        q_data: [B], of the data's actions.
        q_samples: [B, N], of N sampled actions per row.
        logp_samples: [B, N], the log densities of the samples; no gradient flows here.
        temperature: of the log-sum-exp.
    """
    corrected = (q_samples - logp_samples.detach()) / temperature
    return torch.logsumexp(corrected, dim=1).mean() * temperature - q_data.mean()


def uniform_logp(dimensions: int) -> float:
    """The log density of uniform actions in [-1, 1] in each dimension."""
    return -dimensions * math.log(2.0)
