"""Variants of a specification under Ray's module name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from runtime.tune.space.base import Domain
from runtime.tune.space.compiled import Path, RecursiveDependencyError, Space, assign_value, leaves
from runtime.tune.space.domains import Categorical
from runtime.tune.space.public import grid_search
from runtime.tune.space.randomness import random_source
from runtime.tune.space.tags import format_vars
from runtime.tune.space.variants import variants

__all__ = [
    "RecursiveDependencyError",
    "assign_value",
    "format_vars",
    "generate_variants",
    "grid_search",
    "parse_spec_vars",
]


def generate_variants(
    unresolved_spec: Mapping[str, Any], constant_grid_search: bool = False, random_state: Any = None
) -> Iterator[tuple[dict[Path, Any], dict[str, Any]]]:
    """Yields the values chosen, by path, and the resolved specification, for each variant of a specification.

    Args:
        unresolved_spec: Nested dicts, lists and tuples with open parameters, usually `{"config": {...}}`.
        constant_grid_search: Whether samples stay the same over the grid.
        random_state: None, a seed, a `random.Random` or a generator of numpy.
    """
    yield from variants(Space(unresolved_spec), random_source(random_state), constant_grid_search)


def parse_spec_vars(
    spec: Mapping[str, Any],
) -> tuple[list[tuple[Path, Any]], list[tuple[Path, Domain]], list[tuple[Path, Domain]]]:
    """Returns the fixed values, the parameters to sample and the grids of a specification, each with its path."""
    space = Space(spec)
    open_paths = set(space.open_paths)
    fixed = [entry for entry in leaves(space.fresh()) if entry[0] not in open_paths]
    grids: list[tuple[Path, Domain]] = [(path, Categorical(values).grid()) for path, values in space.grids]
    return fixed, space.domains + space.functions, grids
