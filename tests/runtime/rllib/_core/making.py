"""Rollouts with random content for tests."""

from __future__ import annotations

import numpy as np

from runtime.rllib._core.rollout import Rollout, Segments


def segments(rng: np.random.Generator, count: int, longest: int) -> Segments:
    """Segments of random lengths and ends."""
    kind = rng.integers(0, 3, count)  # terminated, truncated, goes on
    return Segments(
        rng.integers(1, longest + 1, count),
        kind == 0,
        kind == 1,
        [f"e{i}" for i in range(count)],
        rng.integers(0, 5, count),
    )


def rollout(
    rng: np.random.Generator, count: int, longest: int, *, obs_size: int = 4, actions: int = 2
) -> Rollout:
    """Rows of a categorical policy. Each observation's first number is its row, the final ones' are negative."""
    chosen = segments(rng, count, longest)
    rows = int(chosen.lengths.sum())
    obs = rng.normal(size=(rows, obs_size)).astype(np.float32)
    obs[:, 0] = np.arange(rows)
    final = rng.normal(size=(count, obs_size)).astype(np.float32)
    final[:, 0] = -1 - np.arange(count)
    logits = rng.normal(size=(rows, actions)).astype(np.float32)
    taken = rng.integers(0, actions, rows)
    logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return Rollout(
        {
            "obs": obs,
            "actions": taken,
            "rewards": rng.normal(size=rows).astype(np.float32),
            "action_logp": logp[np.arange(rows), taken].astype(np.float32),
            "action_dist_inputs": logits,
        },
        chosen,
        final,
    )
