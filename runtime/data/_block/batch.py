"""Views of a block at the border to user code: numpy, pandas and polars batches, rows; and the way back."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as types

from runtime.data._block import arrays, objects, tensor, views
from runtime.data._libraries import load

FORMATS = ("default", "numpy", "pandas", "pyarrow", "polars")


def to_batch(table: pa.Table, batch_format: str | None = "default") -> Any:
    """The block as the user asked for it.

    Args:
        batch_format: "default" and "numpy": a dict of arrays; "pandas": a DataFrame; "pyarrow" and None: the table
            itself; "polars": a DataFrame of polars. Arrays are read-only views of the block where they can be.

    Raises:
        ValueError: another format.
    """
    if batch_format in ("default", "numpy"):
        return to_numpy(table)
    if batch_format is None or batch_format == "pyarrow":
        return table
    if batch_format == "pandas":
        return to_pandas(table)
    if batch_format == "polars":
        return load("polars", 'batch_format="polars"').from_arrow(table)
    raise ValueError(f"batch_format {batch_format!r} is none of {', '.join(FORMATS)}")


def to_numpy(table: pa.Table) -> dict[str, npt.NDArray[Any]]:
    """A dict of arrays, one for each column."""
    return {
        name: column_to_numpy(column) for name, column in zip(table.column_names, table.columns, strict=True)
    }


def column_to_numpy(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """One array: without a copy for one chunk of numbers without nulls.

    Integers with nulls become floats with NaN; booleans with nulls, strings and nested values become objects.
    """
    if tensor.is_tensor(column.type):
        return tensor.to_numpy(column)
    if objects.is_objects(column.type):
        return objects.object_array(objects.to_list(column))
    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks == 1:
            column = column.chunk(0)
        elif _is_nested(column.type):  # numpy would be asked to guess a shape
            return objects.object_array(
                [value for chunk in column.chunks for value in column_to_numpy(chunk)]
            )
        else:
            return np.asarray(column.to_numpy())
    if isinstance(column, pa.ExtensionArray):
        return column_to_numpy(column.storage)
    return arrays.to_numpy(column) if not column.null_count else column.to_numpy(zero_copy_only=False)


def is_viewable(column: pa.ChunkedArray) -> bool:
    """Whether `column_to_numpy` gives a view of the column's memory."""
    numbers = types.is_integer(column.type) or types.is_floating(column.type)
    return bool(
        (numbers or tensor.is_fixed(column.type)) and column.num_chunks == 1 and not column.null_count
    )


def to_pandas(table: pa.Table) -> Any:
    """A DataFrame. Tensors and Python objects are columns of objects."""
    special = [
        index
        for index, field in enumerate(table.schema)
        if tensor.is_tensor(field.type) or objects.is_objects(field.type)
    ]
    pd = load("pandas", "A data frame of pandas")
    if not special:
        return table.to_pandas()

    plain = table.select([index for index in range(table.num_columns) if index not in special]).to_pandas()
    columns: dict[str, Any] = {}
    for index, name in enumerate(table.column_names):
        if index in special:
            values = column_to_numpy(table.column(index))
            columns[name] = pd.Series(objects.object_array(list(values)), index=plain.index, dtype=object)
        else:
            columns[name] = plain[name]
    return pd.DataFrame(columns, index=plain.index)


def rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    """The rows as dicts of Python values; tensors are arrays."""
    names = table.column_names
    if not names:
        return ({} for _ in range(table.num_rows))
    columns = [column_to_list(column) for column in table.columns]
    if len(names) == 1:
        name = names[0]
        return ({name: value} for value in columns[0])
    return map(dict, map(zip, itertools.repeat(names), zip(*columns, strict=True)))


def column_to_list(column: pa.ChunkedArray) -> list[Any]:
    """The Python values of a column."""
    if tensor.is_tensor(column.type):
        return [row for chunk in column.chunks for row in tensor.rows(chunk)]
    kind = column.type
    if objects.is_objects(kind):
        return objects.to_list(column)
    fast = _numpy_makes_python(kind, column.null_count)  # many times as fast as to_pylist
    if fast:
        parts = [arrays.to_numpy(chunk).tolist() for chunk in column.chunks]
        return parts[0] if len(parts) == 1 else list(itertools.chain.from_iterable(parts))
    values: list[Any] = column.to_pylist()
    return values


def _numpy_makes_python(kind: pa.DataType, null_count: int) -> bool:
    """Whether a column's values come out of numpy as Arrow makes them, nulls included."""
    if (
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
    ):
        return True
    numbers = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    return bool(numbers and not null_count)


def from_batch(batch: Any) -> pa.Table:
    """The block of what user code returned: a table, a dict of columns, a DataFrame of pandas or polars.

    Raises:
        TypeError: it is something else, or a column is no sequence.
        ValueError: columns have different lengths.
    """
    if isinstance(batch, pa.Table):
        return views.without_views(batch)
    if isinstance(batch, pa.RecordBatch):
        return views.without_views(pa.Table.from_batches([batch]))
    if isinstance(batch, Mapping):
        return views.without_views(_from_columns(batch))
    if _is_of(batch, "pandas", "DataFrame"):
        return _from_pandas(batch)
    if _is_of(batch, "polars", "DataFrame"):
        return views.without_views(batch.to_arrow())
    raise TypeError(
        f"a batch is a dict of columns, a pyarrow.Table, or a DataFrame of pandas or polars, not "
        f"{type(batch).__name__}; a function that makes rows belongs into map or flat_map"
    )


