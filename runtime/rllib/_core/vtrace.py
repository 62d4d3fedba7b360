"""V-trace targets (Espeholt et al., 2018, https://arxiv.org/abs/1802.01561) for segments of any lengths."""

from __future__ import annotations

from typing import Any

from .recurrence import reverse_recurrence


def vtrace(
    log_rhos: Any,
    rewards: Any,
    values: Any,
    next_values: Any,
    discounts: Any,
    is_last: Any,
    *,
    longest: int,
    clip_rho: float | None = 1.0,
    clip_c: float = 1.0,
    clip_pg_rho: float | None = 1.0,
    lambda_: float = 1.0,
) -> tuple[Any, Any]:
    """Value targets vs and advantages of the policy gradient. NumPy arrays or torch tensors, without gradients.

    Args:
        log_rhos: float [rows], log of the target policy's probability of the action over the behavior policy's.
        rewards: float [rows].
        values: float [rows], of the learner's value function.
        next_values: float [rows], values of the observations that follow.
        discounts: float [rows], gamma; 0 where the episode terminated.
        is_last: bool [rows], True at the last row of each segment.
        longest: rows of the longest segment.
        clip_rho: bound of the importance weights in the temporal differences; None: not clipped.
        clip_c: bound of the weights that carry corrections back in time.
        clip_pg_rho: bound of the weights of the advantages; None: not clipped.
        lambda_: mixes the targets with the values, as in TD(lambda).
    """
    rhos = _exp(log_rhos)
    deltas = _clipped(rhos, clip_rho) * (rewards + discounts * next_values - values)
    # The correction is not carried over the end of a segment.
    coefficients = discounts * _clipped(rhos, clip_c) * lambda_ * (1 - is_last * 1)
    corrections = reverse_recurrence(deltas, coefficients, longest)
    targets = values + corrections
    # The target of the row that follows: its value and its correction; at the end of a segment its value alone.
    next_targets = next_values * 1
    next_targets[:-1] += corrections[1:] * (1 - is_last[:-1] * 1)
    advantages = _clipped(rhos, clip_pg_rho) * (rewards + discounts * next_targets - values)
    return targets, advantages


def _exp(array: Any) -> Any:
    if hasattr(array, "exp"):
        return array.exp()
    import numpy as np

    return np.exp(array)


def _clipped(rhos: Any, bound: float | None) -> Any:
    return rhos if bound is None else rhos.clip(max=bound)
