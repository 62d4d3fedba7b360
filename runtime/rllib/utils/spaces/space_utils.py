"""Functions of spaces and of values in them: batches, dummies, clipping and scaling of actions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from ..._core import trees
from ..._core.trees import unbatch as unbatch


class BatchedNdArray(np.ndarray):
    """An array that has a batch dimension already; `batch` joins such arrays in place of stacking them."""

    def __new__(cls, input_array: Any) -> BatchedNdArray:
        if isinstance(input_array, list):
            input_array = np.array(input_array)
        return np.asarray(input_array).view(cls)


def get_original_space(space: Any) -> Any:
    """The space that was flattened to this one, if it is kept as `original_space`; else the space itself."""
    return getattr(space, "original_space", space)


def is_composite_space(space: Any) -> bool:
    """Whether the space is a Dict, Graph or Tuple."""
    return isinstance(space, gym.spaces.Dict | gym.spaces.Graph | gym.spaces.Tuple)


def get_base_struct_from_space(space: Any) -> Any:
    """A tree (dicts, with sorted keys, and tuples) of the basic spaces in a nested space."""
    if isinstance(space, gym.spaces.Dict):
        return {key: get_base_struct_from_space(space.spaces[key]) for key in sorted(space.spaces)}
    if isinstance(space, gym.spaces.Tuple):
        return tuple(get_base_struct_from_space(child) for child in space.spaces)
    return space


def flatten_space(space: Any) -> list[Any]:
    """The basic spaces in a nested space."""
    return list(trees.leaves(get_base_struct_from_space(space)))


def get_dummy_batch_for_space(
    space: Any,
    batch_size: int = 32,
    *,
    fill_value: float | int | str = 0.0,
    time_size: int | None = None,
    time_major: bool = False,
    one_hot_discrete: bool = False,
) -> Any:
    """A tree of arrays like a batch of the space's values.

    Args:
        space: the space, nested or not.
        batch_size: first dimension; 0 leaves it out.
        fill_value: the arrays' elements; "random" samples the space.
        time_size: length of a time dimension; None leaves it out.
        time_major: put the time dimension first.
        one_hot_discrete: one-hot vectors for Discrete and MultiDiscrete spaces.
    """
    if is_composite_space(space):
        return trees.tree_map(
            lambda s: get_dummy_batch_for_space(
                s,
                batch_size,
                fill_value=fill_value,
                time_size=time_size,
                time_major=time_major,
                one_hot_discrete=one_hot_discrete,
            ),
            get_base_struct_from_space(space),
        )
    if one_hot_discrete:
        if isinstance(space, gym.spaces.Discrete):
            space = gym.spaces.Box(0.0, 1.0, (int(space.n),), np.float32)
        elif isinstance(space, gym.spaces.MultiDiscrete):
            space = gym.spaces.Box(0.0, 1.0, (int(np.sum(space.nvec)),), np.float32)
    leading = [n for n in (batch_size, time_size) if n]
    if time_major:
        leading.reverse()
    if fill_value == "random":
        count = int(np.prod(leading, dtype=np.int64))
        samples = np.stack([np.asarray(space.sample()) for _ in range(count)])
        return samples.reshape((*leading, *samples.shape[1:]))
    return np.full((*leading, *(space.shape or ())), fill_value, dtype=space.dtype)


def flatten_to_single_ndarray(input_: Any) -> np.ndarray:
    """The leaves of a tree, each made flat, joined to one array of one dimension."""
    if not isinstance(input_, dict | tuple | list):
        return np.asarray(input_)
    return np.concatenate([np.asarray(leaf).reshape(-1) for leaf in trees.leaves(input_)], axis=0)


def batch(
    list_of_structs: Sequence[Any], *, individual_items_already_have_batch_dim: bool | str = False
) -> Any:
    """One tree of arrays [batch, ...] of a list of trees.

    Args:
        list_of_structs: trees of the same structure.
        individual_items_already_have_batch_dim: join along the first dimension in place of stacking; "auto" does so if
            the first leaf is a `BatchedNdArray`.

    Raises:
        ValueError: the list is empty.
    """
    if not list_of_structs:
        raise ValueError("There is nothing to batch: the list is empty")
    joined = individual_items_already_have_batch_dim
    if joined == "auto":
        joined = isinstance(next(trees.leaves(list_of_structs[0]), None), BatchedNdArray)
    combine: Callable[..., Any] = np.concatenate if joined else np.stack
    return trees.tree_map(
        lambda *items: combine([np.asarray(item) for item in items], axis=0),
        list_of_structs[0],
        *list_of_structs[1:],
    )


def _map_over_space(function: Callable[[Any, Any], Any], action: Any, space: Any) -> Any:
    return trees.tree_map(lambda s, a: function(a, s), get_base_struct_from_space(space), action)


def clip_action(action: Any, action_space: Any) -> Any:
    """The action (a tree for nested spaces), with elements of Box spaces clipped to their bounds."""

    def clip(a: Any, s: Any) -> Any:
        return np.clip(a, s.low, s.high) if isinstance(s, gym.spaces.Box) else a

    return _map_over_space(clip, action, action_space)


def _scalable(space: Any) -> bool:
    return (
        isinstance(space, gym.spaces.Box)
        and bool(space.bounded_below.all() and space.bounded_above.all())
        and not np.issubdtype(space.dtype, np.integer)
    )


def unsquash_action(action: Any, action_space_struct: Any) -> Any:
    """Scales actions from [-1, 1] to the bounds of bounded Box spaces of floats, and clips them to these.

    Args:
        action: a tree for nested spaces.
        action_space_struct: the space, or a tree of basic spaces.
    """

    def unsquash(a: Any, s: Any) -> Any:
        if not _scalable(s):
            return a
        return np.clip(s.low + (np.asarray(a) + 1.0) * 0.5 * (s.high - s.low), s.low, s.high)

    return _map_over_space(unsquash, action, action_space_struct)


def normalize_action(action: Any, action_space_struct: Any) -> Any:
    """Scales actions from the bounds of bounded Box spaces of floats to [-1, 1]; the inverse of `unsquash_action`.
    Elements with only one value become -1."""

    def normalize(a: Any, s: Any) -> Any:
        if not _scalable(s):
            return a
        width = s.high - s.low
        return (np.asarray(a) - s.low) * 2.0 / np.where(width > 0, width, 1.0).astype(width.dtype) - 1.0

    return _map_over_space(normalize, action, action_space_struct)


def convert_element_to_space_type(element: Any, sampled_element: Any) -> Any:
    """The element (a tree), with types as in a sample of the space: arrays of its dtype, ints in place of floats."""

    def convert(sample: Any, value: Any) -> Any:
        if isinstance(sample, np.ndarray):
            return np.asarray(value, dtype=sample.dtype)
        if isinstance(sample, int | np.integer):
            return int(value)
        if isinstance(sample, float | np.floating):
            return float(value)
        return value

    return trees.tree_map(convert, sampled_element, element)
