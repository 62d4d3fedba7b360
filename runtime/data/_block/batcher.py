"""Batches of a given number of rows, cut from blocks of any size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from runtime.data._block import tensor
from runtime.data._block.arrays import of_numpy
from runtime.data._block.schema_diff import concat


def batches(
    tables: Iterable[pa.Table], batch_size: int | None, drop_last: bool = False
) -> Iterator[pa.Table]:
    """Tables of batch_size rows in order, without copies: a batch over a border of blocks has several chunks.

    Args:
        tables: blocks, of which at most those of one batch are held.
        batch_size: rows of a batch; None gives the blocks as they are, without empty ones.
        drop_last: whether a last batch with fewer rows is left out.
    """
    if batch_size is None:
        yield from (table for table in tables if table.num_rows)
        return
    _check_size(batch_size)
    parts: list[pa.Table] = []
    missing = batch_size
    for table in tables:
        start = 0
        while table.num_rows - start >= missing:
            parts.append(table.slice(start, missing))
            yield concat(parts)
            start += missing
            parts, missing = [], batch_size
        if start < table.num_rows:
            left = table.num_rows - start
            parts.append(
                table.slice(start, left)
            )  # without the length, tables without columns ignore the start
            missing -= left
    if parts and not drop_last:
        yield concat(parts)


def _check_size(batch_size: int) -> None:
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}, but a batch has at least one row")


class ShuffleBuffer:
    """Draws batches at random from a window over the stream of rows.

    It takes up to twice min_rows, puts them in random order, and hands out batches as views until min_rows are left.
    So a row is copied about twice, and every batch but those at the end of the stream is drawn from at least
    min_rows rows.
    """

    def __init__(self, min_rows: int, seed: int | None = None) -> None:
        """
        Args:
            min_rows: rows that are held at least, while more may come.
            seed: of the permutations; None for another one each time.
        """
        if min_rows < 1:
            raise ValueError(f"the shuffle buffer's size is {min_rows}, but it holds at least one row")
        self._min_rows = min_rows
        self._random = np.random.default_rng(seed)
        self._added: list[pa.Table] = []
        self._added_rows = 0
        self._window: pa.Table | None = None  # in random order
        self._window_rows = 0
        self._ended = False

    @property
    def rows(self) -> int:
        """Rows that are held."""
        return self._added_rows + self._window_rows

    def add(self, table: pa.Table) -> None:
        """Takes the rows of a block."""
        if table.num_rows:
            self._added.append(table)
            self._added_rows += table.num_rows

    def end(self) -> None:
        """No more rows come: what is held is drawn to the last row."""
        self._ended = True

    def draw(self, batch_size: int) -> pa.Table | None:
        """A batch at random; None if more blocks have to be added first, and after the last row.

        The last batch may have fewer than batch_size rows.
        """
        _check_size(batch_size)
        needed = batch_size if self._ended else self._min_rows + batch_size
        if self._window_rows < needed and self._added:
            if self.rows < 2 * self._min_rows + batch_size and not self._ended:
                return None
            self._refill()
        if not self._window_rows or (self._window_rows < needed and not self._ended):
            return None
        assert self._window is not None
        size = min(batch_size, self._window_rows)
        chosen = self._window.slice(self._window.num_rows - self._window_rows, size)
        self._window_rows -= size
        return chosen

    def _refill(self) -> None:
        parts = self._added
        if self._window is not None and self._window_rows:
            left = self._window.slice(self._window.num_rows - self._window_rows, self._window_rows)
            parts = [left, *parts]
        rows = concat(parts)
        self._window_rows = rows.num_rows
        self._window = permuted(rows, self._random.permutation(rows.num_rows))
        self._added, self._added_rows = [], 0


def permuted(table: pa.Table, order: npt.NDArray[np.int64]) -> pa.Table:
    """The rows in another order; a row of tensors is copied once, however many chunks the table has."""
    if not table.num_columns:
        return table
    indices = of_numpy(order)
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if tensor.is_fixed(column.type) and not column.null_count and column.num_chunks > 1:
            columns[name] = tensor.permuted(column, order)
        else:
            columns[name] = column.combine_chunks().take(indices)
    return pa.table(columns, schema=table.schema)


def shuffled_batches(
    tables: Iterable[pa.Table],
    batch_size: int,
    min_rows: int,
    seed: int | None = None,
    drop_last: bool = False,
) -> Iterator[pa.Table]:
    """Batches drawn at random through a ShuffleBuffer."""
    buffer = ShuffleBuffer(min_rows, seed)
    for table in tables:
        buffer.add(table)
        while (batch := buffer.draw(batch_size)) is not None:
            yield batch
    buffer.end()
    while (batch := buffer.draw(batch_size)) is not None:
        if batch.num_rows == batch_size or not drop_last:
            yield batch
