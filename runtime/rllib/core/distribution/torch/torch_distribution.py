"""Categorical, Gaussian and deterministic distributions, and products of them."""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ...._core import trees
from ..distribution import Distribution

Tensor = Any  # torch.Tensor; torch's annotations are not followed

LOG_STD_MIN, LOG_STD_MAX = (
    -5.0,
    2.0,
)  # of a squashed Gaussian; beyond them tanh saturates or the scale vanishes
_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
_UNSQUASH_MARGIN = 1e-6  # atanh of a float32 closer to 1 than this is infinite


def _size(space: Any) -> int:
    return int(np.prod(space.shape, dtype=np.int64))


class TorchDistribution(Distribution, abc.ABC):
    """A distribution over tensors."""

    def sample_and_logp(self, *, sample_shape: tuple[int, ...] | None = None) -> tuple[Tensor, Tensor]:
        """Values and their log-probabilities, without gradients through the values."""
        value = self.sample(sample_shape=sample_shape)
        return value, self.logp(value)

    def rsample_and_logp(self, *, sample_shape: tuple[int, ...] | None = None) -> tuple[Tensor, Tensor]:
        """Values and their log-probabilities, with gradients through the values."""
        value = self.rsample(sample_shape=sample_shape)
        return value, self.logp(value)


class TorchCategorical(TorchDistribution):
    """One of n actions. Values are int64."""

    def __init__(self, logits: Tensor = None, probs: Tensor = None) -> None:
        """From log-probabilities [*batch, n], which need not be normalised, or from probabilities.

        Raises:
            ValueError: both or neither are given.
        """
        if (logits is None) == (probs is None):
            raise ValueError("TorchCategorical takes either logits or probs")
        self._log_probs: Tensor = None
        if logits is None:
            self.probs = probs / probs.sum(-1, keepdim=True)
            self.logits = self.probs.clamp_min(torch.finfo(probs.dtype).tiny).log()
            self._log_probs = self.logits
        else:
            self.logits = logits
            self.probs = None

    def _normalised(self) -> Tensor:
        if self._log_probs is None:
            self._log_probs = torch.log_softmax(self.logits, -1)
        return self._log_probs

    def _probabilities(self) -> Tensor:
        if self.probs is None:
            self.probs = torch.softmax(self.logits, -1)
        return self.probs

    def sample(self, *, sample_shape: tuple[int, ...] | None = None, **_: Any) -> Tensor:
        with torch.no_grad():
            probs = self._probabilities()
            shape = probs.shape[:-1]
            count = math.prod(sample_shape) if sample_shape else 1
            drawn = torch.multinomial(probs.reshape(-1, probs.shape[-1]), count, replacement=True)
            return drawn.T.reshape((*(sample_shape or ()), *shape))

    def rsample(self, *, sample_shape: tuple[int, ...] | None = None, **_: Any) -> Tensor:
        """One-hot vectors [*sample_shape, *batch, n] with the straight-through gradient of the probabilities."""
        probs = self._probabilities()
        drawn = torch.nn.functional.one_hot(self.sample(sample_shape=sample_shape), probs.shape[-1]).to(
            probs.dtype
        )
        return drawn + probs - probs.detach()

    def logp(self, value: Tensor, **_: Any) -> Tensor:
        log_probs = self._normalised()
        index = value.long().unsqueeze(-1)
        if index.dim() > log_probs.dim():  # values of several samples
            log_probs = log_probs.expand(*index.shape[:-1], log_probs.shape[-1])
        return log_probs.gather(-1, index).squeeze(-1)

    def entropy(self, **_: Any) -> Tensor:
        log_probs = self._normalised()
        # An action that is masked out has a log-probability of -inf, or the lowest float; it adds nothing.
        finite = log_probs.clamp_min(torch.finfo(log_probs.dtype).min)
        return -(finite * finite.exp()).sum(-1)

    def kl(self, other: Distribution, **_: Any) -> Tensor:
        assert isinstance(other, TorchCategorical)
        own, others = self._normalised(), other._normalised()
        probs = own.exp()
        return torch.where(probs > 0, probs * (own - others), torch.zeros_like(probs)).sum(-1)

    @staticmethod
    def required_input_dim(space: Any, **_: Any) -> int:
        return int(space.n)

    @classmethod
    def from_logits(cls, logits: Tensor, **_: Any) -> TorchCategorical:
        return cls(logits=logits)

    def to_deterministic(self) -> TorchDeterministic:
        return TorchDeterministic(self.logits.argmax(-1))


