"""Importance sampling against a plain loop, and its expectation."""

import numpy as np

from runtime.rllib._core.off_policy_estimates import importance_sampling, per_decision
from runtime.rllib._core.rollout import Segments


def segments(lengths):
    count = len(lengths)
    return Segments(
        np.array(lengths),
        np.ones(count, bool),
        np.zeros(count, bool),
        [""] * count,
        np.zeros(count, np.int64),
    )


def test_both_agree_with_loops():
    rng = np.random.default_rng(0)
    lengths = [3, 1, 4]
    log_ratios, rewards = rng.normal(size=8), rng.normal(size=8)
    whole, stepwise, row = [], [], 0
    for length in lengths:
        ratio, total, weighted = 1.0, 0.0, 0.0
        for _ in range(length):
            ratio *= np.exp(log_ratios[row])
            total += rewards[row]
            weighted += ratio * rewards[row]
            row += 1
        whole.append(ratio * total)
        stepwise.append(weighted)
    np.testing.assert_allclose(importance_sampling(log_ratios, rewards, segments(lengths)), whole)
    np.testing.assert_allclose(per_decision(log_ratios, rewards, segments(lengths)), stepwise)


def test_they_estimate_the_other_policy():
    rng = np.random.default_rng(1)
    recorded, wanted = 0.5, 0.8  # probabilities of action 1, which earns 1
    actions = rng.random((20000, 2)) < recorded
    ratios = np.where(actions, wanted / recorded, (1 - wanted) / (1 - recorded))
    arguments = np.log(ratios).ravel(), actions.ravel().astype(float), segments([2] * 20000)
    for estimate in (importance_sampling, per_decision):
        assert abs(estimate(*arguments).mean() - 2 * wanted) < 0.05
