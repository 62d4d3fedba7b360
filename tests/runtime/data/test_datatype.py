"""DataType: there and back between Arrow, numpy and Python."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from runtime.data._block import objects, tensor
from runtime.data.datatype import DataType, TypeCategory, arrow_type


def test_simple_types() -> None:
    for name in "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64".split():
        made = getattr(DataType, name)()
        assert made == DataType.from_arrow(getattr(pa, name)())
        assert made.to_numpy_dtype() == np.dtype(name)
        assert made.is_numerical_type()
        assert made.to_python_type() is (float if "float" in name else int)
    assert DataType.string().to_python_type() is str
    assert DataType.bool().to_python_type() is bool
    assert DataType.binary().to_python_type() is bytes
    assert DataType.string().to_numpy_dtype() == np.dtype(object)


def test_nested_types() -> None:
    whole = DataType.int64()
    assert DataType.list(whole).to_arrow_dtype() == pa.list_(pa.int64())
    assert DataType.large_list(whole).is_list_type()
    assert DataType.fixed_size_list(whole, 3).to_arrow_dtype() == pa.list_(pa.int64(), 3)
    struct = DataType.struct([("a", whole), ("b", DataType.string())])
    assert struct.to_arrow_dtype() == pa.struct([("a", pa.int64()), ("b", pa.string())])
    assert struct.is_struct_type()
    assert struct.is_nested_type()
    assert struct.to_python_type() is dict
    assert DataType.map(DataType.string(), whole).is_map_type()
    assert DataType.tensor((2, 3), DataType.float32()).to_arrow_dtype() == pa.fixed_shape_tensor(
        pa.float32(), (2, 3)
    )
    assert tensor.is_ragged(DataType.variable_shaped_tensor(DataType.float32(), 3).to_arrow_dtype())
    assert DataType.tensor((2,), whole).is_tensor_type()
    assert DataType.tensor((2,), whole).to_numpy_dtype() == np.dtype("int64")


def test_times() -> None:
    assert DataType.temporal("timestamp", "ms", "UTC").to_arrow_dtype() == pa.timestamp("ms", "UTC")
    assert DataType.temporal("date32").is_temporal_type()
    with pytest.raises(ValueError, match="'week' is none of timestamp"):
        DataType.temporal("week")
    with pytest.raises(ValueError, match="no Python class"):
        DataType.temporal("duration").to_python_type()


def test_patterns() -> None:
    for name in ("list", "large_list", "struct", "map", "tensor", "temporal"):
        pattern = getattr(DataType, name)()
        assert pattern.is_of(name)
        assert pattern.is_of(TypeCategory(name))
        assert not pattern.is_integer_type()
        with pytest.raises(TypeError, match="is a pattern of types"):
            pattern.to_arrow_dtype()
    assert not DataType.int64().is_of("list")


def test_types_of_others() -> None:
    assert DataType.from_numpy("int32").is_numpy_type()
    assert DataType.from_numpy("int32").to_arrow_dtype() == pa.int32()
    assert DataType.from_dtype(np.float32) == DataType.from_numpy("float32")
    assert DataType.from_dtype(pa.int8()) == DataType.int8()
    python = DataType.from_dtype(int)
    assert python is not None
    assert python.is_python_type()
    assert python.to_arrow_dtype() == pa.int64()
    assert DataType(set).to_arrow_dtype() == objects.ObjectType()
    assert DataType(list).to_arrow_dtype([[1, 2]]) == pa.list_(pa.int64())
    assert DataType.from_dtype("text") is None
    assert arrow_type(DataType.bool()) == arrow_type(bool) == pa.bool_()
    with pytest.raises(TypeError, match="not 'text'"):
        arrow_type("text")


def test_inferred_types() -> None:
    assert DataType.infer_dtype(1) == DataType.int64()
    assert DataType.infer_dtype("a") == DataType.string()
    assert DataType.infer_dtype(np.float32(1)) == DataType.from_numpy("float32")
    assert DataType.infer_dtype(np.zeros((2, 3))) == DataType.tensor((2, 3), DataType.float64())
    assert DataType.infer_dtype([1]) == DataType.list(DataType.int64())
    assert DataType.infer_dtype(None).is_null_type()


def test_kinds_and_texts() -> None:
    assert DataType.string().is_string_type()
    assert DataType.binary().is_binary_type()
    assert DataType.bool().is_boolean_type()
    assert DataType.float32().is_floating_type()
    assert DataType.int8().is_arrow_type()
    assert repr(DataType.int8()) == "DataType(arrow:int8)"
    assert repr(DataType(int)) == "DataType(python:int)"
    assert repr(DataType.from_numpy("f4")) == "DataType(numpy:float32)"
    assert repr(DataType.list()) == "DataType(any list)"
    assert len({DataType.int8(), DataType.int8()}) == 1
