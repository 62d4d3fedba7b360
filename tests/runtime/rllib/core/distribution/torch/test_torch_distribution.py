from __future__ import annotations

import math

import gymnasium as gym
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from runtime.rllib.core.distribution.torch.torch_distribution import (
    TorchCategorical,
    TorchDeterministic,
    TorchDiagGaussian,
    TorchMultiCategorical,
    TorchMultiDistribution,
    TorchSquashedGaussian,
)

D = torch.distributions


def logits(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def close(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)


def test_a_categorical_agrees_with_torchs() -> None:
    own, other = logits(3, 5, 4), logits(3, 5, 4, seed=2)
    mine, theirs = TorchCategorical.from_logits(own), D.Categorical(logits=own)
    actions = torch.randint(0, 4, (3, 5))
    close(mine.logp(actions), theirs.log_prob(actions))
    close(mine.entropy(), theirs.entropy())
    close(mine.kl(TorchCategorical.from_logits(other)), D.kl_divergence(theirs, D.Categorical(logits=other)))
    assert mine.to_deterministic().sample().equal(own.argmax(-1))


def test_a_categorical_of_probabilities_agrees_with_that_of_logits() -> None:
    own = logits(6, 3)
    of_probs = TorchCategorical(probs=own.softmax(-1) * 7)
    actions = torch.arange(6) % 3
    close(of_probs.logp(actions), TorchCategorical.from_logits(own).logp(actions))


def test_samples_of_a_categorical_have_its_frequencies() -> None:
    torch.manual_seed(3)
    probs = torch.tensor([[0.1, 0.2, 0.7], [0.5, 0.5, 0.0]])
    drawn = TorchCategorical(probs=probs).sample(sample_shape=(20_000,))
    assert drawn.shape == (20_000, 2)
    assert drawn.dtype == torch.int64
    shares = torch.nn.functional.one_hot(drawn, 3).float().mean(0)
    torch.testing.assert_close(shares, probs, rtol=0, atol=0.02)
    assert TorchCategorical(probs=probs).logp(drawn).shape == (20_000, 2)


def test_straight_through_samples_are_one_hot_and_have_the_gradient_of_probabilities() -> None:
    own = logits(4, 3).requires_grad_()
    sample = TorchCategorical.from_logits(own).rsample()
    assert sample.sum(-1).allclose(torch.ones(4, dtype=torch.float64))
    (got,) = torch.autograd.grad(sample[:, 0].sum(), own)
    (expected,) = torch.autograd.grad(own.softmax(-1)[:, 0].sum(), own)
    close(got, expected)


def test_masked_actions_add_nothing_to_entropy_and_divergence() -> None:
    masked = torch.tensor([[0.3, -0.1, -3.4e38]], requires_grad=True)
    mine = TorchCategorical.from_logits(masked)
    close(mine.entropy(), D.Categorical(logits=masked[:, :2]).entropy())
    close(mine.kl(TorchCategorical.from_logits(masked.detach())), torch.zeros(1))
    assert torch.isfinite(torch.autograd.grad(mine.entropy().sum(), masked)[0]).all()
    infinite = TorchCategorical.from_logits(torch.tensor([[0.3, -0.1, -math.inf]]))
    close(infinite.entropy(), mine.entropy().detach())


def test_a_categorical_needs_logits_or_probabilities() -> None:
    with pytest.raises(ValueError, match="either"):
        TorchCategorical()


def test_a_gaussian_agrees_with_torchs() -> None:
    own, other = logits(5, 6), logits(5, 6, seed=2)

    def theirs(x: torch.Tensor) -> torch.distributions.Distribution:
        return D.Independent(D.Normal(x[:, :3], x[:, 3:].exp()), 1)

    mine, value = TorchDiagGaussian.from_logits(own), logits(5, 3, seed=3)
    close(mine.logp(value), theirs(own).log_prob(value))
    close(mine.entropy(), theirs(own).entropy())
    close(mine.kl(TorchDiagGaussian.from_logits(other)), D.kl_divergence(theirs(own), theirs(other)))
    assert mine.to_deterministic().sample().equal(own[:, :3])


def test_samples_of_a_gaussian_have_its_moments_and_only_rsample_has_gradients() -> None:
    torch.manual_seed(4)
    loc, scale = torch.tensor([1.0, -2.0], requires_grad=True), torch.tensor([0.5, 3.0])
    gaussian = TorchDiagGaussian(loc, scale)
    drawn = gaussian.sample(sample_shape=(20_000,))
    torch.testing.assert_close(drawn.mean(0), loc.detach(), rtol=0, atol=0.1)
    torch.testing.assert_close(drawn.std(0), scale, rtol=0.05, atol=0)
    assert not drawn.requires_grad
    assert gaussian.rsample().requires_grad


@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (-2.0, 3.0)])
def test_a_squashed_gaussian_agrees_with_torchs_transformed_one(low: float, high: float) -> None:
    own = 0.5 * logits(7, 4)
    mine = TorchSquashedGaussian.from_logits(own, low=low, high=high)
    base = D.Normal(own[:, :2], own[:, 2:].clamp(-5, 2).exp())
    scale = D.AffineTransform((high + low) / 2, (high - low) / 2)
    theirs = D.Independent(D.TransformedDistribution(base, [D.TanhTransform(), scale]), 1)
    value, logp = mine.rsample_and_logp()
    assert bool(((value > low) & (value < high)).all())
    torch.testing.assert_close(logp, theirs.log_prob(value), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(mine.logp(value), logp, rtol=1e-3, atol=1e-3)
    close(mine.to_deterministic().sample(), (own[:, :2].tanh() + 1) / 2 * (high - low) + low)


def test_a_squashed_gaussian_is_finite_at_its_bounds() -> None:
    gaussian = TorchSquashedGaussian(torch.tensor([30.0, -30.0]), torch.tensor([1.0, 1.0]))
    value, logp = gaussian.sample_and_logp()
    assert torch.isfinite(logp)
    assert torch.isfinite(gaussian.logp(value))
    with pytest.raises(ValueError, match="low"):
        TorchSquashedGaussian(torch.zeros(1), low=1.0, high=1.0)
    with pytest.raises(ValueError, match="closed-form"):
        gaussian.entropy()


def test_several_categoricals_are_independent() -> None:
    own, other = logits(4, 7), logits(4, 7, seed=2)
    mine = TorchMultiCategorical.from_logits(own, input_lens=[3, 4])
    parts = [D.Categorical(logits=part) for part in own.split([3, 4], -1)]
    others = [D.Categorical(logits=part) for part in other.split([3, 4], -1)]
    value = torch.stack([part.sample() for part in parts], -1)
    close(mine.logp(value), parts[0].log_prob(value[:, 0]) + parts[1].log_prob(value[:, 1]))
    close(mine.entropy(), parts[0].entropy() + parts[1].entropy())
    divergence = sum(D.kl_divergence(a, b) for a, b in zip(parts, others, strict=True))
    close(mine.kl(TorchMultiCategorical.from_logits(other, input_lens=[3, 4])), divergence)
    assert mine.sample(sample_shape=(2,)).shape == (2, 4, 2)
    assert mine.to_deterministic().sample().equal(torch.stack([p.logits.argmax(-1) for p in parts], -1))
    assert TorchMultiCategorical.required_input_dim(gym.spaces.MultiDiscrete([3, 4])) == 7


def test_temperatures_divide_the_logits_of_several_categoricals() -> None:
    own = logits(2, 5)
    mine = TorchMultiCategorical.from_logits(own, input_lens=[2, 3], temperatures=[0.5, 2.0])
    close(
        mine.entropy(),
        D.Categorical(logits=own[:, :2] * 2).entropy() + D.Categorical(logits=own[:, 2:] / 2).entropy(),
    )
    with pytest.raises(ValueError, match="temperatures"):
        TorchMultiCategorical.from_logits(own, input_lens=[2, 3], temperatures=[1.0])


def test_a_tree_of_distributions_adds_its_parts() -> None:
    own = logits(4, 6)
    cls = TorchMultiDistribution.get_partial_dist_cls(
        child_distribution_cls_struct={"move": TorchDiagGaussian, "turn": (TorchCategorical,)},
        input_lens={"move": 4, "turn": (2,)},
    )
    assert cls.required_input_dim(None) == 6
    mine = cls.from_logits(own)
    parts = TorchDiagGaussian.from_logits(own[:, :4]), TorchCategorical.from_logits(own[:, 4:])
    value = mine.sample()
    assert value["move"].shape == (4, 2)
    close(mine.logp(value), parts[0].logp(value["move"]) + parts[1].logp(value["turn"][0]))
    close(mine.entropy(), parts[0].entropy() + parts[1].entropy())
    close(mine.kl(cls.from_logits(own)), torch.zeros(4, dtype=torch.float64))
    assert mine.to_deterministic().sample()["turn"][0].equal(own[:, 4:].argmax(-1))


def test_bound_arguments_can_be_overridden() -> None:
    cls = TorchSquashedGaussian.get_partial_dist_cls(low=-2.0, high=2.0)
    assert cls.from_logits(torch.zeros(1, 2), high=4.0).to_deterministic().sample().item() == 1.0
    assert cls.required_input_dim(gym.spaces.Box(-1, 1, (3,))) == 6


def test_a_deterministic_distribution_repeats_its_value() -> None:
    fixed = TorchDeterministic.from_logits(torch.ones(2, 3))
    assert fixed.sample(sample_shape=(4,)).shape == (4, 2, 3)
    assert fixed.logp(torch.ones(2, 3)).equal(torch.zeros(2))
    assert TorchDeterministic.required_input_dim(gym.spaces.Box(-1, 1, (3, 2))) == 6
    with pytest.raises(RuntimeError, match="entropy"):
        fixed.entropy()


def test_numbers_of_outputs_follow_from_spaces() -> None:
    assert TorchCategorical.required_input_dim(gym.spaces.Discrete(5)) == 5
    assert TorchDiagGaussian.required_input_dim(gym.spaces.Box(-1, 1, (3, 2), np.float32)) == 12
