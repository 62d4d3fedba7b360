"""The Gaussian process with which PB2 chooses hyperparameters. Needs numpy."""

from __future__ import annotations

import math
import random
from typing import Any

LENGTH_SCALES = tuple(10.0**power for power in (-1.5, -1.0, -0.5, 0.0, 0.5, 1.0))
FORGETTING = (1e-4, 0.05, 0.2, 0.5)
NOISES = (1e-3, 1e-1, 1.0)
"""The settings that a fit chooses from, for data scaled to the unit cube and to unit variance."""
CANDIDATES = 200
ROUNDS = 3


def choose(known: Any, gains: Any, now: Any, pending: Any, rng: random.Random) -> Any:
    """The point with the highest upper confidence bound of the gain.

    A time-varying Gaussian process is fitted to the gains: its kernel is a squared exponential times
    `(1 - forgetting) ** (time between / 2)` (Bogunovic et al. 2016). Points that are being tried at the moment lower
    the variance around them, so that a batch spreads out (Desautels et al. 2014).

    Args:
        known: n by (2 + d): time, score before, and hyperparameters in [0, 1] of each observation.
        gains: n: score gained per time.
        now: time and score that the chosen hyperparameters will start from.
        pending: m by d: hyperparameters chosen since the last observation.
        rng: source of the candidates.

    Returns:
        d hyperparameters in [0, 1].
    """
    import numpy as np

    draws = np.random.default_rng(rng.getrandbits(64))
    d = known.shape[1] - 2
    candidates = draws.random((CANDIDATES, d))
    if len(gains) < 2:
        return candidates[0]
    low, span = known[:, :2].min(axis=0), np.ptp(known[:, :2], axis=0) + 1e-8
    points = np.hstack([(known[:, :2] - low) / span, known[:, 2:]])
    start = (np.asarray(now) - low) / span
    scaled = np.clip((gains - gains.mean()) / (gains.std() + 1e-8), -2, 2)
    length_scale, forgetting, noise = _fit(points, scaled)

    def rows(hyperparameters: Any) -> Any:
        return np.hstack([np.tile(start, (len(hyperparameters), 1)), hyperparameters])

    everything = np.vstack([points, rows(pending)]) if len(pending) else points
    weights = np.linalg.solve(_covariance(points, length_scale, forgetting, noise), scaled)
    inverse = np.linalg.inv(_covariance(everything, length_scale, forgetting, noise))
    kappa = math.sqrt(0.2 + max(0.0, math.log(0.4 * len(points))))

    def bounds(hyperparameters: Any) -> Any:
        at = rows(hyperparameters)
        # By einsum and not by matrix products: the threads of BLAS would compete with the trials for the cores.
        mean = np.einsum("ij,j->i", _kernel(at, points, length_scale, forgetting), weights)
        near = _kernel(at, everything, length_scale, forgetting)
        explained = np.einsum("ij,ij->i", np.einsum("ij,jk->ik", near, inverse), near)
        return mean + kappa * np.sqrt(np.maximum(1 - explained, 0))

    best = candidates[np.argmax(bounds(candidates))]
    for round_number in range(1, ROUNDS + 1):
        near = np.clip(best + draws.normal(0, 0.3**round_number, (CANDIDATES // 4, d)), 0, 1)
        near[0] = best
        best = near[np.argmax(bounds(near))]
    return best


def _kernel(left: Any, right: Any, length_scale: float, forgetting: float) -> Any:
    import numpy as np

    apart = np.abs(left[:, None, 0] - right[None, :, 0])
    squared = ((left[:, None, 1:] - right[None, :, 1:]) ** 2).sum(axis=2)
    return np.exp(-squared / length_scale) * (1 - forgetting) ** (apart / 2)


def _covariance(points: Any, length_scale: float, forgetting: float, noise: float) -> Any:
    import numpy as np

    return _kernel(points, points, length_scale, forgetting) + noise * np.eye(len(points))


def _fit(points: Any, values: Any) -> tuple[float, float, float]:
    """The settings with the highest marginal likelihood."""
    import numpy as np

    best, settings = -math.inf, (1.0, 0.1, 0.1)
    for length_scale in LENGTH_SCALES:
        for forgetting in FORGETTING:
            for noise in NOISES:
                covariance = _covariance(points, length_scale, forgetting, noise)
                misfit = float((values * np.linalg.solve(covariance, values)).sum())
                likelihood = -0.5 * (misfit + float(np.linalg.slogdet(covariance)[1]))
                if likelihood > best:
                    best, settings = likelihood, (length_scale, forgetting, noise)
    return settings
