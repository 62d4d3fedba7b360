from __future__ import annotations

import numpy as np
import pytest

from runtime.rllib._core.gae import advantages_and_targets, standardized
from runtime.rllib._core.rollout import Segments
from tests.runtime.rllib._core.making import segments


def plain_loop(
    rewards: np.ndarray,
    values: np.ndarray,
    finals: np.ndarray,
    chosen: Segments,
    gamma: float,
    lambda_: float,
) -> np.ndarray:
    """The definition, one segment and one row after another."""
    result, start = np.zeros_like(values), 0
    for segment, length in enumerate(chosen.lengths):
        following = 0.0 if chosen.terminated[segment] else finals[segment]
        advantage = 0.0
        for row in reversed(range(start, start + length)):
            delta = rewards[row] + gamma * following - values[row]
            advantage = delta + gamma * lambda_ * advantage
            result[row] = advantage
            following = values[row]
        start += length
    return result


@pytest.mark.parametrize("seed", range(20))
def test_advantages_are_those_of_the_plain_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    chosen = segments(rng, int(rng.integers(1, 12)), 60)
    rows = int(chosen.lengths.sum())
    rewards, values = rng.normal(size=(2, rows))
    finals = rng.normal(size=len(chosen))
    gamma, lambda_ = float(rng.uniform(0.5, 1)), float(rng.uniform(0, 1))
    advantages, targets = advantages_and_targets(
        rewards, values, finals, chosen, gamma=gamma, lambda_=lambda_
    )
    np.testing.assert_allclose(
        advantages, plain_loop(rewards, values, finals, chosen, gamma, lambda_), rtol=1e-9, atol=1e-11
    )
    np.testing.assert_allclose(targets, advantages + values)


def test_lambda_one_gives_discounted_returns_and_lambda_zero_one_step_errors() -> None:
    chosen = Segments(np.array([3]), np.array([False]), np.array([True]), ["e"], np.array([0]))
    rewards, values, finals = np.array([1.0, 2.0, 3.0]), np.array([5.0, 6.0, 7.0]), np.array([8.0])
    advantages, targets = advantages_and_targets(rewards, values, finals, chosen, gamma=0.5, lambda_=1.0)
    np.testing.assert_allclose(
        targets, [1 + 0.5 * 2 + 0.25 * 3 + 0.125 * 8, 2 + 0.5 * 3 + 0.25 * 8, 3 + 0.5 * 8]
    )
    advantages, _ = advantages_and_targets(rewards, values, finals, chosen, gamma=0.5, lambda_=0.0)
    np.testing.assert_allclose(advantages, [1 + 3 - 5, 2 + 3.5 - 6, 3 + 4 - 7])


def test_the_final_value_of_an_episode_that_terminated_does_not_count() -> None:
    chosen = Segments(
        np.array([1, 1]), np.array([True, False]), np.array([False, False]), ["a", "b"], np.array([0, 0])
    )
    advantages, _ = advantages_and_targets(
        np.array([1.0, 1.0]), np.zeros(2), np.array([100.0, 100.0]), chosen, gamma=0.9, lambda_=0.9
    )
    np.testing.assert_allclose(advantages, [1, 91])


def test_standardized_advantages_have_mean_0_and_deviation_1_unless_they_agree() -> None:
    result = standardized(np.random.default_rng(0).normal(3, 7, 1000))
    assert abs(result.mean()) < 1e-9
    assert result.std() == pytest.approx(1)
    assert np.abs(standardized(np.array([5.0, 5.0 + 1e-7]))).max() < 1e-2
