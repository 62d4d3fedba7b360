"""Tensor columns: rows of one shape are Arrow's fixed_shape_tensor, rows of different shapes a type of our own."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from runtime.data._block.arrays import joined, of_numpy
from runtime.data._block.arrays import to_numpy as plain_numpy
from runtime.data._block.objects import object_array

RAGGED_NAME = "runtime.data.ragged_tensor"
FOREIGN_FIXED = ("ray.data.arrow_tensor", "ray.data.arrow_tensor_v2")
"""Names under which files of Ray hold tensors of one shape, with the shape as JSON beside."""

Array = npt.NDArray[Any]


class RaggedTensorScalar(pa.ExtensionScalar):  # type: ignore[misc]
    """One tensor of a ragged column."""

    def as_py(self, **_: Any) -> Array | None:
        """The tensor as an array; None for a null."""
        if self.value is None:
            return None
        data, shape = self.value["data"].values, self.value["shape"].as_py()
        return plain_numpy(data).reshape(shape)


class RaggedTensorType(pa.ExtensionType):  # type: ignore[misc]
    """Tensors of one element type and number of dimensions, each with its own shape.

    The storage is struct<data: large_list<value_type>, shape: fixed_size_list<int32>[ndim]>, row-major.
    """

    def __init__(self, value_type: pa.DataType, ndim: int) -> None:
        self.value_type = value_type
        self.ndim = ndim
        storage = pa.struct([("data", pa.large_list(value_type)), ("shape", pa.list_(pa.int32(), ndim))])
        super().__init__(storage, RAGGED_NAME)

    def __arrow_ext_serialize__(self) -> bytes:
        return json.dumps({"ndim": self.ndim}).encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> RaggedTensorType:
        return cls(storage_type.field("data").type.value_type, json.loads(serialized)["ndim"])

    def __arrow_ext_scalar_class__(self) -> type[RaggedTensorScalar]:
        return RaggedTensorScalar


def register() -> None:
    """Makes pyarrow know the type in this process."""
    try:
        pa.register_extension_type(RaggedTensorType(pa.float32(), 1))
    except pa.ArrowKeyError:  # by an earlier import of this module
        pass


def is_fixed(kind: pa.DataType) -> bool:
    """Whether the type is a tensor column of one shape."""
    return isinstance(kind, pa.FixedShapeTensorType)


def is_ragged(kind: pa.DataType) -> bool:
    """Whether the type is a tensor column with a shape per row."""
    return isinstance(kind, RaggedTensorType)


def is_tensor(kind: pa.DataType) -> bool:
    """Whether the type is a tensor column."""
    return is_fixed(kind) or is_ragged(kind)


def can_hold(dtype: np.dtype[Any]) -> bool:
    """Whether tensors of these elements have a column type: numbers and booleans."""
    return dtype.kind in "biuf" and dtype.itemsize <= 8


def from_numpy(array: Array) -> pa.ExtensionArray:
    """A column whose rows are array[0], array[1], ...; without a copy where the array is contiguous.

    Args:
        array: shape (rows, *shape of a row), at least 2 dimensions.
    """
    rows, shape = array.shape[0], array.shape[1:]
    flat = np.ascontiguousarray(array).reshape(-1)
    if not flat.dtype.isnative:
        flat = flat.astype(flat.dtype.newbyteorder("="))
    values = of_numpy(flat)
    width = math.prod(shape)
    if width:
        storage = pa.FixedSizeListArray.from_arrays(values, width)
    else:  # from_arrays derives the number of rows from the number of elements
        storage = pa.array([[]] * rows, pa.list_(values.type, 0))
    return pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(values.type, shape), storage)


def from_arrays(arrays: Sequence[Array | None]) -> pa.ExtensionArray:
    """A column of tensors: of one shape if they all have it and none is missing, ragged otherwise.

    Raises:
        TypeError: the numbers of dimensions differ, or there is no tensor at all.
    """
    known = [array for array in arrays if array is not None]
    shapes = {array.shape for array in known}
    dimensions = {len(shape) for shape in shapes}
    if len(dimensions) != 1:
        raise TypeError(f"tensors of a column need one number of dimensions, not {sorted(dimensions)}")
    dtype = np.result_type(*{array.dtype for array in known})
    if len(shapes) == 1 and len(known) == len(arrays) and dimensions != {0}:
        return from_numpy(np.stack([np.asarray(array, dtype) for array in known]))
    return _ragged(arrays, dtype, dimensions.pop())


def _ragged(arrays: Sequence[Array | None], dtype: np.dtype[Any], ndim: int) -> pa.ExtensionArray:
    flat = [
        np.empty(0, dtype) if array is None else np.ascontiguousarray(array, dtype).reshape(-1)
        for array in arrays
    ]
    offsets = np.concatenate([[0], np.cumsum([part.size for part in flat])]).astype(np.int64)
    values = pa.array(np.concatenate([np.empty(0, dtype), *flat]))
    data = pa.LargeListArray.from_arrays(pa.array(offsets), values)
    dims = np.array([(0,) * ndim if array is None else array.shape for array in arrays], np.int32)
    if ndim:
        shape = pa.FixedSizeListArray.from_arrays(pa.array(dims.reshape(-1)), ndim)
    else:  # from_arrays derives the number of rows from the number of elements
        shape = pa.array([[]] * len(arrays), pa.list_(pa.int32(), 0))
    missing = pa.array([array is None for array in arrays], pa.bool_())
    storage = pa.StructArray.from_arrays([data, shape], ["data", "shape"], mask=missing)
    return pa.ExtensionArray.from_storage(RaggedTensorType(values.type, ndim), storage)


def to_numpy(column: pa.Array | pa.ChunkedArray) -> Array:
    """The rows of a tensor column.

    Returns:
        Shape (rows, *shape of a row) where rows have one shape: a read-only view of Arrow's memory if the column
        is one chunk, or its chunks adjoin. For ragged columns, and where rows are null, an array of objects: arrays
        and None.
    """
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    if is_ragged(column.type) or column.null_count:
        return object_array([row for chunk in chunks for row in rows(chunk)])
    if not chunks:
        return np.empty((0, *column.type.shape), column.type.value_type.to_pandas_dtype())
    parts = [_fixed_chunk(chunk) for chunk in chunks]
    return parts[0] if len(parts) == 1 else joined(parts)


def _fixed_chunk(chunk: pa.ExtensionArray) -> Array:
    kind = chunk.type
    if kind.permutation is not None:
        return np.asarray(chunk.to_numpy_ndarray())
    storage = chunk.storage
    width = storage.type.list_size
    values = storage.values.slice(storage.offset * width, len(storage) * width)
    return plain_numpy(values).reshape((len(chunk), *kind.shape))


def items(chunk: pa.ExtensionArray) -> Array:
    """Each row of a chunk of one shape as one item without a type, which numpy moves in one go; a view."""
    width = math.prod(chunk.type.shape) * np.dtype(chunk.type.value_type.to_pandas_dtype()).itemsize
    return _fixed_chunk(chunk).reshape(-1).view(np.dtype((np.void, width)))


def of_items(values: Array, kind: pa.DataType) -> pa.ExtensionArray:
    """The column of `items`, over their memory."""
    dtype = np.dtype(kind.value_type.to_pandas_dtype())
    return from_numpy(values.view(dtype).reshape((len(values), *kind.shape)))


def rows(chunk: pa.ExtensionArray) -> list[Array | None]:
    """The tensors of one chunk, as views of Arrow's memory; None for nulls."""
    if is_fixed(chunk.type) and not chunk.null_count:
        return list(_fixed_chunk(chunk))
    valid = chunk.is_valid().to_numpy(zero_copy_only=False)
    if is_fixed(chunk.type):
        stacked = _fixed_chunk(chunk)
        return [row if there else None for row, there in zip(stacked, valid, strict=True)]
    storage = chunk.storage
    data, ndim = storage.field("data"), chunk.type.ndim
    values = plain_numpy(data.values)
    offsets = data.offsets.to_numpy()
    shapes = storage.field("shape")
    dims = shapes.values.slice(shapes.offset * ndim, len(shapes) * ndim).fill_null(0).to_numpy()
    dims = dims.reshape(len(chunk), ndim)
    return [
        values[start:end].reshape(shape) if there else None
        for start, end, shape, there in zip(offsets[:-1], offsets[1:], dims, valid, strict=True)
    ]


