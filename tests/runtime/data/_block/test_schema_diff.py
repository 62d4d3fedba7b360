"""Schemas that go together are widened; others are named with both types and sources."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from runtime.data._block import batch, objects, schema_diff, tensor
from runtime.data._block.schema_diff import SchemaMismatchError, Source

TOGETHER: list[tuple[Any, Any, Any]] = [
    (pa.int32(), pa.int64(), pa.int64()),
    (pa.int64(), pa.float32(), pa.float64()),
    (pa.int8(), pa.float64(), pa.float64()),
    (pa.float16(), pa.float32(), pa.float32()),
    (pa.null(), pa.string(), pa.string()),
    (pa.string(), pa.large_string(), pa.large_string()),
    (pa.timestamp("s"), pa.timestamp("ns"), pa.timestamp("ns")),
    (pa.date32(), pa.timestamp("us"), pa.timestamp("us")),
    (pa.decimal128(10, 2), pa.decimal128(12, 4), pa.decimal128(12, 4)),
    (pa.dictionary(pa.int32(), pa.string()), pa.string(), pa.string()),
    (pa.list_(pa.int32()), pa.list_(pa.float64()), pa.list_(pa.float64())),
    (pa.list_(pa.null()), pa.large_list(pa.string()), pa.large_list(pa.string())),
    (pa.list_(pa.int32(), 2), pa.list_(pa.int32(), 3), pa.list_(pa.int32())),
    (
        pa.struct([("a", pa.int32())]),
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
    ),
    (pa.fixed_shape_tensor(pa.int32(), (2,)), pa.fixed_shape_tensor(pa.int64(), (2,)), None),
    (pa.fixed_shape_tensor(pa.int32(), (2,)), pa.fixed_shape_tensor(pa.int32(), (3,)), None),
    (objects.ObjectType(), pa.string(), objects.ObjectType()),
]
APART: list[tuple[Any, Any]] = [
    (pa.string(), pa.int64()),
    (pa.timestamp("us"), pa.timestamp("us", "UTC")),
    (pa.list_(pa.int64()), pa.int64()),
    (pa.struct([("a", pa.int64())]), pa.struct([("a", pa.string())])),
    (pa.fixed_shape_tensor(pa.int32(), (2,)), pa.fixed_shape_tensor(pa.int32(), (2, 2))),
    (pa.fixed_shape_tensor(pa.int32(), (2,)), pa.list_(pa.int32())),
    (pa.bool_(), pa.string()),
]


@pytest.mark.parametrize(("left", "right", "common"), TOGETHER, ids=str)
def test_types_that_go_together(left: Any, right: Any, common: Any) -> None:
    for one, other in ((left, right), (right, left)):
        got = schema_diff.common_type(one, other)
        assert got is not None
        assert common is None or got == common


@pytest.mark.parametrize(("left", "right"), APART, ids=str)
def test_types_that_do_not(left: Any, right: Any) -> None:
    assert schema_diff.common_type(left, right) is None
    assert schema_diff.common_type(right, left) is None


def test_the_error_says_all_that_is_known() -> None:
    first = (pa.schema([("a", pa.int64()), ("b", pa.int64())]), Source("ReadCSV", "a.csv", 0))
    second = (pa.schema([("b", pa.string())]), Source("MapBatches(clean)", None, 1200))
    with pytest.raises(SchemaMismatchError) as caught:
        schema_diff.unify([first, second])
    text = str(pickle.loads(pickle.dumps(caught.value)))
    for part in ("'b'", "int64", "string", "ReadCSV", "a.csv", "MapBatches(clean)", "row 1200"):
        assert part in text


def test_tables_of_different_schemas_are_joined() -> None:
    tables = [
        pa.table({"a": pa.array([1], pa.int32()), "s": [{"x": 1}]}),
        pa.table({"a": pa.nulls(1), "b": ["z"], "s": [{"y": [1]}]}),
        pa.table({"b": pa.array(["w"]).dictionary_encode(), "a": [2.5]}),
        pa.table({"c": pa.array([], pa.int64())}),
    ]
    assert schema_diff.concat(tables).to_pydict() == {
        "a": [1.0, None, 2.5],
        "s": [{"x": 1, "y": None}, {"x": None, "y": [1]}, None],
        "b": [None, "z", "w"],
        "c": [None, None, None],
    }


def test_tensors_of_several_shapes() -> None:
    tables = [
        pa.table({"t": tensor.from_numpy(np.ones((2, 2), np.float32))}),
        pa.table({"t": tensor.from_numpy(np.ones((1, 3)))}),
        pa.table({"u": [1]}),
    ]
    column = schema_diff.concat(tables)["t"]
    assert tensor.is_ragged(column.type)
    assert [None if row is None else (row.dtype, row.shape) for row in tensor.to_numpy(column)] == [
        (np.dtype("float64"), (2,)),
        (np.dtype("float64"), (2,)),
        (np.dtype("float64"), (3,)),
        None,
    ]


def test_a_fixed_tensor_with_nulls_is_widened() -> None:
    narrow = tensor.from_numpy(np.ones((2, 2), np.int32)).take(pa.array([0, None]))
    tables = [pa.table({"t": narrow}), pa.table({"t": tensor.from_numpy(np.zeros((1, 2)))})]
    column = schema_diff.concat(tables)["t"]
    assert tensor.is_fixed(column.type)
    assert [None if row is None else row.tolist() for row in tensor.to_numpy(column)] == [
        [1, 1],
        None,
        [0, 0],
    ]


def test_objects_take_all() -> None:
    tables = [pa.table({"o": [1]}), pa.table({"o": objects.from_objects([{1}])})]
    assert [row["o"] for row in batch.rows(schema_diff.concat(tables))] == [1, {1}]


def test_blocks_without_columns_keep_their_rows() -> None:
    tables = [batch.empty_columns(2), batch.empty_columns(3)]
    assert schema_diff.concat(tables).num_rows == 5
    mixed = schema_diff.concat([*tables, pa.table({"a": [1]})])
    assert mixed.to_pydict() == {"a": [None] * 5 + [1]}
