"""Blocks split into partitions: by the hash of keys, at random, or evenly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from runtime.data._block.arrays import of_numpy
from runtime.data._block.hashing import hash_rows

Offsets = npt.NDArray[np.int64]


def hash_partition(table: pa.Table, keys: Sequence[str], num_partitions: int) -> tuple[pa.Table, Offsets]:
    """The rows in the order of their partitions; rows with equal keys are in one partition, in every process.

    Returns:
        The table, and num_partitions + 1 offsets: partition i is table[offsets[i]:offsets[i + 1]]. Within a
        partition, rows keep their order.
    """
    if num_partitions == 1 or table.num_rows == 0:
        return table, _all_in_first(table.num_rows, num_partitions)
    # The upper half of a hash, scaled: the lower bits stay independent for hash tables within a partition.
    upper = hash_rows(table, keys) >> np.uint64(32)
    return by_number(table, (upper * np.uint64(num_partitions)) >> np.uint64(32), num_partitions)


def random_partition(
    table: pa.Table, num_partitions: int, rng: np.random.Generator
) -> tuple[pa.Table, Offsets]:
    """The rows in random order, each in a partition at random; see `hash_partition`."""
    order = rng.permutation(table.num_rows)
    sizes = rng.multinomial(table.num_rows, np.full(num_partitions, 1 / num_partitions))
    return table.take(of_numpy(order)) if table.num_columns else table, _borders(sizes)


def even_partition(table: pa.Table, num_partitions: int, first: int = 0) -> tuple[pa.Table, Offsets]:
    """The rows in their order, cut into partitions whose sizes differ by one row at most.

    Args:
        first: the partition that gets the first larger share, for blocks that take turns.
    """
    share, rest = divmod(table.num_rows, num_partitions)
    sizes = np.full(num_partitions, share, np.int64)
    sizes[(first + np.arange(rest)) % num_partitions] += 1
    return table, _borders(sizes)


def by_number(table: pa.Table, numbers: npt.NDArray[Any], num_partitions: int) -> tuple[pa.Table, Offsets]:
    """The rows in the order of the partitions' numbers, one for each row; see `hash_partition`."""
    narrow = numbers.astype(
        np.min_scalar_type(num_partitions - 1)
    )  # up to 16 bits are sorted by their digits
    order = np.argsort(narrow, kind="stable")
    sizes = np.bincount(narrow, minlength=num_partitions)
    return table.take(of_numpy(order)) if table.num_columns else table, _borders(sizes)


def piece(table: pa.Table, offsets: Offsets, partition: int) -> pa.Table:
    """One partition, as a view."""
    start, end = int(offsets[partition]), int(offsets[partition + 1])
    return table.slice(start, end - start)


def _borders(sizes: npt.NDArray[Any]) -> Offsets:
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def _all_in_first(num_rows: int, num_partitions: int) -> Offsets:
    offsets = np.full(num_partitions + 1, num_rows, np.int64)
    offsets[0] = 0
    return offsets