def convert(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ExtensionArray:
    """The tensors of a column in another tensor type: with wider elements, ragged instead of fixed."""
    dtype = np.dtype(kind.value_type.to_pandas_dtype())
    if is_fixed(kind) and not column.null_count:
        return from_numpy(to_numpy(column).astype(dtype))
    tensors = [row for chunk in column.chunks for row in rows(chunk)]
    if is_ragged(kind):
        return _ragged(tensors, dtype, kind.ndim)
    width = math.prod(kind.shape)
    storage = pa.array(
        [None if row is None else row.reshape(-1) for row in tensors], pa.list_(kind.value_type, width)
    )
    return pa.ExtensionArray.from_storage(kind, storage)


def adopt_foreign(table: pa.Table) -> pa.Table:
    """Turns tensor columns that Ray wrote into ours: their storage is known, their type is not registered here."""
    for index, field in enumerate(table.schema):
        metadata = field.metadata or {}
        name = metadata.get(b"ARROW:extension:name", b"").decode()
        if name in FOREIGN_FIXED:
            shape = json.loads(metadata[b"ARROW:extension:metadata"])
            flat = [plain_numpy(chunk.flatten()) for chunk in table.column(index).chunks]
            if table.num_rows:
                values = np.concatenate(flat).reshape((table.num_rows, *shape))
            else:
                values = np.empty((0, *shape), field.type.value_type.to_pandas_dtype())
            table = table.set_column(index, field.name, from_numpy(values))
    return table


register()
