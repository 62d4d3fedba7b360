"""From items to arrays, and from sequences to padded sequences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from runtime.rllib._core import trees
from runtime.rllib._core.trees import Tree
from runtime.rllib.utils.spaces.space_utils import BatchedNdArray, unbatch


def is_batched(item: Tree) -> bool:
    """Whether a tree stands for several items."""
    return isinstance(next(trees.leaves(item), None), BatchedNdArray)


def batch_items(items: Sequence[Tree]) -> Tree:
    """Tree of arrays [rows, ...] of items and of trees that stand for several items."""
    if not any(is_batched(item) for item in items):
        return trees.stack(items)
    rows = [
        item if is_batched(item) else trees.tree_map(lambda leaf: np.asarray(leaf)[None], item)
        for item in items
    ]
    plain = [trees.tree_map(lambda leaf: np.asarray(leaf).view(np.ndarray), item) for item in rows]
    return trees.concatenate(plain)


def split_and_zero_pad(items: Sequence[Tree], max_seq_len: int) -> list[Tree]:
    """Trees of arrays [max_seq_len, ...]: the items in sequence, the last tree filled up with zeros."""
    tree = batch_items(items)

    def chunks(leaf: np.ndarray) -> np.ndarray:
        count = math.ceil(len(leaf) / max_seq_len)
        padded = np.zeros((count * max_seq_len, *leaf.shape[1:]), leaf.dtype)
        padded[: len(leaf)] = leaf
        return padded.reshape(count, max_seq_len, *leaf.shape[1:])

    return unbatch(trees.tree_map(chunks, tree))


def mask_and_lengths(length: int, max_seq_len: int) -> tuple[list[np.ndarray], list[int]]:
    """For a sequence cut into chunks: masks (bool [max_seq_len], True for real steps) and lengths of the chunks."""
    lengths = [min(max_seq_len, length - start) for start in range(0, length, max_seq_len)]
    return [np.arange(max_seq_len) < n for n in lengths], lengths


def unpad(lengths: Iterable[int], data: np.ndarray) -> np.ndarray:
    """Array [sum of lengths, ...]: `data` without the zeros that `split_and_zero_pad` added.

    Args:
        lengths: Of the sequences, one after the other.
        data: [rows, ...], returned as it is, or [chunks, max_seq_len, ...].
    """
    lengths = list(lengths)
    if data.ndim == 1 or len(data) == sum(lengths):
        return data
    max_seq_len = data.shape[1]
    kept, chunk = [], 0
    for length in lengths:
        count = math.ceil(length / max_seq_len)
        kept.append(data[chunk : chunk + count].reshape(count * max_seq_len, *data.shape[2:])[:length])
        chunk += count
    return np.concatenate(kept)
