"""What the searchers of other libraries need of a search space: its parameters as plain data, and nested results."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from runtime.tune.space.base import Domain
from runtime.tune.space.compiled import (
    Path,
    Space,
    assign_value,
    has_open_parameters,
    leaves,
    open_parameter,
    path_name,
)
from runtime.tune.space.domains import Categorical, Float, Integer
from runtime.tune.space.samplers import LogUniform, Normal, Quantized, Uniform


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter to search.

    Attributes:
        name: Its keys joined by slashes.
        path: Its keys.
        kind: "float", "int", "normal" (a float of a normal distribution) or "choice".
        low: The lower bound; the mean if normal.
        high: The upper bound, inclusive for integers too; the standard deviation if normal.
        log: Whether it is uniform in its logarithm.
        step: The quantization factor, or None.
        categories: The values of a choice.
    """

    name: str
    path: Path
    kind: str
    low: float = 0
    high: float = 0
    log: bool = False
    step: float | None = None
    categories: tuple[Any, ...] = ()


def parameters_of(param_space: Mapping[Any, Any], searcher: str, nested: bool = False) -> list[Parameter]:
    """Returns the parameters of a space, in its order.

    Args:
        param_space: The search space.
        searcher: Who asks, for messages.
        nested: Whether the values of a choice may have parameters themselves.

    Raises:
        ValueError: A parameter is a grid, a function, or of a kind that search libraries do not know.
    """
    space = Space(param_space)
    if space.grids:
        raise ValueError(
            f"{searcher} cannot search the grid of parameter '{path_name(space.grids[0][0])}': use choice() for it, or "
            "BasicVariantGenerator to search"
        )
    if space.functions:
        raise ValueError(
            f"{searcher} cannot search parameter '{path_name(space.functions[0][0])}', which is a function: compute "
            "it in the trainable, or use OptunaSearch with a define-by-run function"
        )
    return [_parameter(path, domain, searcher, nested) for path, domain in space.domains]


def _parameter(path: Path, domain: Domain, searcher: str, nested: bool) -> Parameter:
    name, step = path_name(path), None
    sampler = domain.get_sampler()
    if any("/" in key for key in path if isinstance(key, str)):
        raise ValueError(
            f"{searcher} cannot search parameter '{name}': rename its keys to ones without a slash"
        )
    if isinstance(sampler, Quantized):
        step = sampler.q
        sampler = sampler.sampler
    log = isinstance(sampler, LogUniform)
    if isinstance(domain, Categorical) and isinstance(sampler, Uniform):
        if not nested and has_open_parameters(domain.categories):
            raise ValueError(
                f"{searcher} cannot search parameter '{name}', whose values have parameters themselves: use "
                "OptunaSearch or BasicVariantGenerator"
            )
        return Parameter(name, path, "choice", categories=tuple(domain.categories))
    if isinstance(domain, (Float, Integer)) and isinstance(sampler, (Uniform, LogUniform)):
        if isinstance(domain, Float):
            return Parameter(name, path, "float", domain.lower, domain.upper, log, step)
        if step is None or step == 1:
            return Parameter(name, path, "int", domain.lower, domain.upper - 1, log)
        inner, scale = domain.quantized_domain(step)
        assert isinstance(inner, Integer)
        return Parameter(name, path, "int", scale(inner.lower), scale(inner.upper - 1), log, step)
    if isinstance(domain, Float) and isinstance(sampler, Normal):
        return Parameter(name, path, "normal", sampler.mean, sampler.sd, step=step)
    raise ValueError(f"{searcher} cannot search parameter '{name}': {domain!r} with sampler {sampler}")