class TorchDiagGaussian(TorchDistribution):
    """Independent Gaussians over the last dimension."""

    def __init__(self, loc: Tensor, scale: Tensor) -> None:
        """From means and standard deviations [*batch, n]."""
        self.loc = torch.as_tensor(loc)
        self.scale = torch.as_tensor(scale)

    def sample(self, *, sample_shape: tuple[int, ...] | None = None, **_: Any) -> Tensor:
        with torch.no_grad():
            return self.rsample(sample_shape=sample_shape)

    def rsample(self, *, sample_shape: tuple[int, ...] | None = None, **_: Any) -> Tensor:
        loc = self.loc
        noise = torch.randn((*(sample_shape or ()), *loc.shape), dtype=loc.dtype, device=loc.device)
        return torch.addcmul(loc, noise, self.scale)

    def logp(self, value: Tensor, **_: Any) -> Tensor:
        scaled = (value - self.loc) / self.scale
        return (-0.5 * scaled * scaled - self.scale.log() - _LOG_SQRT_2PI).sum(-1)

    def entropy(self, **_: Any) -> Tensor:
        return (self.scale.log() + (0.5 + _LOG_SQRT_2PI)).sum(-1)

    def kl(self, other: Distribution, **_: Any) -> Tensor:
        assert isinstance(other, TorchDiagGaussian)
        ratio = (self.scale / other.scale).square()
        shift = ((self.loc - other.loc) / other.scale).square()
        return 0.5 * (ratio + shift - 1 - ratio.log()).sum(-1)

    @staticmethod
    def required_input_dim(space: Any, **_: Any) -> int:
        return 2 * _size(space)

    @classmethod
    def from_logits(cls, logits: Tensor, **_: Any) -> TorchDiagGaussian:
        """The first half of the outputs are means, the second half logarithms of standard deviations."""
        loc, log_std = logits.chunk(2, -1)
        return cls(loc, log_std.exp())

    def to_deterministic(self) -> TorchDeterministic:
        return TorchDeterministic(self.loc)


