"""Arrow arrays. Their own pickling keeps buffers out of band, but whole ones: a slice of ten rows would take along all
of the table that it was cut from. An array that needs much less than its buffers hold is copied first.

Tables, batches and chunked arrays are pickled array by array, and so come here with each of their arrays.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

SLACK_BYTES = 1024


def _never(_type: Any) -> bool:
    return False


# Not in every version.
_is_string_view = getattr(pa.types, "is_string_view", _never)
_is_binary_view = getattr(pa.types, "is_binary_view", _never)


def reduce(value: Any) -> Any:
    """See `serializers.Reducer`."""
    if not isinstance(value, pa.Array) or not is_wasteful(value):
        return NotImplemented
    return compact(value).__reduce__()


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