class Nesting:
    """Makes nested configurations of values by name, and the other way round.

    Args:
        paths: The parameters, in the order in which names are listed.
        param_space: The space they are from. Lists and tuples with parameters are completed with their fixed values.
    """

    def __init__(self, paths: Iterable[Path], param_space: Mapping[Any, Any] | None = None) -> None:
        self._paths = {path_name(path): path for path in paths}
        self._flat = all(len(path) == 1 for path in self._paths.values())
        self._space = Space(
            _only_open(param_space) if param_space is not None else _empty(self._paths.values())
        )

    @classmethod
    def of_names(cls, names: Iterable[str]) -> Nesting:
        """A nesting for names that have slashes between their keys."""
        return cls(tuple(name.split("/")) for name in names)

    def nested(self, values: Mapping[str, Any]) -> dict[Any, Any]:
        """Returns the configuration with these values by name."""
        if self._flat:
            return dict(values)
        config = self._space.fresh()
        for name, value in values.items():
            assign_value(config, self._paths[name], value)
        return config

    def flat(self, config: Mapping[Any, Any]) -> dict[str, Any]:
        """Returns the parameters that a configuration has, by name; its keys may be nested or have slashes."""
        flat = {}
        for name, path in self._paths.items():
            value = _found(config, path)
            if value is _MISSING:
                value = config.get(name, _MISSING)
            if value is not _MISSING:
                flat[name] = value
        return flat

    def unknown(self, config: Mapping[Any, Any]) -> list[str]:
        """Returns the names in a configuration that neither are parameters nor belong to one."""
        parameters = set(self._paths.values()) | {(name,) for name in self._paths}
        above = {path[:length] for path in self._paths.values() for length in range(1, len(path))}
        return [
            path_name(path)
            for path, _ in leaves(config)
            if path not in above and not any(path[: length + 1] in parameters for length in range(len(path)))
        ]


_MISSING = object()


def _found(config: Any, path: Path) -> Any:
    for key in path:
        try:
            config = config[key]
        except (KeyError, IndexError, TypeError):
            return _MISSING
    return config


def _only_open(values: Mapping[Any, Any]) -> dict[Any, Any]:
    """The dicts of a space with nothing but what leads to open parameters."""
    kept = {}
    for key, value in values.items():
        if isinstance(value, dict) and open_parameter(value) is None:
            if has_open_parameters(value):
                kept[key] = _only_open(value)
        elif has_open_parameters(value):
            kept[key] = value
    return kept


def _empty(paths: Iterable[Path]) -> dict[Any, Any]:
    config: dict[Any, Any] = {}
    for path in paths:
        inner = config
        for key in path[:-1]:
            inner = inner.setdefault(key, {})
        inner[path[-1]] = None
    return config


def require(module: str, searcher: str, package: str) -> Any:
    """Imports the library that a searcher is made with.

    Raises:
        ImportError: It is not installed; the message says what to install.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{searcher} needs the package {package}: pip install {package} ({error})"
        ) from error


def check_points(points: Any, rewards: Any) -> None:
    """Checks `points_to_evaluate` and `evaluated_rewards`.

    Raises:
        TypeError: One of them is no list, or a point is no dict.
        ValueError: There are not as many rewards as points.
    """
    if points is not None and not isinstance(points, list):
        raise TypeError(f"`points_to_evaluate` must be a list of dicts, got {points!r}")
    for point in points or []:
        if not isinstance(point, dict):
            raise TypeError(f"`points_to_evaluate` must be a list of dicts, got one with {point!r}")
    if rewards is not None:
        if not isinstance(rewards, list):
            raise TypeError(f"`evaluated_rewards` must be a list, got {rewards!r}")
        if len(rewards) != len(points or []):
            raise ValueError(
                f"`evaluated_rewards` must have one value per point of `points_to_evaluate`, got {len(rewards)} for "
                f"{len(points or [])} points"
            )


def undefined(searcher: str, metric: Any, mode: Any, space: Any) -> RuntimeError:
    """The error of a searcher that is asked before it has all it needs."""
    if not space:
        return RuntimeError(
            f"{searcher} has no search space: pass param_space to the Tuner, with at least one parameter to search, or "
            "`space` to the searcher"
        )
    return RuntimeError(
        f"{searcher} needs a metric and a mode, got metric={metric!r} and mode={mode!r}: set them in TuneConfig or on "
        "the searcher"
    )
