"""`DataType`: one name for the types of Arrow, numpy and Python, for casts, user functions and schemas."""

from __future__ import annotations

import builtins
import enum
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as types

from runtime.data._block import batch, objects, tensor


class TypeCategory(enum.StrEnum):
    """Kinds of types that have parameters: `DataType.list()` without an element type is any list."""

    LIST = "list"
    LARGE_LIST = "large_list"
    STRUCT = "struct"
    MAP = "map"
    TENSOR = "tensor"
    TEMPORAL = "temporal"


_PYTHON: dict[type, pa.DataType] = {
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    str: pa.string(),
    bytes: pa.binary(),
}


@dataclass(frozen=True)
class DataType:
    """A type: made by one of the class methods, e.g. `DataType.int64()`, `DataType.list(DataType.string())`.

    Attributes:
        physical: the `pyarrow.DataType`, `numpy.dtype` or Python class it was made of; for patterns such as
            `DataType.list()` a `TypeCategory`.
    """

    physical: Any

    @classmethod
    def from_arrow(cls, arrow_type: pa.DataType) -> DataType:
        """Of a type of Arrow."""
        return cls(arrow_type)

    @classmethod
    def from_numpy(cls, numpy_dtype: np.dtype[Any] | str) -> DataType:
        """Of a type of numpy or its name."""
        return cls(np.dtype(numpy_dtype))

    @classmethod
    def from_dtype(cls, dtype: Any) -> DataType | None:
        """Of a type of any of the three, or a DataType; None for something else."""
        if isinstance(dtype, DataType):
            return dtype
        if isinstance(dtype, pa.DataType):
            return cls(dtype)
        if isinstance(dtype, np.dtype) or (isinstance(dtype, type) and issubclass(dtype, np.generic)):
            return cls(np.dtype(dtype))
        return cls(dtype) if isinstance(dtype, type) else None

    @classmethod
    def infer_dtype(cls, value: Any) -> DataType:
        """Of a value: an element of a column of it."""
        if isinstance(value, np.ndarray):
            return cls(tensor.from_arrays([value]).type)
        if isinstance(value, np.generic):
            return cls(value.dtype)
        return cls(batch.column_of([value]).type)

    @classmethod
    def int8(cls) -> DataType:
        """Arrow's int8."""
        return cls(pa.int8())

    @classmethod
    def int16(cls) -> DataType:
        """Arrow's int16."""
        return cls(pa.int16())

    @classmethod
    def int32(cls) -> DataType:
        """Arrow's int32."""
        return cls(pa.int32())

    @classmethod
    def int64(cls) -> DataType:
        """Arrow's int64."""
        return cls(pa.int64())

    @classmethod
    def uint8(cls) -> DataType:
        """Arrow's uint8."""
        return cls(pa.uint8())

    @classmethod
    def uint16(cls) -> DataType:
        """Arrow's uint16."""
        return cls(pa.uint16())

    @classmethod
    def uint32(cls) -> DataType:
        """Arrow's uint32."""
        return cls(pa.uint32())

    @classmethod
    def uint64(cls) -> DataType:
        """Arrow's uint64."""
        return cls(pa.uint64())

    @classmethod
    def float32(cls) -> DataType:
        """Arrow's float32."""
        return cls(pa.float32())

    @classmethod
    def float64(cls) -> DataType:
        """Arrow's float64."""
        return cls(pa.float64())

    @classmethod
    def string(cls) -> DataType:
        """Arrow's string."""
        return cls(pa.string())

    @classmethod
    def binary(cls) -> DataType:
        """Arrow's binary."""
        return cls(pa.binary())

    @classmethod
    def bool(cls) -> DataType:
        """Arrow's bool."""
        return cls(pa.bool_())

    @classmethod
    def list(cls, value_type: DataType | None = None) -> DataType:
        """Lists; without a type of elements, the pattern of all lists."""
        return cls(TypeCategory.LIST if value_type is None else pa.list_(value_type.to_arrow_dtype()))

    @classmethod
    def large_list(cls, value_type: DataType | None = None) -> DataType:
        """Lists with offsets of 64 bits."""
        return cls(
            TypeCategory.LARGE_LIST if value_type is None else pa.large_list(value_type.to_arrow_dtype())
        )

    @classmethod
    def fixed_size_list(cls, value_type: DataType, list_size: int) -> DataType:
        """Lists of one length."""
        return cls(pa.list_(value_type.to_arrow_dtype(), list_size))

    @classmethod
    def struct(cls, fields: Any = None) -> DataType:
        """Structs of (name, type) pairs."""
        if fields is None:
            return cls(TypeCategory.STRUCT)
        return cls(pa.struct([(name, kind.to_arrow_dtype()) for name, kind in fields]))

    @classmethod
    def map(cls, key_type: DataType | None = None, value_type: DataType | None = None) -> DataType:
        """Maps."""
        if key_type is None or value_type is None:
            return cls(TypeCategory.MAP)
        return cls(pa.map_(key_type.to_arrow_dtype(), value_type.to_arrow_dtype()))

    @classmethod
    def tensor(cls, shape: tuple[int, ...] | None = None, dtype: DataType | None = None) -> DataType:
        """Tensors of one shape."""
        if shape is None or dtype is None:
            return cls(TypeCategory.TENSOR)
        return cls(pa.fixed_shape_tensor(dtype.to_arrow_dtype(), shape))

    @classmethod
    def variable_shaped_tensor(cls, dtype: DataType, ndim: int = 2) -> DataType:
        """Tensors with a shape each."""
        return cls(tensor.RaggedTensorType(dtype.to_arrow_dtype(), ndim))

    @classmethod
    def temporal(
        cls, temporal_type: str | None = None, unit: str | None = None, tz: str | None = None
    ) -> DataType:
        """Times: "timestamp", "date32", "date64", "time32", "time64" or "duration".

        Args:
            unit: "s", "ms", "us" or "ns".
            tz: of a timestamp.
        """
        if temporal_type is None:
            return cls(TypeCategory.TEMPORAL)
        made = {
            "timestamp": lambda: pa.timestamp(unit or "us", tz),
            "date32": pa.date32,
            "date64": pa.date64,
            "time32": lambda: pa.time32(unit or "s"),
            "time64": lambda: pa.time64(unit or "us"),
            "duration": lambda: pa.duration(unit or "us"),
        }
        if temporal_type not in made:
            raise ValueError(f"temporal type {temporal_type!r} is none of {', '.join(made)}")
        return cls(made[temporal_type]())

    def to_arrow_dtype(self, values: Any = None) -> pa.DataType:
        """The type of Arrow.

        Args:
            values: a column of values, of which the type is inferred if it is a class that Arrow has no type for.
        """
        if isinstance(self.physical, pa.DataType):
            return self.physical
        if isinstance(self.physical, np.dtype):
            return pa.from_numpy_dtype(self.physical)
        if isinstance(self.physical, TypeCategory):
            raise TypeError(f"{self!r} is a pattern of types, not a type: give it its parameters")
        if self.physical in _PYTHON:
            return _PYTHON[self.physical]
        return objects.ObjectType() if values is None else batch.column_of(values).type

    def to_numpy_dtype(self) -> np.dtype[Any]:
        """The type of numpy; object for what numpy has no type for."""
        if isinstance(self.physical, np.dtype):
            return np.dtype(self.physical)
        kind = self.to_arrow_dtype()
        if tensor.is_fixed(kind):
            kind = kind.value_type
        try:
            made: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        except (NotImplementedError, TypeError):
            return np.dtype(object)
        return made

    def to_python_type(self) -> type:
        """The class of Python values.

        Raises:
            ValueError: there is no single one.
        """
        if isinstance(self.physical, type):
            return self.physical
        kind = self.to_arrow_dtype()
        checks = (
            (types.is_boolean, bool),
            (types.is_integer, int),
            (types.is_floating, float),
            (_is_string, str),
            (_is_binary, bytes),
            (types.is_map, dict),
            (types.is_struct, dict),
            (_is_list, list),
        )
        for check, made in checks:
            if check(kind):
                return made
        raise ValueError(f"values of {kind} have no Python class of their own")

    def is_arrow_type(self) -> builtins.bool:
        """Whether it was made of a type of Arrow."""
        return isinstance(self.physical, pa.DataType)

    def is_numpy_type(self) -> builtins.bool:
        """Whether it was made of a type of numpy."""
        return isinstance(self.physical, np.dtype)

    def is_python_type(self) -> builtins.bool:
        """Whether it was made of a Python class."""
        return isinstance(self.physical, type)

    def is_of(self, category: TypeCategory | str) -> builtins.bool:
        """Whether it is of the category."""
        category = TypeCategory(category)
        if isinstance(self.physical, TypeCategory):
            return self.physical == category
        check = {
            TypeCategory.LIST: _is_list,
            TypeCategory.LARGE_LIST: types.is_large_list,
            TypeCategory.STRUCT: types.is_struct,
            TypeCategory.MAP: types.is_map,
            TypeCategory.TENSOR: tensor.is_tensor,
            TypeCategory.TEMPORAL: types.is_temporal,
        }[category]
        return bool(check(self.to_arrow_dtype()))

    def is_list_type(self) -> builtins.bool:
        """Whether it is a list, of any kind."""
        return self.is_of(TypeCategory.LIST)

    def is_struct_type(self) -> builtins.bool:
        """Whether it is a struct."""
        return self.is_of(TypeCategory.STRUCT)

    def is_map_type(self) -> builtins.bool:
        """Whether it is a map."""
        return self.is_of(TypeCategory.MAP)

    def is_tensor_type(self) -> builtins.bool:
        """Whether it is a tensor."""
        return self.is_of(TypeCategory.TENSOR)

    def is_temporal_type(self) -> builtins.bool:
        """Whether it is a time."""
        return self.is_of(TypeCategory.TEMPORAL)

    def is_nested_type(self) -> builtins.bool:
        """Whether it has elements or fields."""
        return self._holds(types.is_nested)

    def is_string_type(self) -> builtins.bool:
        """Whether it is text."""
        return self._holds(_is_string)

    def is_binary_type(self) -> builtins.bool:
        """Whether it is bytes."""
        return self._holds(_is_binary)

    def is_boolean_type(self) -> builtins.bool:
        """Whether it is a truth value."""
        return self._holds(types.is_boolean)

    def is_integer_type(self) -> builtins.bool:
        """Whether it is an integer."""
        return self._holds(types.is_integer)

    def is_floating_type(self) -> builtins.bool:
        """Whether it is a float."""
        return self._holds(types.is_floating)

    def is_numerical_type(self) -> builtins.bool:
        """Whether it is an integer, a float or a decimal."""
        return self._holds(
            lambda kind: types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
        )

    def is_null_type(self) -> builtins.bool:
        """Whether it is the type of null only."""
        return self._holds(types.is_null)

    def _holds(self, check: Any) -> builtins.bool:
        return not isinstance(self.physical, TypeCategory) and bool(check(self.to_arrow_dtype()))

    def __repr__(self) -> str:
        kind = self.physical
        if isinstance(kind, TypeCategory):
            return f"DataType(any {kind.value})"
        source = "arrow" if self.is_arrow_type() else "numpy" if self.is_numpy_type() else "python"
        return f"DataType({source}:{kind.__name__ if isinstance(kind, type) else kind})"


def _is_string(kind: pa.DataType) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def arrow_type(kind: Any) -> pa.DataType:
    """The type of Arrow of a DataType, or of a type of Arrow, numpy or Python.

    Raises:
        TypeError: it is none of them.
    """
    made = DataType.from_dtype(kind)
    if made is None:
        raise TypeError(f"a type is a DataType or one of Arrow, numpy or Python, not {kind!r}")
    return made.to_arrow_dtype()
