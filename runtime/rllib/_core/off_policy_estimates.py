"""What a policy would earn, estimated from the episodes of another (Precup, Sutton, Singh 2000)."""

from __future__ import annotations

import numpy as np

from .rollout import Segments


def importance_sampling(log_ratios: np.ndarray, rewards: np.ndarray, segments: Segments) -> np.ndarray:
    """float64 [S]: each segment's return times the product of its ratios.

    Args:
        log_ratios: [rows], log-probability of the row's action under the policy, less that under the recorded one.
        rewards: [rows].
        segments: which rows belong together; whole episodes, or estimates are of their fragments.
    """
    starts = segments.starts
    returns = np.add.reduceat(rewards.astype(np.float64), starts)
    return np.exp(np.add.reduceat(log_ratios.astype(np.float64), starts)) * returns


def per_decision(log_ratios: np.ndarray, rewards: np.ndarray, segments: Segments) -> np.ndarray:
    """float64 [S]: each reward times the product of the ratios up to its row. Less variance, the same expectation."""
    starts = segments.starts
    sums = np.cumsum(log_ratios.astype(np.float64))
    before = sums[starts] - log_ratios[starts]
    products = np.exp(sums - np.repeat(before, segments.lengths))
    return np.add.reduceat(products * rewards, starts)
