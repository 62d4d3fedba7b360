"""Arrow values. Their own pickling keeps buffers out of band, but whole ones: a slice of ten rows would take along all
of the table that it was cut from. It also costs about 0.1 ms of Python for each column.

So tables and batches travel in Arrow's IPC format, which has only what a slice holds. That copies, so large whole ones
are pickled array by array all the same, as are chunked arrays; an array that needs much less than its buffers hold is
copied first.
"""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa

SLACK_BYTES = 1024
COLUMN_BYTES = 128 << 10
"""A table whose columns are larger on average is pickled, unless much of its buffers is not its own."""


def _never(_type: Any) -> bool:
    return False


# Not in every version.
_is_string_view = getattr(pa.types, "is_string_view", _never)
_is_binary_view = getattr(pa.types, "is_binary_view", _never)


def reduce(value: Any) -> Any:
    """See `serializers.Reducer`."""
    cls = type(value)
    if cls is pa.Table or cls is pa.RecordBatch:
        return _reduce_rows(value)
    if not isinstance(value, pa.Array) or not is_wasteful(value):
        return NotImplemented
    return compact(value).__reduce__()


def _reduce_rows(rows: Any) -> Any:
    """A table or batch in Arrow's format, or NotImplemented."""
    columns, needed, is_table = rows.num_columns, rows.nbytes, type(rows) is pa.Table
    if not columns or any(map(_is_pickled, rows.schema.types)):
        return NotImplemented
    held = rows.get_total_buffer_size()
    if needed > COLUMN_BYTES * columns and held <= needed + needed // 4:
        return NotImplemented
    sink = pa.BufferOutputStream()
    try:
        if not rows.num_rows:  # an empty slice may be written with all of its buffers
            rows = rows.schema.empty_table() if is_table else pa.RecordBatch.from_pylist([], rows.schema)
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write(rows)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return NotImplemented
    return read_table if is_table else read_batch, (pickle.PickleBuffer(sink.getvalue()),)


def _is_pickled(kind: Any) -> bool:
    """Whether Arrow's format is wrong for a type: a reader may not know an extension, and views keep all their data."""
    if isinstance(kind, pa.BaseExtensionType) or _is_string_view(kind) or _is_binary_view(kind):
        return True
    if pa.types.is_dictionary(kind):
        return _is_pickled(kind.value_type)
    return any(_is_pickled(kind.field(i).type) for i in range(kind.num_fields))


def read_table(data: Any) -> pa.Table:
    """The table in these bytes, in place."""
    return pa.ipc.open_stream(pa.py_buffer(data)).read_all()


def read_batch(data: Any) -> pa.RecordBatch:
    """The batch in these bytes, in place."""
    return pa.ipc.open_stream(pa.py_buffer(data)).read_next_batch()


def is_wasteful(array: pa.Array) -> bool:
    """Whether the buffers of an array hold much more than the array needs."""
    if _is_string_view(array.type) or _is_binary_view(array.type):
        # What it needs of the data cannot be had without reading it: the views tell enough.
        held, needed = array.buffers()[1].size, 16 * len(array)
    else:
        held, needed = array.get_total_buffer_size(), array.nbytes
    return bool(held > needed + needed // 4 + SLACK_BYTES)


def compact(array: pa.Array) -> pa.Array:
    """An equal array whose buffers hold only what it needs. The values of a dictionary stay as they are: they are
    part of what two arrays are compared by. Types that Arrow cannot copy come back as they are.
    """
    try:
        if _is_string_view(array.type):
            return array.cast(pa.large_string()).cast(array.type)
        if _is_binary_view(array.type):
            return array.cast(pa.large_binary()).cast(array.type)
        if isinstance(array, pa.ExtensionArray):
            return pa.ExtensionArray.from_storage(array.type, compact(array.storage))
        copied = pa.concat_arrays([array])
        if is_wasteful(copied):  # dense unions keep their children
            copied = array.take(pa.array(range(len(array)), pa.int64()))
        return copied
    except pa.ArrowNotImplementedError:
        return array
