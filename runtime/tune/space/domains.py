"""Domains: the sets of values that parameters come from."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable
from copy import copy
from typing import Any, Self

from runtime.tune.space.base import Domain, Sampler
from runtime.tune.space.randomness import RandomSource
from runtime.tune.space.samplers import (
    Call,
    Grid,
    LogUniform,
    Normal,
    Quantized,
    Uniform,
    multiple_at_least,
    multiple_at_most,
)


class _Range(Domain):
    """A range of numbers."""

    lower: float
    upper: float

    def _check_order(self) -> None:
        if not self.lower <= self.upper:
            raise ValueError(
                f"`lower` must not be greater than `upper`, got lower={self.lower}, upper={self.upper}"
            )

    def _check_finite(self) -> None:
        if not -math.inf < self.lower:
            raise ValueError(f"Uniform sampling needs a finite `lower` bound, got {self.lower}")
        if not self.upper < math.inf:
            raise ValueError(f"Uniform sampling needs a finite `upper` bound, got {self.upper}")

    def _check_positive(self) -> None:
        for name, bound in (("lower", self.lower), ("upper", self.upper)):
            if not 0 < bound < math.inf:
                raise ValueError(
                    f"Log-uniform sampling needs a finite `{name}` bound greater than 0, got {bound}. "
                    "Pass the values themselves, not their logarithms."
                )

    def _with(self, sampler: Sampler) -> Self:
        new = copy(self)
        new.set_sampler(sampler)
        return new

    def uniform(self) -> Self:
        """Returns the domain with uniform sampling; both bounds must be finite."""
        self._check_finite()
        return self._with(Uniform())

    def loguniform(self) -> Self:
        """Returns the domain with log-uniform sampling; both bounds must be greater than 0."""
        self._check_positive()
        return self._with(LogUniform())

    def quantized(self, q: float) -> Self:
        """Returns the domain with its samples rounded to multiples of `q`."""
        new = copy(self)
        new.set_sampler(Quantized(new.get_sampler(), q), allow_override=True)
        return new

    def _between(self, lower: float, upper: float) -> Self:
        new = copy(self)
        new.lower, new.upper = lower, upper
        return new

    def is_valid(self, value: Any) -> bool:
        return bool(self.lower <= value <= self.upper)

    @property
    def domain_str(self) -> str:
        return f"({self.lower}, {self.upper})"


class Float(_Range):
    """Floats between two bounds, None for none.

    Raises:
        ValueError: The lower bound is greater than the upper one.
    """

    default_sampler_cls = Uniform

    def __init__(self, lower: float | None, upper: float | None) -> None:
        self.lower = -math.inf if lower is None else lower
        self.upper = math.inf if upper is None else upper
        self._check_order()

    def cast(self, value: Any) -> float:
        return float(value)

    def normal(self, mean: float = 0.0, sd: float = 1.0) -> Float:
        """Returns the domain with samples of a normal distribution; it must have no bounds."""
        return self._with(Normal(mean, sd))

    def quantized(self, q: float) -> Float:
        new = super().quantized(q)
        for name, bound in (("lower", self.lower), ("upper", self.upper)):
            if math.isfinite(bound) and not math.isclose(bound / q, round(bound / q)):
                raise ValueError(
                    f"The `{name}` bound {bound} is not a multiple of the quantization factor q={q}"
                )
        return new

    def draw_uniform(self, source: RandomSource) -> float:
        self._check_finite()
        return source.uniform(self.lower, self.upper)

    def draw_loguniform(self, source: RandomSource) -> float:
        self._check_positive()
        drawn = math.exp(source.uniform(math.log(self.lower), math.log(self.upper)))
        return min(max(drawn, self.lower), self.upper)

    def draw_normal(self, source: RandomSource, mean: float, sd: float) -> float:
        if math.isfinite(self.lower) or math.isfinite(self.upper):
            raise ValueError(f"A normal distribution has no bounds, got {self.domain_str}")
        return source.gauss(mean, sd)

    def quantized_domain(self, q: float) -> tuple[Domain, Callable[[Any], Any]]:
        inner = self._between(multiple_at_least(self.lower, q) * q, multiple_at_most(self.upper, q) * q)
        return inner, lambda drawn: round(drawn / q) * q


class Integer(_Range):
    """Integers from `lower` to `upper`, the latter exclusive (inclusive once quantized by more than 1).

    Raises:
        ValueError: The lower bound is greater than the upper one.
    """

    default_sampler_cls = Uniform

    def __init__(self, lower: int, upper: int) -> None:
        self.lower = lower
        self.upper = upper
        self._check_order()

    def cast(self, value: Any) -> int:
        return int(value)

    def _bounds(self) -> tuple[int, int]:
        lower, upper = math.ceil(self.lower), math.ceil(self.upper)
        if not lower < upper:
            raise ValueError(
                f"There is no integer from {self.lower} to {self.upper}: the upper bound is exclusive"
            )
        return lower, upper

    def draw_uniform(self, source: RandomSource) -> int:
        return source.randrange(*self._bounds())

    def draw_loguniform(self, source: RandomSource) -> int:
        self._check_positive()
        lower, upper = self._bounds()
        drawn = math.exp(source.uniform(math.log(lower), math.log(upper)))
        return min(max(int(drawn), lower), upper - 1)

    def quantized_domain(self, q: float) -> tuple[Domain, Callable[[Any], Any]]:
        first, last = multiple_at_least(self.lower, q), multiple_at_most(self.upper, q)
        end = last if q == 1 else last + 1
        if not first < end:
            raise ValueError(f"There is no multiple of q={q} from {self.lower} to {self.upper}")
        return self._between(first, end), lambda drawn: drawn * q


class Categorical(Domain):
    """Any of a list of values."""

    default_sampler_cls = Uniform

    def __init__(self, categories: Iterable[Any]) -> None:
        self.categories = list(categories)

    def uniform(self) -> Categorical:
        """Returns the domain with all values equally likely."""
        new = copy(self)
        new.set_sampler(Uniform())
        return new

    def grid(self) -> Categorical:
        """Returns the domain with every value tried in turn."""
        new = copy(self)
        new.set_sampler(Grid())
        return new

    def __len__(self) -> int:
        return len(self.categories)

    def __getitem__(self, item: Any) -> Any:
        return self.categories[item]

    def is_valid(self, value: Any) -> bool:
        return value in self.categories

    @property
    def domain_str(self) -> str:
        return f"{self.categories}"

    def __repr__(self) -> str:
        return f"Categorical({self.categories})"

    def draw_uniform(self, source: RandomSource) -> Any:
        if not self.categories:
            raise ValueError("There are no values to choose from")
        return self.categories[source.randrange(0, len(self.categories))]


class Function(Domain):
    """Values that a function returns.

    Args:
        func: It takes the configuration with the values so far, or nothing.

    Raises:
        ValueError: The function needs more than one argument.
    """

    default_sampler_cls = Call

    def __init__(self, func: Callable[..., Any]) -> None:
        self.func = func
        self.pass_config = _takes_config(func)

    def is_function(self) -> bool:
        return True

    def is_valid(self, value: Any) -> bool:
        return True

    @property
    def domain_str(self) -> str:
        return f"{self.func}()"

    def __repr__(self) -> str:
        return f"Function({self.func!r})"

    def draw_call(self, config: Any) -> Any:
        return self.func(config) if self.pass_config else self.func()


def _takes_config(func: Callable[..., Any]) -> bool:
    if not callable(func):
        raise ValueError(f"sample_from needs a function, got {func!r}")
    try:
        signature = inspect.signature(func)
    except ValueError:  # a few functions written in C have none; those take nothing
        return False
    try:
        signature.bind({})
    except TypeError:
        try:
            signature.bind()
        except TypeError:
            raise ValueError(
                f"The function of sample_from must take one argument or none: {func!r}"
            ) from None
        return False
    return True
