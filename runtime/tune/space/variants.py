"""Configurations from a search space: the product of its grids, with fresh samples for each, one at a time."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from runtime.tune.space.base import Domain
from runtime.tune.space.compiled import (
    Path,
    RecursiveDependencyError,
    Space,
    assign_value,
    has_open_parameters,
    is_container,
    leaves,
    open_parameter,
    path_name,
    value_at,
)
from runtime.tune.space.domains import Categorical
from runtime.tune.space.randomness import RandomSource
from runtime.tune.space.view import ConfigView, without_views

logger = logging.getLogger(__name__)


class Variant(NamedTuple):
    """A configuration without open parameters, and the values that were chosen for it."""

    resolved: dict[Path, Any]
    config: dict[Any, Any]


def variants(space: Space, source: RandomSource, constant_grid_search: bool = False) -> Iterator[Variant]:
    """Yields every combination of the space's grids, the first grid changing fastest.

    Values that are chosen may hold open parameters themselves; these are resolved next, nested grids included.

    Args:
        space: The search space.
        source: Where samples come from.
        constant_grid_search: Whether samples stay the same over the grid. (Functions that depend on a grid's values
            are evaluated for each of them in either case.)

    Raises:
        ValueError: A parameter cannot be sampled; the message names it.
        RecursiveDependencyError: Functions depend on each other.
    """
    held: dict[Path, Any] = {}
    if constant_grid_search and space.grids:
        held = _resolve(space.fresh(), space.domains, space.functions, source, partly=True)
    domains = [entry for entry in space.domains if entry[0] not in held]
    functions = [entry for entry in space.functions if entry[0] not in held]
    paths = [path for path, _ in space.grids]
    for combination in itertools.product(*(values for _, values in reversed(space.grids))):
        config = space.fresh()
        chosen = {path: _own(value) for path, value in held.items()}
        chosen.update(zip(paths, map(_own, reversed(combination)), strict=True))
        for path, value in chosen.items():
            assign_value(config, path, value)
        chosen.update(_resolve(config, domains, functions, source))
        if any(has_open_parameters(value) for value in chosen.values()):
            for resolved, nested_config in variants(Space(config), source, constant_grid_search):
                yield Variant(_combined(chosen, resolved, nested_config), nested_config)
        else:
            yield Variant(chosen, config)


def _combined(chosen: dict[Path, Any], nested: dict[Path, Any], config: dict[Any, Any]) -> dict[Path, Any]:
    """What was chosen first, with the parameters within those values resolved, and these on their own."""
    return {path: value_at(config, path) for path in chosen} | nested


def _own(value: Any) -> Any:
    """A copy of the containers of a chosen value, so that one trial's configuration shares none with another's."""
    if isinstance(value, dict):
        return {key: _own(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_own(item) for item in value]
    if type(value) is tuple and any(is_container(item) for item in value):
        return tuple(_own(item) for item in value)
    return value


def _resolve(
    config: dict[Any, Any],
    domains: list[tuple[Path, Domain]],
    functions: list[tuple[Path, Domain]],
    source: RandomSource,
    partly: bool = False,
) -> dict[Path, Any]:
    """Sets the values of open parameters in `config` and returns them.

    Functions that look at open parameters are called again once there are more values. With `partly` those that
    never succeed are left out.
    """
    resolved = {}
    for path, domain in domains:
        resolved[path] = value = _own(_sample(path, domain, None, source))
        assign_value(config, path, value)
    waiting = functions
    while waiting:
        postponed, reason = [], None
        view = ConfigView(config)
        for path, domain in waiting:
            try:
                value = without_views(_sample(path, domain, view, source))
            except RecursiveDependencyError as error:
                postponed.append((path, domain))
                reason = error
            else:
                resolved[path] = value
                assign_value(config, path, value)
        if len(postponed) == len(waiting):
            if partly:
                break
            names = ", ".join(f"'{path_name(path)}'" for path, _ in postponed)
            raise RecursiveDependencyError(
                f"The functions of {names} depend on each other or on what they return: {reason}"
            ) from reason
        waiting = postponed
    return resolved


def _sample(path: Path, domain: Domain, view: ConfigView | None, source: RandomSource) -> Any:
    try:
        return domain.sample(view, random_state=source)
    except RecursiveDependencyError:
        raise
    except Exception as error:
        raise ValueError(
            f"Parameter '{path_name(path)}' cannot be sampled from {domain!r}: {error!r}"
        ) from error


def preset_space(param_space: Mapping[Any, Any], point: Mapping[Any, Any]) -> Space:
    """Returns the space with the values of a point of `points_to_evaluate` in place of open parameters.

    A value that the parameter cannot have is used all the same, with a warning.

    Raises:
        ValueError: The point has a parameter that is not in the space.
    """
    config = Space(param_space).fresh()
    for path, value in leaves(point):
        try:
            allowed = value_at(config, path)
        except (KeyError, IndexError, TypeError):
            raise ValueError(
                f"points_to_evaluate sets '{path_name(path)}', which is no parameter of param_space: {point!r}"
            ) from None
        domain = open_parameter(allowed)
        if domain is None and not isinstance(allowed, dict) and allowed is not value and allowed != value:
            logger.warning(
                "points_to_evaluate sets '%s' to %r, which is fixed at %r", path_name(path), value, allowed
            )
        elif domain is not None and open_parameter(value) is None and not domain.is_valid(value):
            logger.warning(
                "points_to_evaluate sets '%s' to %r, which is not among its values %s",
                path_name(path),
                value,
                domain.domain_str,
            )
        assign_value(config, path, value)
    return Space(config)


def count_variants(space: Space) -> int | None:
    """Returns how many variants a space has, or None if nested grids make that depend on what is chosen."""
    values = [value for _, grid in space.grids for value in grid]
    for _, domain in space.domains:
        if isinstance(domain, Categorical):
            values.extend(domain.categories)
    if any(_has_grid(value) for value in values):
        return None
    return math.prod(len(grid) for _, grid in space.grids)


def _has_grid(value: Any) -> bool:
    domain = open_parameter(value)
    if isinstance(domain, Categorical):
        return domain.is_grid() or any(_has_grid(category) for category in domain.categories)
    if domain is not None or not is_container(value):
        return False
    return any(_has_grid(item) for item in (value.values() if isinstance(value, dict) else value))
