"""The losses of implicit Q-learning on tensors (Kostrikov, Nair, Levine 2021)."""

from __future__ import annotations

import torch

MAX_WEIGHT = 100.0  # of an action in the policy's loss, as in the paper's code


def expectile_loss(difference: torch.Tensor, expectile: float) -> torch.Tensor:
    """Mean of |expectile - 1(difference < 0)| * difference^2, where difference [B] is Q minus V.

    With an expectile above 0.5, V approaches the upper part of the Q values of the data's actions.
    """
    weight = torch.where(difference > 0, expectile, 1.0 - expectile)
    return (weight * difference.square()).mean()


def policy_loss(logp: torch.Tensor, advantages: torch.Tensor, beta: float) -> torch.Tensor:
    """Mean negative log-probability [B] of the data's actions, weighted by exp(beta * advantage) without gradients."""
    weights = torch.exp(beta * advantages.detach()).clamp(max=MAX_WEIGHT)
    return -(weights * logp).mean()


def critic_target(
    rewards: torch.Tensor, terminated: torch.Tensor, next_values: torch.Tensor, gamma: float
) -> torch.Tensor:
    """[B] targets of Q values: rewards + gamma * V(next observation), which is 0 after a terminal step."""
    return rewards + gamma * (1.0 - terminated.to(rewards.dtype)) * next_values.detach()
