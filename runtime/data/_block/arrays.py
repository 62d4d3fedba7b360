"""Columns of numbers over the memory of numpy arrays, and arrays over that of columns.

pyarrow's own functions import pandas to find out whether values are its. That takes half a second of a process that
has no other use for it, so numbers, texts and lists of them do not go through them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_MOST_VALUES = 2_000_000
"""Converting so many values without pyarrow's functions, which are faster, costs as much as the import of pandas."""
_converted = 0


def avoids_pandas(count: int) -> bool:
    """Whether to convert `count` more values without pyarrow's functions, as this process has no pandas yet."""
    global _converted
    if "pandas" in sys.modules:
        return False
    _converted += count
    return _converted <= _MOST_VALUES


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
    if pa.types.is_boolean(values.type) and len(values):
        bits = np.frombuffer(values.buffers()[1], np.uint8)
        stored = np.unpackbits(bits, count=values.offset + len(values), bitorder="little")
        return stored[values.offset :].astype(bool)
    is_text = pa.types.is_string(values.type) or pa.types.is_binary(values.type)
    if is_text and avoids_pandas(len(values)):
        return np.array([*values.to_pylist(), None], object)[:-1]
    if not pa.types.is_integer(values.type) and not pa.types.is_floating(values.type):
        return np.asarray(values.to_numpy(zero_copy_only=False))
    dtype = np.dtype(values.type.to_pandas_dtype())
    data = values.buffers()[1]
    if data is None or not len(values):
        return np.empty(0, dtype)
    view = np.frombuffer(data, dtype, len(values), values.offset * dtype.itemsize)
    view.flags.writeable = False
    return view


def joined(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Arrays of one type and row shape as one: a read-only view if their memory adjoins, or else a copy.

    The chunks of a column adjoin in the object store if each fills its last 64 bytes. So a block that was made of
    several batches is not copied when it is read in larger ones.

    Args:
        parts: at least one.
    """
    first, ends = parts[0], 0
    for number, part in enumerate(parts):
        begins = part.__array_interface__["data"][0]
        if not part.flags.c_contiguous or (number and begins != ends):
            return np.concatenate(parts)
        ends = begins + part.nbytes
    begins = first.__array_interface__["data"][0]
    if ends == begins:  # there are no bytes to view
        return np.concatenate(parts)
    memory = pa.foreign_buffer(begins, ends - begins, base=tuple(parts))
    return np.frombuffer(memory, first.dtype).reshape((-1, *first.shape[1:]))


def make_writable(values: npt.NDArray[Any]) -> None:
    """Lets an array be written to, if its memory can be. For memory that nobody else looks at."""
    try:
        values.flags.writeable = True
    except ValueError:
        pass


def of_sequence(values: Sequence[Any]) -> pa.Array | None:
    """The column of Python values of one simple type, with nulls, or of lists of such; None for all others.

    The result is that of `pa.array`.
    """
    kinds = set(map(type, values))
    has_nulls = type(None) in kinds
    kinds.discard(type(None))
    if not kinds:
        return pa.nulls(len(values))
    if len(kinds) > 1:
        return None
    kind = kinds.pop()
    if kind in (int, float, bool):
        return _of_numbers(values, kind, has_nulls)
    if kind is str or kind is bytes:
        return _of_texts(values, kind, has_nulls)
    if kind is list:
        return _of_lists(values, has_nulls)
    if issubclass(kind, np.number) and not has_nulls and np.dtype(kind).kind in "iuf":
        return of_numpy(np.array(values, kind))
    return None


def _of_numbers(values: Sequence[Any], kind: type, has_nulls: bool) -> pa.Array | None:
    filled = [0 if value is None else value for value in values] if has_nulls else values
    if kind is bool:
        bits = pa.py_buffer(np.packbits(np.array(filled, bool), bitorder="little"))
        return pa.Array.from_buffers(pa.bool_(), len(values), [_validity(values, has_nulls), bits])
    try:
        packed = np.array(filled, np.int64 if kind is int else np.float64)
    except OverflowError:
        return None
    buffers = [_validity(values, has_nulls), pa.py_buffer(packed)]
    return pa.Array.from_buffers(pa.from_numpy_dtype(packed.dtype), len(values), buffers)


def _of_texts(values: Sequence[Any], kind: type, has_nulls: bool) -> pa.Array | None:
    filled = [kind() if value is None else value for value in values] if has_nulls else values
    try:
        parts = [value.encode() for value in filled] if kind is str else filled
    except UnicodeEncodeError:
        return None
    offsets = _offsets(parts)
    if offsets is None:
        return None
    buffers = [_validity(values, has_nulls), offsets, pa.py_buffer(b"".join(parts))]
    return pa.Array.from_buffers(pa.string() if kind is str else pa.binary(), len(values), buffers)


def _of_lists(values: Sequence[Any], has_nulls: bool) -> pa.Array | None:
    parts = [[] if value is None else value for value in values] if has_nulls else values
    items = of_sequence([item for part in parts for item in part])
    offsets = _offsets(parts)
    if items is None or offsets is None:
        return None
    buffers = [_validity(values, has_nulls), offsets]
    return pa.Array.from_buffers(pa.list_(items.type), len(values), buffers, children=[items])


def _validity(values: Sequence[Any], has_nulls: bool) -> pa.Buffer | None:
    if not has_nulls:
        return None
    return pa.py_buffer(np.packbits([value is not None for value in values], bitorder="little"))


def _offsets(parts: Sequence[Any]) -> pa.Buffer | None:
    """Where each part begins, and where the last one ends; None if 32 bits are too few."""
    offsets = np.zeros(len(parts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts)), out=offsets[1:])
    return None if offsets[-1] > np.iinfo(np.int32).max else pa.py_buffer(offsets.astype(np.int32))
