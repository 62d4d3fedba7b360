"""Functions of values and the gymnasium spaces that they are of, for single values and for batches alike."""

from __future__ import annotations

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


def flat_size(space: Any) -> int:
    """The number of elements of `flatten(space, value)`.

    Raises:
        ValueError: values of such a space have no fixed size.
    """
    below = children(space)
    if below is not None:
        return sum(flat_size(child) for child in below.values())
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return int(np.sum(space.nvec))
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return int(np.prod(space.shape))
    raise ValueError(
        f"Observations of space {space} cannot be flattened: only Box, Discrete, MultiDiscrete, "
        "MultiBinary, and Dict and Tuple of these"
    )


def flatten(space: Any, value: Tree, *, batched: bool) -> np.ndarray:
    """float32 [size], or [N, size] if batched: all numbers of a value, discrete ones as one-hot vectors.

    Dicts are flattened in the order of their sorted keys.
    """
    value_parts: list[np.ndarray] = []
    _flatten_into(value_parts, space, value, batched)
    if len(value_parts) == 1:
        return value_parts[0]
    return np.concatenate(value_parts, axis=-1)


def _flatten_into(parts: list[np.ndarray], space: Any, value: Tree, batched: bool) -> None:
    below = children(space)
    if below is not None:
        for key in _sorted(below):
            _flatten_into(parts, below[key], value[key], batched)
        return
    array = np.asarray(value)
    if isinstance(space, spaces.Discrete):
        parts.append(one_hot(array - space.start, int(space.n)))
    elif isinstance(space, spaces.MultiDiscrete):
        shifted = array - space.start
        rows = shifted.reshape(len(shifted), -1) if batched else shifted.reshape(-1)
        parts.extend(one_hot(rows[..., place], int(n)) for place, n in enumerate(np.ravel(space.nvec)))
    else:
        flat = array.reshape(len(array), -1) if batched else array.reshape(-1)
        parts.append(flat.astype(np.float32, copy=False))


def _sorted(keys: Any) -> list[Any]:
    try:
        return sorted(keys)
    except TypeError:  # keys of several types
        return list(keys)


def one_hot(values: Any, size: int) -> np.ndarray:
    """float32 [..., size] of integers [...] from 0 below `size`."""
    rows = np.asarray(values, dtype=np.int64)
    result = np.zeros((*rows.shape, size), np.float32)
    np.put_along_axis(result, rows[..., None], 1.0, axis=-1)
    return result
