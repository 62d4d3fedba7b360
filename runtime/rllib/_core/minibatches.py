"""Which rows each minibatch of an update takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np


def minibatch_count(rows: Mapping[str, int], size: int, epochs: int) -> int:
    """Minibatches until the module with the most rows has been covered `epochs` times, the last one full."""
    return max((-(-count * epochs // min(size, count)) for count in rows.values() if count), default=0)


def minibatch_rows(
    rows: int, size: int, count: int, *, shuffle: bool, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """`count` arrays of row numbers, each of `min(size, rows)`.

    Epochs follow one another without a gap: a minibatch may have the last rows of one and the first of the next. A
    module with few rows is so covered more often than others, with the same number of minibatches.

    Args:
        rows: in the batch, at least 1.
        size: of a minibatch.
        count: how many minibatches to yield.
        shuffle: whether each epoch has an order of its own.
        rng: gives the orders.
    """
    size = min(size, rows)
    in_order = np.arange(rows)
    rest = in_order[:0]
    for _ in range(count):
        if len(rest) < size:
            epoch = rng.permutation(rows) if shuffle else in_order
            rest = np.concatenate([rest, epoch]) if len(rest) else epoch
        yield rest[:size]
        rest = rest[size:]


def rows_of_groups(groups: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The rows of these groups, one group after another.

    Args:
        groups: int [G], numbers of groups.
        lengths: int [all groups], rows of each group; groups follow one another without gaps.
    """
    taken = lengths[groups]
    starts = (np.cumsum(lengths) - lengths)[groups]
    before = np.cumsum(taken) - taken
    return np.repeat(starts - before, taken) + np.arange(int(taken.sum()))
