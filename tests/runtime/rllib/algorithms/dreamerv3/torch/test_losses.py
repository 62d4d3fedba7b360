"""DreamerV3's formulas against plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from runtime.rllib.algorithms.dreamerv3.torch.losses import (
    NUM_BUCKETS,
    ReturnScale,
    balanced_kl,
    lambda_returns,
    mixed_log_probs,
    sample_straight_through,
    two_hot_loss,
    two_hot_mean,
)
from runtime.rllib.utils.torch_utils import symlog, two_hot


def test_lambda_returns_are_those_of_a_plain_recursion() -> None:
    rng = np.random.default_rng(1)
    rewards, values, continues = rng.normal(size=(3, 7, 4))
    continues = 1 / (1 + np.exp(-continues))
    gamma, lambda_ = 0.9, 0.7

    def plain(t: int, n: int) -> float:
        following = values[-1, n] if t == 6 else plain(t + 1, n)
        return rewards[t, n] + gamma * continues[t, n] * ((1 - lambda_) * values[t, n] + lambda_ * following)

    got = lambda_returns(*(torch.as_tensor(x) for x in (rewards, continues, values)), gamma, lambda_)
    np.testing.assert_allclose(got, [[plain(t, n) for n in range(4)] for t in range(7)], rtol=1e-9)


def test_lambda_zero_looks_one_step_ahead_and_lambda_one_adds_all_rewards() -> None:
    rewards, continues = torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([[1.0], [1.0], [0.0]])
    values = torch.tensor([[10.0], [20.0], [30.0]])
    assert lambda_returns(rewards, continues, values, 0.5, 0.0).ravel().tolist() == [6.0, 12.0, 4.0]
    assert lambda_returns(rewards, continues, values, 0.5, 1.0).ravel().tolist() == [3.0, 4.0, 4.0]


@settings(max_examples=50, deadline=None)
@given(st.floats(-1e6, 1e6, width=32))
def test_the_mean_of_a_two_hot_distribution_is_its_value(value: float) -> None:
    x = torch.tensor([value], dtype=torch.float64)
    target = two_hot(symlog(x), NUM_BUCKETS, -20.0, 20.0)
    mean = two_hot_mean(target.clamp_min(1e-30).log())
    assert mean.item() == pytest.approx(value, rel=1e-3, abs=1e-3)


def test_the_two_hot_loss_is_a_cross_entropy_and_least_at_the_target() -> None:
    values = torch.tensor([0.0, -3.5, 250.0], dtype=torch.float64)
    logits = torch.randn(3, NUM_BUCKETS, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    targets = two_hot(symlog(values), NUM_BUCKETS, -20.0, 20.0)
    expected = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    torch.testing.assert_close(two_hot_loss(logits, values), expected)
    assert (two_hot_loss(targets.clamp_min(1e-30).log(), values) < two_hot_loss(logits, values)).all()


def test_outputs_that_are_zero_mean_zero() -> None:
    assert two_hot_mean(torch.zeros(2, NUM_BUCKETS)).abs().max() < 1e-5


def test_categoricals_are_mixed_with_one_percent_of_the_uniform_one() -> None:
    probs = mixed_log_probs(torch.tensor([[0.0, 100.0], [1.0, 1.0]])).exp()
    torch.testing.assert_close(probs, torch.tensor([[0.005, 0.995], [0.5, 0.5]]))


def test_samples_are_one_hot_with_the_gradient_of_the_probabilities() -> None:
    torch.manual_seed(2)
    logits = torch.tensor([[[0.0, 1.0, 2.0]] * 2] * 500, requires_grad=True)
    log_probs = mixed_log_probs(logits)
    sample = sample_straight_through(log_probs)
    torch.testing.assert_close(sample.sum(-1), torch.ones(500, 2))
    torch.testing.assert_close(sample.mean((0, 1)), log_probs.exp()[0, 0], atol=0.06, rtol=0)
    (got,) = torch.autograd.grad(sample[..., 0].sum(), logits, retain_graph=True)
    (expected,) = torch.autograd.grad(log_probs.exp()[..., 0].sum(), logits)
    torch.testing.assert_close(got, expected)


def test_balanced_divergences_train_one_side_each_beyond_the_free_nats() -> None:
    generator = torch.Generator().manual_seed(3)
    p, q = (torch.randn(5, 3, 4, generator=generator, requires_grad=True) for _ in range(2))
    posterior, prior = (torch.log_softmax(3 * x, -1) for x in (p, q))
    plain = torch.tensor(
        [
            sum(
                math.exp(a) * (a - b)
                for c in range(3)
                for a, b in zip(posterior[i, c].tolist(), prior[i, c].tolist(), strict=True)
            )
            for i in range(5)
        ]
    )
    dynamics, representation = balanced_kl(posterior, prior, free_nats=1.0)
    torch.testing.assert_close(dynamics, plain.clamp_min(1.0), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(representation, dynamics)
    assert torch.autograd.grad(dynamics.sum(), p, retain_graph=True, allow_unused=True)[0] is None
    assert torch.autograd.grad(dynamics.sum(), q, retain_graph=True)[0].any()
    assert torch.autograd.grad(representation.sum(), p, retain_graph=True)[0].any()
    assert torch.autograd.grad(representation.sum(), q, retain_graph=True, allow_unused=True)[0] is None

    dynamics, _ = balanced_kl(posterior, posterior.detach(), free_nats=1.0)
    assert dynamics.tolist() == [1.0] * 5
    dynamics, _ = balanced_kl(posterior, prior, free_nats=1e6)
    assert not torch.autograd.grad(dynamics.sum(), q)[0].any()


def test_the_scale_of_returns_is_a_running_range_of_at_least_one() -> None:
    scale = ReturnScale(decay=0.9)
    assert scale.update(torch.zeros(10)) == 1.0
    returns = torch.linspace(0, 100, 101)
    assert scale.update(returns) == pytest.approx(0.1 * 90, rel=1e-4)
    for _ in range(200):
        last = scale.update(returns)
    assert last == pytest.approx(90, rel=1e-3)