class TorchSquashedGaussian(TorchDistribution):
    """Independent Gaussians, squashed by tanh to the open interval (low, high). The density is that of the result."""

    def __init__(self, loc: Tensor, scale: Tensor = 1.0, low: float = -1.0, high: float = 1.0) -> None:
        """From means and standard deviations [*batch, n] before squashing.

        Raises:
            ValueError: `low` is not less than `high`.
        """
        is_number = type(low) is float and type(high) is float
        if not (low < high if is_number else np.all(np.asarray(low) < np.asarray(high))):
            raise ValueError(f"low={low!r} must be less than high={high!r}")
        self.loc = torch.as_tensor(loc)
        self.scale = torch.as_tensor(scale).expand_as(self.loc)
        self.low, self.high = low, high
        self._gaussian = TorchDiagGaussian(self.loc, self.scale)

    def _squash(self, unsquashed: Tensor) -> Tensor:
        return (unsquashed.tanh() + 1) * (0.5 * (self.high - self.low)) + self.low

    def _unsquash(self, value: Tensor) -> Tensor:
        unit = (value - self.low) * (2 / (self.high - self.low)) - 1
        return unit.clamp(-1 + _UNSQUASH_MARGIN, 1 - _UNSQUASH_MARGIN).atanh()

    def _squashed_logp(self, unsquashed: Tensor) -> Tensor:
        # log(1 - tanh(u)^2), in a form that does not cancel for large u
        log_slope = 2 * (math.log(2) - unsquashed - torch.nn.functional.softplus(-2 * unsquashed))
        scale = math.log(0.5 * (self.high - self.low))
        return self._gaussian.logp(unsquashed) - (log_slope + scale).sum(-1)

    def sample(self, *, sample_shape: tuple[int, ...] | None = None, **_: Any) -> Tensor:
        return self._squash(self._gaussian.sample(sample_shape=sample_shape))

    def rsample(self, *, sample_shape: tuple[int, ...] | None = None, **_: Any) -> Tensor:
        return self._squash(self._gaussian.rsample(sample_shape=sample_shape))

    def sample_and_logp(self, *, sample_shape: tuple[int, ...] | None = None) -> tuple[Tensor, Tensor]:
        unsquashed = self._gaussian.sample(sample_shape=sample_shape)
        return self._squash(unsquashed), self._squashed_logp(unsquashed)

    def rsample_and_logp(self, *, sample_shape: tuple[int, ...] | None = None) -> tuple[Tensor, Tensor]:
        unsquashed = self._gaussian.rsample(sample_shape=sample_shape)
        return self._squash(unsquashed), self._squashed_logp(unsquashed)

    def logp(self, value: Tensor, **_: Any) -> Tensor:
        return self._squashed_logp(self._unsquash(value))

    def entropy(self, **_: Any) -> Tensor:
        raise ValueError(
            "A squashed Gaussian has no closed-form entropy. Estimate it as the mean of -logp of samples"
        )

    def kl(self, other: Distribution, **_: Any) -> Tensor:
        raise ValueError("The divergence of squashed Gaussians is not defined here. Estimate it from samples")

    @staticmethod
    def required_input_dim(space: Any, **_: Any) -> int:
        return 2 * _size(space)

    @classmethod
    def from_logits(
        cls, logits: Tensor, low: float = -1.0, high: float = 1.0, **_: Any
    ) -> TorchSquashedGaussian:
        """The first half of the outputs are means, the second half logarithms of standard deviations, clipped."""
        loc, log_std = logits.chunk(2, -1)
        return cls(loc, log_std.clamp(LOG_STD_MIN, LOG_STD_MAX).exp(), low=low, high=high)

    def to_deterministic(self) -> TorchDeterministic:
        return TorchDeterministic(self._squash(self.loc))


class TorchDeterministic(TorchDistribution):
    """Always the same values."""

    def __init__(self, loc: Tensor) -> None:
        """From the values [*batch, ...]."""
        self.loc = loc

    def sample(self, *, sample_shape: tuple[int, ...] | None = None, **_: Any) -> Tensor:
        return self.loc.expand(*sample_shape, *self.loc.shape) if sample_shape else self.loc

    def rsample(self, *, sample_shape: tuple[int, ...] | None = None, **_: Any) -> Tensor:
        raise ValueError("A deterministic distribution cannot be re-parametrised. Use sample()")

    def logp(self, value: Tensor, **_: Any) -> Tensor:
        return torch.zeros(value.shape[: max(value.dim() - 1, 1)], device=value.device)

    def entropy(self, **_: Any) -> Tensor:
        raise RuntimeError("A deterministic distribution has no entropy")

    def kl(self, other: Distribution, **_: Any) -> Tensor:
        raise RuntimeError("A deterministic distribution has no divergence from another")

    @staticmethod
    def required_input_dim(space: Any, **_: Any) -> int:
        return _size(space)

    @classmethod
    def from_logits(cls, logits: Tensor, **_: Any) -> TorchDeterministic:
        return cls(logits)

    def to_deterministic(self) -> TorchDeterministic:
        return self


