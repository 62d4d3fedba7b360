"""Columns of numbers over the memory of numpy arrays, and arrays over that of columns.

pyarrow's own functions import pandas to find out whether values are its. That takes half a second of a process that
has no other use for it, so numbers do not go through them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def of_numpy(values: npt.NDArray[Any]) -> pa.Array:
    """The column of an array of one dimension; numbers without a copy.

    Raises:
        pyarrow.ArrowInvalid, ArrowTypeError, ArrowNotImplementedError: Arrow has no type for them.
    """
    if values.dtype.kind not in "iuf" or not values.dtype.isnative:
        return pa.array(values)
    packed = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(packed.dtype), len(packed), [None, pa.py_buffer(packed)])


def to_numpy(values: pa.Array) -> npt.NDArray[Any]:
    """The values of a column without nulls: a read-only view of its memory for numbers."""
    if not pa.types.is_integer(values.type) and not pa.types.is_floating(values.type):
        return np.asarray(values.to_numpy(zero_copy_only=False))
    dtype = np.dtype(values.type.to_pandas_dtype())
    data = values.buffers()[1]
    if data is None or not len(values):
        return np.empty(0, dtype)
    view = np.frombuffer(data, dtype, len(values), values.offset * dtype.itemsize)
    view.flags.writeable = False
    return view


def make_writable(values: npt.NDArray[Any]) -> None:
    """Lets an array be written to, if its memory can be. For memory that nobody else looks at."""
    try:
        values.flags.writeable = True
    except ValueError:
        pass
