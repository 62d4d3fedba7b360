"""The losses of DQN on tensors: Bellman targets, temporal-difference loss, the projection of C51."""

from __future__ import annotations

import torch
from torch.nn import functional


def bellman_target(
    rewards: torch.Tensor,
    terminateds: torch.Tensor,
    next_values: torch.Tensor,
    gamma: float,
    n_step: torch.Tensor | None = None,
) -> torch.Tensor:
    """`rewards + gamma ** n_step * next_values`, without the second term where the episode terminated.

    Args:
        rewards: [...], summed up over the steps, discounted.
        terminateds: bool [...].
        next_values: [...], values of the observations after the steps.
        gamma: discount of one step.
        n_step: int [...], the number of steps; None: one.
    """
    discount = gamma if n_step is None else gamma**n_step
    return rewards + discount * next_values.masked_fill(terminateds, 0.0)


def take_actions(values: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
    """The values [...] of the actions int [...] among values [..., A]."""
    return values.gather(-1, actions.long().unsqueeze(-1)).squeeze(-1)


def weighted_mean(
    values: torch.Tensor, weights: torch.Tensor | None = None, mask: torch.Tensor | None = None
) -> torch.Tensor:
    """Mean of `weights * values`, over the entries where the mask is True.

    Args:
        values: [...].
        weights: [...]; None: all 1.
        mask: bool [...]; None: all True. Without any True the mean is 0.
    """
    if weights is not None:
        values = values * weights
    if mask is None:
        return values.mean()
    return values.masked_fill(~mask, 0.0).sum() / mask.sum().clamp(min=1)


def elementwise_loss(predictions: torch.Tensor, targets: torch.Tensor, name: str) -> torch.Tensor:
    """The Huber loss with delta 1 ("huber") or the squared error ("mse") of each entry."""
    if name == "huber":
        return functional.huber_loss(predictions, targets, reduction="none")
    return functional.mse_loss(predictions, targets, reduction="none")


def project_distribution(
    probabilities: torch.Tensor,
    rewards: torch.Tensor,
    terminateds: torch.Tensor,
    gamma: float,
    n_step: torch.Tensor | None,
    v_min: float,
    v_max: float,
) -> torch.Tensor:
    """The distribution of `rewards + gamma ** n_step * Z` on the support of Z (Bellemare et al. 2017, algorithm 1).

    Args:
        probabilities: [B, N] of the atoms of Z, which are spread evenly from `v_min` to `v_max`.
        rewards, terminateds, gamma, n_step: as in `bellman_target`, of shape [B].

    Returns:
        [B, N] probabilities.
    """
    count = probabilities.shape[-1]
    atoms = torch.linspace(v_min, v_max, count, device=probabilities.device)
    discount = torch.full_like(rewards, gamma) if n_step is None else gamma ** n_step.to(rewards.dtype)
    shifted = rewards.unsqueeze(-1) + discount.masked_fill(terminateds, 0.0).unsqueeze(-1) * atoms
    position = (shifted.clamp(v_min, v_max) - v_min) * ((count - 1) / (v_max - v_min))
    # Rounding may put the last atom above its index.
    lower = position.floor().clamp(0, count - 1)
    to_upper = (position - lower).clamp(0.0, 1.0)
    lower_index = lower.long()
    upper_index = (lower_index + 1).clamp(max=count - 1)
    projected = torch.zeros_like(probabilities)
    projected.scatter_add_(-1, lower_index, probabilities * (1 - to_upper))
    projected.scatter_add_(-1, upper_index, probabilities * to_upper)
    return projected


def cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """[B] cross-entropies of the target probabilities [B, N] and the softmax of the logits [B, N]."""
    return -(targets * logits.log_softmax(-1)).sum(-1)
