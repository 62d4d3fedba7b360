"""Trees of arrays: an array, or dicts, tuples and lists of trees. What spaces like `gymnasium.spaces.Dict` give."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

Tree = Any  # an array, or a dict, tuple or list of trees


def tree_map(function: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """`function(leaf, *leaves of the others)` for each leaf; the others have the structure of `tree`."""
    if isinstance(tree, dict):
        return {key: tree_map(function, tree[key], *(other[key] for other in others)) for key in tree}
    if isinstance(tree, tuple | list):
        mapped = [tree_map(function, *leaves) for leaves in zip(tree, *others, strict=True)]
        if hasattr(tree, "_fields"):  # a named tuple
            return type(tree)(*mapped)
        return type(tree)(mapped)
    return function(tree, *others)


def leaves(tree: Tree) -> Iterator[Any]:
    """The leaves, in the order of `tree_map`."""
    if isinstance(tree, dict):
        for value in tree.values():
            yield from leaves(value)
    elif isinstance(tree, tuple | list):
        for value in tree:
            yield from leaves(value)
    else:
        yield tree


def stack(trees: Sequence[Tree]) -> Tree:
    """One tree whose leaves have a new first dimension, of length `len(trees)`."""
    return tree_map(lambda *items: np.stack([np.asarray(item) for item in items]), trees[0], *trees[1:])


def concatenate(trees: Sequence[Tree]) -> Tree:
    """One tree whose leaves are joined along their first dimension."""
    if len(trees) == 1:
        return trees[0]
    return tree_map(lambda *items: np.concatenate(items), trees[0], *trees[1:])


def narrowed(tree: Tree) -> Tree:
    """The tree with 32 bits in arrays of floats that have 64: modules compute in 32."""
    return tree_map(_narrow, tree)


def _narrow(leaf: Any) -> np.ndarray:
    array = np.asarray(leaf)
    return array.astype(np.float32) if array.dtype == np.float64 else array


def put(tree: Tree, index: Any, values: Tree) -> None:
    """`leaf[index] = value` for each leaf; dicts may have their keys in different orders."""
    tree_map(lambda leaf, new: leaf.__setitem__(index, new), tree, values)


def copied(tree: Tree) -> Tree:
    """The tree with copies of its arrays; other leaves, such as numbers, stay as they are."""
    return tree_map(lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, tree)


def take(tree: Tree, index: Any) -> Tree:
    """`leaf[index]` for each leaf: a slice gives views, an array of rows gives copies."""
    return tree_map(lambda leaf: leaf[index], tree)


def unbatch(batches_struct: Any) -> list[Any]:
    """The trees of which `space_utils.batch` made this tree."""
    if isinstance(batches_struct, np.ndarray):
        return [*batches_struct]
    first = next(leaves(batches_struct), ())
    return [take(batches_struct, i) for i in range(len(first))]
