"""Batches of a given number of rows, cut from blocks of any size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from runtime.data._block.batch import is_viewable, to_numpy
from runtime.data._block.schema_diff import concat
from runtime.data._block.window import Window

CONVERTED_BYTES = 1 << 20
"""Columns that cannot be viewed as arrays are converted in pieces of so many bytes."""
DRAWN_BYTES = 1 << 20
"""A shuffle buffer draws batches of so many bytes at a time."""


def batches(
    tables: Iterable[pa.Table], batch_size: int | None, drop_last: bool = False
) -> Iterator[pa.Table]:
    """Tables of batch_size rows in order, without copies: a batch over a border of blocks has several chunks.

    Args:
        tables: blocks, of which at most those of one batch are held.
        batch_size: rows of a batch; None gives the blocks as they are, without empty ones.
        drop_last: whether a last batch with fewer rows is left out.
    """
    for table in runs(tables, batch_size, drop_last):
        yield from cut(table, batch_size)


def runs(tables: Iterable[pa.Table], batch_size: int | None, drop_last: bool = False) -> Iterator[pa.Table]:
    """Tables that hold as many whole batches as their block has, in order; see `batches`. The last may hold less."""
    if batch_size is None:
        yield from (table for table in tables if table.num_rows)
        return
    _check_size(batch_size)
    parts: list[pa.Table] = []
    missing = batch_size
    for table in tables:
        start = 0
        if parts and table.num_rows >= missing:
            start = missing
            yield concat([*parts, table.slice(0, start)])
            parts, missing = [], batch_size
        if not parts and (whole := (table.num_rows - start) // batch_size * batch_size):
            yield table.slice(start, whole)
            start += whole
        if start < table.num_rows:
            left = table.num_rows - start
            # Without the length, tables without columns ignore the start.
            parts.append(table.slice(start, left))
            missing -= left
    if parts and not drop_last:
        yield concat(parts)


def cut(table: pa.Table, batch_size: int | None) -> Iterator[pa.Table]:
    """The batches of a run."""
    if batch_size is None or table.num_rows <= batch_size:
        yield table
        return
    for start in range(0, table.num_rows, batch_size):
        yield table.slice(start, min(batch_size, table.num_rows - start))


def cut_numpy(table: pa.Table, batch_size: int | None) -> Iterator[dict[str, npt.NDArray[Any]]]:
    """The batches of a run as dicts of arrays, which are made of many batches at a time and cut then."""
    size = batch_size or table.num_rows
    step = table.num_rows
    if not all(map(is_viewable, table.columns)):
        step = max(size, CONVERTED_BYTES * table.num_rows // max(1, table.nbytes) // size * size)
    for start in range(0, table.num_rows, step):
        rows = min(step, table.num_rows - start)
        columns = to_numpy(table.slice(start, rows))
        for at in range(0, rows, size):
            yield {name: values[at : at + size] for name, values in columns.items()}


def _check_size(batch_size: int) -> None:
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}, but a batch has at least one row")


class ShuffleBuffer:
    """Draws batches at random from a window over the stream of rows.

    It takes up to twice min_rows, and draws until min_rows are left. So every batch but those at the end of the stream
    is drawn from at least min_rows rows. Batches have memory of their own.
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
        self._window: Window | None = None
        self._drawn: pa.Table | None = None  # rows that were drawn from the window ahead
        self._ended = False

    @property
    def rows(self) -> int:
        """Rows that are held."""
        return self._added_rows + self._window_rows

    @property
    def _window_rows(self) -> int:
        ahead = 0 if self._drawn is None else self._drawn.num_rows
        return ahead + (0 if self._window is None else self._window.rows)

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

        All batches have one size; the last batch may have fewer than batch_size rows.
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
        if self._drawn is None or not self._drawn.num_rows:
            wanted = int(DRAWN_BYTES / max(1.0, self._window.row_bytes))
            whole = min(wanted, self._window.rows) // batch_size * batch_size
            self._drawn = self._window.draw(max(whole, batch_size))
        size = min(batch_size, self._drawn.num_rows)
        chosen = self._drawn.slice(0, size)
        self._drawn = self._drawn.slice(size, self._drawn.num_rows - size)
        return chosen

    def _refill(self) -> None:
        added = concat(self._added)
        self._added, self._added_rows = [], 0
        if self._window is None or not self._window.can_add(added):
            left = [] if self._window is None else [self._window.draw(self._window.rows)]
            self._window = Window(concat([*left, added]), self._random)
        else:
            self._window.add(added)


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
