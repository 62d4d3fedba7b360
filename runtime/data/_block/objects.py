"""Columns of Python objects that Arrow has no type for: each row is its pickle."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from typing import Any

import cloudpickle
import numpy as np
import numpy.typing as npt
import pyarrow as pa

NAME = "runtime.data.object"


def _pickled(value: object) -> bytes:
    try:
        return pickle.dumps(value, protocol=5)
    except Exception:  # whatever a class raises; functions and local classes need cloudpickle
        data: bytes = cloudpickle.dumps(value, protocol=5)
        return data


class ObjectScalar(pa.ExtensionScalar):  # type: ignore[misc]
    """One object."""

    def as_py(self, **_: Any) -> Any:
        """The object, unpickled; None for a null."""
        return None if self.value is None else pickle.loads(self.value.as_py())


class ObjectType(pa.ExtensionType):  # type: ignore[misc]
    """Rows are pickles in a large_binary column. Reading one executes the pickle: do not read files of others."""

    def __init__(self) -> None:
        super().__init__(pa.large_binary(), NAME)

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> ObjectType:
        return cls()

    def __arrow_ext_scalar_class__(self) -> type[ObjectScalar]:
        return ObjectScalar


def register() -> None:
    """Makes pyarrow know the type in this process."""
    try:
        pa.register_extension_type(ObjectType())
    except pa.ArrowKeyError:  # by an earlier import of this module
        pass


def from_objects(values: Iterable[object]) -> pa.ExtensionArray:
    """A column of the objects; None becomes null."""
    pickles = [None if value is None else _pickled(value) for value in values]
    return pa.ExtensionArray.from_storage(ObjectType(), pa.array(pickles, pa.large_binary()))


def is_objects(kind: pa.DataType) -> bool:
    """Whether the type is a column of Python objects."""
    return isinstance(kind, ObjectType)


def to_list(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The objects of a column."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return [
        None if data is None else pickle.loads(data) for chunk in chunks for data in chunk.storage.to_pylist()
    ]


def object_array(values: Sequence[Any]) -> npt.NDArray[Any]:
    """A 1-d numpy array of the values as they are, also where they are sequences or arrays themselves."""
    array = np.empty(len(values), dtype=object)
    for index, value in enumerate(values):  # array[:] = values would look into nested sequences
        array[index] = value
    return array


register()
