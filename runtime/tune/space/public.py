"""What users write in a search space: `uniform`, `choice`, `grid_search` and so on."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from runtime.tune.space.domains import Categorical, Float, Function, Integer

_UNSET = object()


def _warn_of_base(base: object) -> None:
    if base is not _UNSET:
        warnings.warn(
            "`base` has no effect on log-uniform samples: leave it out", DeprecationWarning, stacklevel=3
        )


def uniform(lower: float, upper: float) -> Float:
    """Floats from `lower` to `upper`, all equally likely.

    Raises:
        ValueError: `lower` is greater than `upper`, or a bound is missing or infinite. (All samplers check theirs.)
    """
    return Float(lower, upper).uniform()


def quniform(lower: float, upper: float, q: float) -> Float:
    """As `uniform`, rounded to multiples of `q`, both bounds inclusive; they must be multiples of `q`."""
    return Float(lower, upper).uniform().quantized(q)


def loguniform(lower: float, upper: float, base: object = _UNSET) -> Float:
    """Floats whose logarithms are distributed uniformly, for parameters of unknown order of magnitude.

    Args:
        lower: Greater than 0.
        upper: Not less than `lower`.
        base: Deprecated, without effect.
    """
    _warn_of_base(base)
    return Float(lower, upper).loguniform()


def qloguniform(lower: float, upper: float, q: float, base: object = _UNSET) -> Float:
    """As `loguniform`, rounded to multiples of `q`, both bounds inclusive; they must be multiples of `q`."""
    _warn_of_base(base)
    return Float(lower, upper).loguniform().quantized(q)


def randn(mean: float = 0.0, sd: float = 1.0) -> Float:
    """Floats of a normal distribution with this mean and standard deviation."""
    return Float(None, None).normal(mean, sd)


def qrandn(mean: float, sd: float, q: float) -> Float:
    """As `randn`, rounded to multiples of `q`."""
    return Float(None, None).normal(mean, sd).quantized(q)


def randint(lower: int, upper: int) -> Integer:
    """Integers from `lower` to `upper`, the latter exclusive, all equally likely."""
    _check_not_empty(lower, upper)
    return Integer(lower, upper).uniform()


def qrandint(lower: int, upper: int, q: int = 1) -> Integer:
    """Multiples of `q` from `lower` to `upper`, all equally likely; `upper` is inclusive unless `q` is 1."""
    return _checked(Integer(lower, upper).uniform().quantized(q), q)


def lograndint(lower: int, upper: int, base: object = _UNSET) -> Integer:
    """Integers from `lower` (greater than 0) to `upper` (exclusive), uniform in their logarithms."""
    _warn_of_base(base)
    _check_not_empty(lower, upper)
    return Integer(lower, upper).loguniform()


def qlograndint(lower: int, upper: int, q: int, base: object = _UNSET) -> Integer:
    """Multiples of `q`, uniform in their logarithms; `upper` is inclusive unless `q` is 1."""
    _warn_of_base(base)
    return _checked(Integer(lower, upper).loguniform().quantized(q), q)


def choice(categories: Sequence[Any]) -> Categorical:
    """One of these values, all equally likely.

    A value may itself have parameters, which are resolved if it is chosen:
    `choice([{"kind": "tree", "depth": randint(1, 9)}, {"kind": "linear"}])`.

    Raises:
        ValueError: There are no values.
    """
    domain = Categorical(categories)
    if not domain.categories:
        raise ValueError("choice() needs at least one value")
    return domain.uniform()


def sample_from(func: Callable[..., Any]) -> Function:
    """What a function returns, which may depend on other parameters.

    Args:
        func: Called with the configuration so far, whose values are reached as `config["x"]` or, in Ray's older form,
            as `spec.config.x`. If it looks at a parameter that is not resolved yet, it is called again later.
            A function without parameters is called without any.

    Raises:
        ValueError: The function takes more than one argument.
    """
    return Function(func)


def grid_search(values: Iterable[Any]) -> dict[str, Any]:
    """Every one of these values; several grids are combined to all their combinations.

    `num_samples` of the configuration says how often the whole grid is tried.
    """
    return {"grid_search": values}


def _check_not_empty(lower: int, upper: int) -> None:
    if not lower < upper:
        raise ValueError(
            f"`lower` must be less than `upper`, which is exclusive, got lower={lower}, upper={upper}"
        )


def _checked(domain: Integer, q: float) -> Integer:
    domain.quantized_domain(q)  # raises ValueError if there is no multiple of q between the bounds
    return domain
