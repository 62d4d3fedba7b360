"""Samplers: how values are drawn from a domain."""

from __future__ import annotations

import math
from typing import Any

from runtime.tune.space.base import BaseSampler, Domain, Sampler
from runtime.tune.space.randomness import RandomSource


class Uniform(BaseSampler):
    """All values are equally likely."""

    def draw(self, domain: Domain, config: Any, source: RandomSource) -> Any:
        return domain.draw_uniform(source)


class LogUniform(BaseSampler):
    """The logarithms of the values are distributed uniformly."""

    def draw(self, domain: Domain, config: Any, source: RandomSource) -> Any:
        return domain.draw_loguniform(source)


class Normal(BaseSampler):
    """A normal distribution.

    Raises:
        ValueError: The standard deviation is not positive.
    """

    def __init__(self, mean: float = 0.0, sd: float = 1.0) -> None:
        if not sd > 0:
            raise ValueError(f"The standard deviation `sd` must be greater than 0, got {sd}")
        self.mean = mean
        self.sd = sd

    def draw(self, domain: Domain, config: Any, source: RandomSource) -> Any:
        return domain.draw_normal(source, self.mean, self.sd)


class Grid(BaseSampler):
    """Marks a categorical domain whose values are all tried."""

    is_grid = True

    def draw(self, domain: Domain, config: Any, source: RandomSource) -> Any:
        raise RuntimeError("A grid is not sampled: every one of its values is tried")


class Call(BaseSampler):
    """Calls the function of a `Function` domain."""

    def draw(self, domain: Domain, config: Any, source: RandomSource) -> Any:
        return domain.draw_call(config)


class Quantized(BaseSampler):
    """Rounds what another sampler draws to multiples of `q`.

    Integers are drawn from the multiples within the bounds, so that all are equally likely. The upper bound is
    inclusive, but for integers with `q=1`.
    """

    def __init__(self, sampler: Sampler, q: float) -> None:
        if not isinstance(sampler, Sampler):
            raise TypeError(f"Quantized needs a sampler to quantize, got {sampler!r}")
        if not q > 0:
            raise ValueError(f"The quantization factor `q` must be greater than 0, got {q}")
        self.sampler = sampler
        self.q = q

    def get_sampler(self) -> Sampler:
        return self.sampler

    def draw(self, domain: Domain, config: Any, source: RandomSource) -> Any:
        inner, scale = domain.quantized_domain(self.q)
        return scale(self.sampler.sample(inner, config, 1, source))


def multiple_at_least(bound: float, q: float) -> float:
    """Returns the smallest k with k * q >= bound, with a tolerance for rounding; an infinite bound stays."""
    return _multiple(bound, q, math.ceil)


def multiple_at_most(bound: float, q: float) -> float:
    """Returns the largest k with k * q <= bound, with a tolerance for rounding; an infinite bound stays."""
    return _multiple(bound, q, math.floor)


def _multiple(bound: float, q: float, inwards: Any) -> float:
    if math.isinf(bound):
        return bound
    scaled = bound / q
    nearest = round(scaled)
    return nearest if math.isclose(scaled, nearest) else int(inwards(scaled))
