"""Generalized advantage estimation (Schulman et al., 2016, https://arxiv.org/abs/1506.02438)."""

from __future__ import annotations

import numpy as np

from .recurrence import reverse_recurrence
from .rollout import Segments

SMALLEST_DEVIATION = 1e-4
"""Advantages that all but agree are not scaled up to noise."""


def next_values(values: np.ndarray, final_values: np.ndarray, segments: Segments) -> np.ndarray:
    """float [rows], the value after each row: 0 where the episode terminated, `final_values` [S] at other ends."""
    result = np.empty_like(values)
    result[:-1] = values[1:]
    result[segments.last_rows] = np.where(segments.terminated, 0, final_values)
    return result


def advantages_and_targets(
    rewards: np.ndarray,
    values: np.ndarray,
    final_values: np.ndarray,
    segments: Segments,
    *,
    gamma: float,
    lambda_: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Advantages and value targets, not standardized.

    Args:
        rewards: float [rows].
        values: float [rows], of the observations before the rewards.
        final_values: float [S], of the observation after each segment; not used where the episode terminated.
        segments: which rows belong together, and how they ended.
        gamma: the discount factor.
        lambda_: 0: one-step advantages; 1: discounted returns less the values.
    """
    deltas = rewards + gamma * next_values(values, final_values, segments) - values
    coefficients = np.full_like(deltas, gamma * lambda_)
    coefficients[segments.last_rows] = 0
    advantages = reverse_recurrence(deltas, coefficients, int(segments.lengths.max(initial=0)))
    return advantages, advantages + values


def standardized(advantages: np.ndarray) -> np.ndarray:
    """The advantages with mean 0 and deviation 1, or less where they hardly differ."""
    return (advantages - advantages.mean()) / max(float(advantages.std()), SMALLEST_DEVIATION)
