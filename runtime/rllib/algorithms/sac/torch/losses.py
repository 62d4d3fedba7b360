"""The losses of soft actor-critic on tensors (Haarnoja et al. 2018; Christodoulou 2019 for discrete actions)."""

from __future__ import annotations

import torch

from runtime.rllib.algorithms.dqn.torch.losses import weighted_mean


def soft_value(q_values: torch.Tensor, logp: torch.Tensor, alpha: torch.Tensor | float) -> torch.Tensor:
    """[B] values of observations: the sampled actions' Q values [B] less alpha times their log-probabilities."""
    return q_values - alpha * logp


def soft_value_discrete(
    q_values: torch.Tensor,
    probabilities: torch.Tensor,
    log_probabilities: torch.Tensor,
    alpha: torch.Tensor | float,
) -> torch.Tensor:
    """[B] values of observations: the expectation of `soft_value` over all actions, from tensors [B, A]."""
    return (probabilities * (q_values - alpha * log_probabilities)).sum(-1)


def policy_loss(
    q_values: torch.Tensor, logp: torch.Tensor, alpha: torch.Tensor | float, mask: torch.Tensor | None = None
) -> torch.Tensor:
    """The mean of `-soft_value`; gradients flow through the actions into Q values and log-probabilities."""
    return weighted_mean(alpha * logp - q_values, mask=mask)


def alpha_loss(
    log_alpha: torch.Tensor, entropy: torch.Tensor, target_entropy: float, mask: torch.Tensor | None = None
) -> torch.Tensor:
    """The loss whose gradient raises alpha while the entropy is below its target.

    Args:
        log_alpha: [1], the parameter.
        entropy: [...], the policy's entropies or their samples, the negative log-probabilities; no gradient flows here.
        target_entropy: nats.
        mask: bool [...], True where entropies count; None: all.
    """
    return log_alpha.squeeze() * (weighted_mean(entropy.detach(), mask=mask) - target_entropy)
