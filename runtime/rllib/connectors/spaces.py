"""Functions of values and the gymnasium spaces that they are of, for single values and for batches alike."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from runtime.rllib._core.trees import Tree


def children(space: Any) -> dict[Any, Any] | None:
    """The spaces directly in a Dict or Tuple space by key; None for other spaces."""
    if isinstance(space, spaces.Dict):
        return dict(space.spaces)
    if isinstance(space, spaces.Tuple):
        return dict(enumerate(space.spaces))
    return None


def map_space(function: Callable[[Any], Any], space: Any) -> Any:
    """The space with each innermost space replaced by what `function` returns for it."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: map_space(function, below) for key, below in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([map_space(function, below) for below in space.spaces])
    return function(space)


def map_leaves(function: Callable[[Any, Any], Any], space: Any, value: Tree) -> Tree:
    """The value with each leaf replaced by `function(innermost space, leaf)`."""
    if isinstance(space, spaces.Dict):
        return {key: map_leaves(function, below, value[key]) for key, below in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(map_leaves(function, below, value[key]) for key, below in enumerate(space.spaces))
    return function(space, value)


# ------------------------------------------------------------ flattening


@dataclasses.dataclass(slots=True)
class _Part:
    """An innermost space, and where its numbers are in a flattened value."""

    path: tuple[Any, ...]
    space: Any
    columns: slice
    offsets: (
        np.ndarray | None
    )  # of one-hot vectors: int64 [elements], the column of each element's lowest value


class Flattener:
    """Makes a vector of each value of a space: all its numbers, discrete ones as one-hot vectors.

    Dicts are flattened in the order of their sorted keys.

    Raises:
        ValueError: values of the space have no fixed size.
    """

    def __init__(self, space: Any) -> None:
        self.size = 0
        self._parts: list[_Part] = []
        self._add((), space)
        self._numbers_only = len(self._parts) == 1 and self._parts[0].offsets is None

    def _add(self, path: tuple[Any, ...], space: Any) -> None:
        below = children(space)
        if below is not None:
            for key in _sorted(below):
                self._add((*path, key), below[key])
            return
        offsets = None
        if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
            sizes = np.ravel(space.n if isinstance(space, spaces.Discrete) else space.nvec).astype(np.int64)
            offsets = self.size + np.cumsum(sizes) - sizes - np.ravel(space.start)
            size = int(sizes.sum())
        elif isinstance(space, spaces.Box | spaces.MultiBinary):
            size = int(np.prod(space.shape))
        else:
            raise ValueError(
                f"Observations of space {space} cannot be flattened: only Box, Discrete, MultiDiscrete, MultiBinary, "
                "and Dict and Tuple of these"
            )
        self._parts.append(_Part(path, space, slice(self.size, self.size + size), offsets))
        self.size += size

    def __call__(self, value: Tree, *, batched: bool) -> np.ndarray:
        """float32 [size] of a value, or [N, size] of a batch of N values."""
        if self._numbers_only:
            array = np.asarray(_at(value, self._parts[0].path))
            return array.reshape(len(array) if batched else 1, self.size).astype(np.float32)[
                () if batched else 0
            ]
        result: np.ndarray | None = None
        for part in self._parts:
            array = np.asarray(_at(value, part.path))
            rows = array.reshape(len(array) if batched else 1, -1)
            if result is None:
                result = np.zeros((len(rows), self.size), np.float32)
            if part.offsets is None:
                result[:, part.columns] = rows
            else:
                np.put_along_axis(result, rows + part.offsets, 1.0, axis=1)
        if result is None:  # a space without parts
            result = np.zeros((1, 0), np.float32)
        return result if batched else result[0]


def _at(value: Tree, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def _sorted(keys: Any) -> list[Any]:
    try:
        return sorted(keys)
    except TypeError:  # keys of several types
        return list(keys)
