"""Numbers for groups: rows with equal keys get one number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as types

from runtime.data._block import arrays
from runtime.data._block.hashing import hash_column

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of a table's rows, numbered in order of appearance."""

    of_rows: Numbers
    """The number of each row's group."""
    first_rows: Numbers
    """The first row of each group."""

    @property
    def count(self) -> int:
        """The number of groups."""
        return len(self.first_rows)

    def sizes(self) -> Numbers:
        """The number of rows of each group."""
        return np.bincount(self.of_rows, minlength=self.count)

    def slices(self) -> tuple[Numbers, Numbers]:
        """The rows in order of their groups, and the count + 1 borders of the groups in it."""
        borders = np.zeros(self.count + 1, np.int64)
        np.cumsum(self.sizes(), out=borders[1:])
        if (np.diff(self.of_rows) >= 0).all():
            return np.arange(len(self.of_rows)), borders
        return np.argsort(self.of_rows, kind="stable"), borders


def group(columns: Sequence[pa.Array | pa.ChunkedArray], num_rows: int) -> Groups:
    """The groups of rows by the values of columns; nulls are equal, NaNs are equal, and so are the zeros."""
    if not columns:
        return Groups(np.zeros(num_rows, np.int64), np.arange(min(num_rows, 1)))
    numbers = _numbered(columns[0])
    for column in columns[1:]:
        more = _numbered(column)
        numbers = _in_order_of_appearance(numbers * (int(more.max(initial=0)) + 1) + more)
    return Groups(numbers, _first_rows(numbers))


def _numbered(column: pa.Array | pa.ChunkedArray) -> Numbers:
    """A number for each distinct value, in order of appearance."""
    column = normalized(column)
    kind = column.type
    if types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType):  # Arrow has no dictionaries of them
        return _in_order_of_appearance(hash_column(column).view(np.int64))
    if types.is_null(kind):
        return np.zeros(len(column), np.int64)
    return _dictionary_numbers(column)


def _dictionary_numbers(column: pa.Array | pa.ChunkedArray) -> Numbers:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks)
    encoded = column.dictionary_encode(null_encoding="encode")
    numbers: Numbers = arrays.to_numpy(encoded.indices).astype(np.int64)
    return numbers


def _in_order_of_appearance(numbers: Numbers) -> Numbers:
    return _dictionary_numbers(arrays.of_numpy(numbers))


def _first_rows(numbers: Numbers) -> Numbers:
    """Of numbers in order of appearance: where each is seen first."""
    if not len(numbers):
        return np.empty(0, np.int64)
    seen = np.maximum.accumulate(numbers)
    return np.flatnonzero(np.diff(seen, prepend=-1))


def normalized(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The column with one zero and one NaN if it has floats, and with its values if it is a dictionary."""
    kind = column.type
    if types.is_dictionary(kind):
        return column.cast(kind.value_type)
    if not types.is_floating(kind):
        return column
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    values = array.fill_null(0).to_numpy() + 0  # of -0.0 makes 0.0
    values[np.isnan(values)] = np.nan
    mask = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return pa.array(values, kind, mask=mask, from_pandas=False)