class TorchMultiCategorical(TorchDistribution):
    """Several independent categoricals. Values are int64 [*batch, number of categoricals]."""

    def __init__(self, categoricals: Sequence[TorchCategorical]) -> None:
        self._cats = list(categoricals)

    def sample(self, *, sample_shape: tuple[int, ...] | None = None, **_: Any) -> Tensor:
        return torch.stack([part.sample(sample_shape=sample_shape) for part in self._cats], -1)

    def rsample(self, *, sample_shape: tuple[int, ...] | None = None, **_: Any) -> Tensor:
        """One-hot vectors, joined along the last dimension, with straight-through gradients."""
        return torch.cat([part.rsample(sample_shape=sample_shape) for part in self._cats], -1)

    def logp(self, value: Tensor, **_: Any) -> Tensor:
        parts = [part.logp(v) for part, v in zip(self._cats, value.unbind(-1), strict=True)]
        return torch.stack(parts, -1).sum(-1)

    def entropy(self, **_: Any) -> Tensor:
        return torch.stack([part.entropy() for part in self._cats], -1).sum(-1)

    def kl(self, other: Distribution, **_: Any) -> Tensor:
        assert isinstance(other, TorchMultiCategorical)
        parts = [part.kl(others) for part, others in zip(self._cats, other._cats, strict=True)]
        return torch.stack(parts, -1).sum(-1)

    @staticmethod
    def required_input_dim(space: Any, **_: Any) -> int:
        return int(np.sum(space.nvec))

    @classmethod
    def from_logits(  # type: ignore[override]
        cls, logits: Tensor, input_lens: Sequence[int], temperatures: Sequence[float] | None = None, **_: Any
    ) -> TorchMultiCategorical:
        """Divides the outputs among the categoricals.

        Args:
            logits: [*batch, sum of input_lens].
            input_lens: number of actions of each categorical.
            temperatures: divisors of each categorical's logits; None means 1.

        Raises:
            ValueError: `temperatures` and `input_lens` have different lengths.
        """
        parts = logits.split(list(input_lens), -1)
        if temperatures is not None:
            if len(temperatures) != len(parts):
                raise ValueError(f"There are {len(temperatures)} temperatures for {len(parts)} categoricals")
            parts = [part / temperature for part, temperature in zip(parts, temperatures, strict=True)]
        return cls([TorchCategorical(logits=part) for part in parts])

    def to_deterministic(self) -> TorchDeterministic:
        return TorchDeterministic(torch.stack([part.logits.argmax(-1) for part in self._cats], -1))


class TorchMultiDistribution(TorchDistribution):
    """A tree of independent distributions, for nested action spaces. Values are trees of tensors."""

    def __init__(self, child_distribution_struct: Any) -> None:
        """From a tree (dicts, tuples, lists) of distributions."""
        self._tree = child_distribution_struct
        self._leaves = list(trees.leaves(child_distribution_struct))

    def sample(self, *, sample_shape: tuple[int, ...] | None = None, **_: Any) -> Any:
        return trees.tree_map(lambda part: part.sample(sample_shape=sample_shape), self._tree)

    def rsample(self, *, sample_shape: tuple[int, ...] | None = None, **_: Any) -> Any:
        return trees.tree_map(lambda part: part.rsample(sample_shape=sample_shape), self._tree)

    def logp(self, value: Any, **_: Any) -> Tensor:
        parts = trees.leaves(trees.tree_map(lambda part, v: part.logp(v), self._tree, value))
        return torch.stack(list(parts)).sum(0)

    def entropy(self, **_: Any) -> Tensor:
        return torch.stack([part.entropy() for part in self._leaves]).sum(0)

    def kl(self, other: Distribution, **_: Any) -> Tensor:
        assert isinstance(other, TorchMultiDistribution)
        parts = [part.kl(others) for part, others in zip(self._leaves, other._leaves, strict=True)]
        return torch.stack(parts).sum(0)

    @staticmethod
    def required_input_dim(space: Any, input_lens: Any = (), **_: Any) -> int:
        return int(sum(trees.leaves(input_lens)))

    @classmethod
    def from_logits(  # type: ignore[override]
        cls, logits: Tensor, child_distribution_cls_struct: Any, input_lens: Any, **_: Any
    ) -> TorchMultiDistribution:
        """Divides the outputs among the tree's distributions.

        Args:
            logits: [*batch, sum of input_lens].
            child_distribution_cls_struct: tree of distribution classes.
            input_lens: number of outputs for each, as a tree of the same structure or in the order of its leaves.
        """
        parts = iter(logits.split([int(n) for n in trees.leaves(input_lens)], -1))
        return cls(
            trees.tree_map(lambda child: child.from_logits(next(parts)), child_distribution_cls_struct)
        )

    def to_deterministic(self) -> TorchMultiDistribution:
        return TorchMultiDistribution(trees.tree_map(lambda part: part.to_deterministic(), self._tree))
