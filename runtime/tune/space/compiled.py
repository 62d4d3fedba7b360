"""A search space, read once: where its open parameters are, and how to make a fresh configuration of it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

from runtime.tune.space.base import Domain
from runtime.tune.space.domains import Categorical, Function

Path = tuple[Any, ...]
"""The keys and list indices that lead to a value."""


class RecursiveDependencyError(Exception):
    """A value of `sample_from` depends on one that is not resolved yet."""


def open_parameter(value: Any) -> Domain | None:
    """Returns the domain that `value` stands for, or None if it is an ordinary value.

    Besides domains these are `{"grid_search": [...]}` and, for spaces in JSON or YAML, `{"eval": "expression"}`, in
    which `spec`, `random` and `np` are known.
    """
    if isinstance(value, Domain):
        return value
    if isinstance(value, dict) and len(value) == 1:
        if "grid_search" in value:
            return Categorical(value["grid_search"]).grid()
        if "eval" in value:
            return Function(_expression(value["eval"]))
    return None


def _expression(text: str) -> Any:
    code = compile(text, "<eval of a search space>", "eval")

    def evaluate(spec: Any) -> Any:
        names: dict[str, Any] = {"random": random}
        if "np" in code.co_names:
            import numpy

            names["np"] = numpy
        return eval(code, names, {"spec": spec})

    return evaluate


class _Container:
    """A dict, list or tuple of the space; `build` copies it with those within it, and shares all other values."""

    __slots__ = ("_base", "_children", "_is_tuple")

    def __init__(self, base: Any, children: list[tuple[Any, _Container]], is_tuple: bool) -> None:
        self._base = base
        self._children = children
        self._is_tuple = is_tuple

    def build(self) -> Any:
        new = self._base.copy()
        for key, child in self._children:
            new[key] = child.build()
        return tuple(new) if self._is_tuple else new


class Space:
    """A search space whose open parameters have been found.

    Attributes:
        domains: Open parameters that are drawn without looking at others, in the order of the space.
        functions: Those of `sample_from`.
        grids: The values of each grid, ordered by path.
    """

    def __init__(self, values: Mapping[Any, Any]) -> None:
        self.domains: list[tuple[Path, Domain]] = []
        self.functions: list[tuple[Path, Domain]] = []
        self.grids: list[tuple[Path, list[Any]]] = []
        self._root = self._read(dict(values), ())
        self.grids.sort(key=lambda grid: path_order(grid[0]))

    @property
    def is_open(self) -> bool:
        """Whether any parameter is open."""
        return bool(self.domains or self.functions or self.grids)

    @property
    def open_paths(self) -> list[Path]:
        """Where the open parameters are."""
        return [path for entries in (self.domains, self.functions, self.grids) for path, _ in entries]

    def fresh(self) -> dict[Any, Any]:
        """Returns a configuration with containers of its own and the open parameters still in it."""
        new: dict[Any, Any] = self._root.build()
        return new

    def _read(self, value: Any, path: Path) -> _Container:
        children = []
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            domain = open_parameter(item)
            if domain is not None:
                self._add((*path, key), domain)
            elif is_container(item):
                children.append((key, self._read(item, (*path, key))))
        is_tuple = isinstance(value, tuple)
        return _Container(list(value) if is_tuple else value.copy(), children, is_tuple)

    def _add(self, path: Path, domain: Domain) -> None:
        if domain.is_grid():
            if not isinstance(domain, Categorical) or not domain.categories:
                raise ValueError(f"The grid of parameter '{path_name(path)}' has no values")
            self.grids.append((path, domain.categories))
        elif domain.is_function():
            self.functions.append((path, domain))
        else:
            self.domains.append((path, domain))


def is_container(value: Any) -> bool:
    """Whether a value may hold further parameters: a dict, a list or a plain tuple."""
    return isinstance(value, (dict, list)) or type(value) is tuple


def has_open_parameters(value: Any) -> bool:
    """Whether a value is an open parameter or contains one."""
    if open_parameter(value) is not None:
        return True
    if not is_container(value):
        return False
    return any(has_open_parameters(item) for item in (value.values() if isinstance(value, dict) else value))


def leaves(values: Mapping[Any, Any], path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yields the path and value of everything in nested dicts that is no dict itself; open parameters are values."""
    for key, value in values.items():
        if isinstance(value, dict) and open_parameter(value) is None:
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


def assign_value(spec: Any, path: Path, value: Any) -> Any:
    """Sets the value at `path` in nested containers and returns the outermost one.

    Dicts and lists are changed in place, tuples are replaced by new ones.
    """
    key = path[0]
    new = value if len(path) == 1 else assign_value(spec[key], path[1:], value)
    if isinstance(spec, tuple):
        return (*spec[:key], new, *spec[key + 1 :])
    spec[key] = new
    return spec


def value_at(spec: Any, path: Path) -> Any:
    """Returns the value at `path` in nested containers."""
    for key in path:
        spec = spec[key]
    return spec


def path_name(path: Path) -> str:
    """Returns the name of a parameter: its keys joined by slashes."""
    return "/".join(map(str, path))


def path_order(path: Path) -> tuple[tuple[bool, int, str], ...]:
    """A sort key for paths, which may mix strings and indices."""
    return tuple((False, key, "") if isinstance(key, int) else (True, 0, str(key)) for key in path)
