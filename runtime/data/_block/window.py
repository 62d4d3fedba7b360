"""Rows that a shuffle buffer draws from: each has a slot, which it keeps until it is drawn, and new rows take it then.

Wide tensors lie in one array that is allocated once, so that such a row is copied twice: into its slot, and into its
batch. Other columns are copied when rows are added.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from runtime.data._block import tensor
from runtime.data._block.arrays import of_numpy

WIDE_BYTES = 256
"""Rows of tensors from so many bytes on are wide."""

Slots = npt.NDArray[np.int64]


class _Column(Protocol):
    def put(self, values: pa.ChunkedArray, slots: Slots, rows: int) -> None:
        """Puts values into slots, of which there are `rows` then."""

    def take(self, slots: Slots) -> pa.Array:
        """The values of slots, in memory of their own."""


class _Wide:
    """Tensors of one shape in an array with an item for each slot."""

    def __init__(self, values: pa.ChunkedArray) -> None:
        self._type = values.type
        parts = [tensor.items(chunk) for chunk in values.chunks]
        self._items = np.concatenate(parts)

    @staticmethod
    def can_hold(values: pa.ChunkedArray) -> bool:
        kind = values.type
        return bool(
            tensor.is_fixed(kind)
            and kind.permutation is None
            and not values.null_count
            and len(values)
            and values.nbytes >= WIDE_BYTES * len(values)
        )

    def put(self, values: pa.ChunkedArray, slots: Slots, rows: int) -> None:
        if rows > len(self._items):
            grown = np.empty(rows, self._items.dtype)
            grown[: len(self._items)] = self._items
            self._items = grown
        start = 0
        for chunk in values.chunks:
            self._items[slots[start : start + len(chunk)]] = tensor.items(chunk)
            start += len(chunk)

    def take(self, slots: Slots) -> pa.Array:
        return tensor.of_items(self._items.take(slots), self._type)


class _Narrow:
    """Values of any type in an array of Arrow."""

    def __init__(self, values: pa.ChunkedArray) -> None:
        self._values = values.combine_chunks()

    def put(self, values: pa.ChunkedArray, slots: Slots, rows: int) -> None:
        held = self._values.chunks if isinstance(self._values, pa.ChunkedArray) else [self._values]
        sources = np.arange(rows)
        sources[slots] = np.arange(len(values)) + len(self._values)
        both = pa.chunked_array([*held, *values.chunks], values.type)
        self._values = both.combine_chunks().take(of_numpy(sources))

    def take(self, slots: Slots) -> Any:
        return self._values.take(of_numpy(slots))


class Window:
    """The rows of a table in slots, which are drawn in random order."""

    def __init__(self, table: pa.Table, random: np.random.Generator) -> None:
        self._random = random
        self._schema = table.schema
        self._slots = table.num_rows
        self._row_bytes: float = table.nbytes / max(1, table.num_rows)
        self._columns: list[_Column] = [
            _Wide(column) if _Wide.can_hold(column) else _Narrow(column) for column in table.columns
        ]
        self._order = random.permutation(table.num_rows)

    @property
    def rows(self) -> int:
        """How many have not been drawn."""
        return len(self._order)

    @property
    def row_bytes(self) -> float:
        """The bytes of a row, about."""
        return self._row_bytes

    def can_add(self, table: pa.Table) -> bool:
        """Whether the columns can hold the rows of a table."""
        return bool(table.schema.equals(self._schema, check_metadata=True)) and all(
            isinstance(held, _Narrow) or _Wide.can_hold(column)
            for held, column in zip(self._columns, table.columns, strict=True)
        )

    def add(self, table: pa.Table) -> None:
        """Puts the rows of a table into slots that are free; what is left is drawn in another order."""
        total = len(self._order) + table.num_rows
        self._slots = max(self._slots, total)
        is_free = np.ones(self._slots, bool)
        is_free[self._order] = False
        slots = np.flatnonzero(is_free)[: table.num_rows]
        for held, column in zip(self._columns, table.columns, strict=True):
            held.put(column, slots, self._slots)
        self._order = self._random.permutation(np.concatenate([self._order, slots]))

    def draw(self, rows: int) -> pa.Table:
        """So many rows at random, in memory of their own."""
        slots, self._order = self._order[:rows], self._order[rows:]
        if not self._columns:
            return pa.table({"": pa.nulls(len(slots))}).select([])
        return pa.table([column.take(slots) for column in self._columns], schema=self._schema)