def _is_of(value: Any, module: str, name: str) -> bool:
    """Whether the value is of a class of a library, which is not imported to find out."""
    library = sys.modules.get(module)
    return library is not None and isinstance(value, getattr(library, name))


def _from_columns(batch: Mapping[str, Any]) -> pa.Table:
    columns = {str(name): column_of(values, str(name)) for name, values in batch.items()}
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name!r}: {length}" for name, length in lengths.items())
        raise ValueError(f"columns of a batch need one length, not {told}")
    return pa.table(columns)


def _from_pandas(frame: Any) -> pa.Table:
    try:
        table = pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        table = pa.table({str(name): column_of(frame[name], str(name)) for name in frame.columns})
    else:
        for index, field in enumerate(table.schema):
            if _is_nested(field.type):  # cells may be arrays, of which Arrow makes lists
                table = table.set_column(index, field.name, column_of(frame.iloc[:, index], field.name))
    return table.replace_schema_metadata(None)


def from_rows(items: Iterable[Mapping[str, Any]]) -> pa.Table:
    """The block of rows. Its columns are all keys in order of appearance; a key that a row lacks is null there.

    Raises:
        TypeError: a row is no mapping.
    """
    collected = Rows()
    collected.add(items if isinstance(items, list) else list(items))
    return collected.table()


class Rows:
    """Rows that come in parts, of which only the values are kept: making new dicts in the memory of those before is
    cheaper than to hold all."""

    def __init__(self) -> None:
        self._columns: dict[Any, list[Any]] = {}
        self._number = 0

    def __len__(self) -> int:
        return self._number

    def add(self, rows: list[Any]) -> None:
        """Takes the next rows.

        Raises:
            TypeError: a row is no mapping.
        """
        columns = _columns_of_rows(rows)
        if not self._number:
            self._columns = columns
        else:
            for name in columns:
                if name not in self._columns:
                    self._columns[name] = [None] * self._number
            for name, values in self._columns.items():
                values.extend(columns.get(name) or [None] * len(rows))
        self._number += len(rows)

    def table(self) -> pa.Table:
        """The block. Its columns are all keys in order of appearance; a key that a row lacks is null there."""
        if not self._columns:
            return empty_columns(self._number)
        return pa.table({str(name): column_of(values, str(name)) for name, values in self._columns.items()})


def _columns_of_rows(rows: list[Any]) -> dict[str, list[Any]]:
    try:
        if rows and len(set(map(len, rows))) == 1:  # all rows have the keys of the first, as is common
            return {name: list(map(itemgetter(name), rows)) for name in rows[0].keys()}  # noqa: SIM118 - only of mappings
    except (KeyError, TypeError, AttributeError):
        pass
    for row in rows:
        if not isinstance(row, Mapping):
            raise TypeError(
                f"a row is a dict of column names and values, not {type(row).__name__}: {row!r:.100}"
            )
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def empty_columns(num_rows: int) -> pa.Table:
    """A block without columns that still has rows."""
    return pa.table({"": pa.nulls(num_rows)}).select([])


def column_of(values: Any, name: str = "") -> pa.Array | pa.ChunkedArray:
    """The column of a sequence: arrays of more than one dimension become tensors, what Arrow cannot hold objects.

    Raises:
        TypeError: it is no sequence.
    """
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__len__"):
        raise TypeError(f"column {name!r} of a batch is a sequence, not {type(values).__name__}")
    if _is_of(values, "pandas", "Series"):
        if values.dtype != object:
            return pa.Array.from_pandas(values)
        values = [None if _is_missing(value) else value for value in values]
    elif not isinstance(values, list | tuple | np.ndarray):
        values = _as_array(values)
    if isinstance(values, np.ndarray):
        return _from_array(values, name)
    return _from_sequence(values)


def _is_missing(value: Any) -> bool:
    """Whether pandas shows a null so in a column of objects."""
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def _as_array(values: Any) -> Any:
    """An array of a library's tensor, which may be on a device or have gradients."""
    if hasattr(values, "detach"):
        return np.asarray(values.detach().cpu())
    return np.asarray(values)


def _from_array(values: npt.NDArray[Any], name: str) -> pa.Array:
    if values.ndim == 0:
        raise TypeError(f"column {name!r} of a batch is a sequence, not one value ({values.dtype})")
    if values.dtype == object:
        return _from_sequence(list(values))
    if values.ndim > 1:
        return tensor.from_numpy(values) if tensor.can_hold(values.dtype) else _from_sequence(list(values))
    if not values.dtype.isnative:
        values = values.astype(values.dtype.newbyteorder("="))
    try:
        return arrays.of_numpy(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return _from_sequence(list(values))


def _from_sequence(values: Sequence[Any]) -> pa.Array:
    if any(isinstance(value, np.ndarray) or hasattr(value, "detach") for value in values[:100]):
        made = [None if value is None else _as_array(value) for value in values]
        if all(array is None or tensor.can_hold(array.dtype) for array in made):
            try:
                return tensor.from_arrays(made)
            except TypeError:  # numbers of dimensions differ
                return objects.from_objects(values)
    simple = arrays.of_sequence(values) if arrays.avoids_pandas(len(values)) else None
    if simple is not None:
        return simple
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return objects.from_objects(values)


def _is_nested(kind: pa.DataType) -> bool:
    return bool(types.is_nested(kind))
