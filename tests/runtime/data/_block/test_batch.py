"""What user code sees of a block, and which block its results become."""

from __future__ import annotations

import datetime
import decimal
import enum
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from runtime.data._block import batch, objects, tensor

COLUMNS: dict[str, pa.Array] = {
    "int": pa.array([1, 2, 3]),
    "int with null": pa.array([1, None, 3]),
    "float": pa.array([1.5, float("nan"), None]),
    "bool": pa.array([True, False, True]),
    "text": pa.array(["a", None, ""]),
    "large text": pa.array(["a", "ß", ""], pa.large_string()),
    "bytes": pa.array([b"a", b"", None]),
    "dictionary": pa.array(["a", "b", "a"]).dictionary_encode(),
    "decimal": pa.array([decimal.Decimal("1.50"), None, decimal.Decimal("-2.25")]),
    "timestamp": pa.array([datetime.datetime(2026, 1, 2, 3, 4, 5, 6), None, datetime.datetime(1970, 1, 1)]),
    "zoned": pa.array([1, 2, None], pa.timestamp("us", "UTC")),
    "date": pa.array([datetime.date(2026, 1, 2), None, datetime.date(1960, 1, 1)]),
    "duration": pa.array([datetime.timedelta(1), None, datetime.timedelta(0)]),
    "list": pa.array([[1, 2], [], None]),
    "struct": pa.array([{"a": 1, "b": "x"}, {"a": None, "b": "y"}, None]),
    "map": pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int64())),
    "null": pa.nulls(3),
    "tensor": tensor.from_numpy(np.arange(12).reshape(3, 2, 2)),
    "ragged": tensor.from_arrays([np.ones(1), np.ones(2), np.ones(3)]),
    "object": objects.from_objects([{1, 2}, None, print]),
}


def same(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return np.array_equal(left, right)
    return bool(left == right or (left != left and right != right))


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("cut", ["whole", "slice", "chunks"])
def test_rows_come_back(name: str, cut: str) -> None:
    column = COLUMNS[name]
    if cut == "slice":
        table = pa.table({"x": pa.concat_arrays([column, column])}).slice(2, 3)
    elif cut == "chunks":
        table = pa.table({"x": pa.chunked_array([column.slice(0, 1), column.slice(1, 0), column.slice(1)])})
    else:
        table = pa.table({"x": column})
    rows = list(batch.rows(table))
    back = list(batch.rows(batch.from_rows(rows)))
    assert len(rows) == 3
    assert all(same(left["x"], right["x"]) for left, right in zip(rows, back, strict=True))


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("batch_format", ["numpy", "pandas", "pyarrow"])
def test_batches_come_back(name: str, batch_format: str) -> None:
    table = pa.table({"x": pa.chunked_array([COLUMNS[name].slice(0, 1), COLUMNS[name].slice(1)])})
    back = batch.from_batch(batch.to_batch(table, batch_format))
    assert back.column_names == ["x"]
    assert back.num_rows == 3
    if name in ("int", "bool", "tensor", "ragged", "text", "list", "timestamp", "decimal", "dictionary"):
        for left, right in zip(batch.rows(table), batch.rows(back), strict=True):
            assert same(left["x"], right["x"])


@pytest.mark.parametrize(
    ("column", "dtype"),
    [
        ("int", "int64"),
        ("int with null", "float64"),
        ("float", "float64"),
        ("bool", "bool"),
        ("text", "O"),
        ("timestamp", "datetime64[us]"),
        ("list", "O"),
        ("tensor", "int64"),
        ("object", "O"),
    ],
)
def test_dtypes_of_numpy_batches(column: str, dtype: str) -> None:
    assert batch.to_batch(pa.table({"x": COLUMNS[column]}))["x"].dtype == np.dtype(dtype)


def test_numbers_are_not_copied() -> None:
    column = pa.array(np.arange(10))
    view = batch.to_numpy(pa.table({"x": column}))["x"]
    assert view.__array_interface__["data"][0] == column.buffers()[1].address


def test_lists_of_one_length_stay_lists() -> None:
    table = pa.table({"x": pa.chunked_array([[[1, 2]], [[3, 4]]])})
    array = batch.to_numpy(table)["x"]
    assert array.shape == (2,)
    assert [list(row) for row in array] == [[1, 2], [3, 4]]


def test_polars() -> None:
    polars = pytest.importorskip("polars")
    frame = batch.to_batch(pa.table({"x": [1, 2]}), "polars")
    assert batch.from_batch(frame.with_columns(polars.col("x") + 1)).to_pydict() == {"x": [2, 3]}


def test_an_unknown_format_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'numppy' is none of default, numpy"):
        batch.to_batch(pa.table({"x": [1]}), "numppy")


def test_columns_of_a_dict() -> None:
    class Colour(enum.Enum):
        RED = 1

    table = batch.from_batch(
        {
            "matrix": np.ones((2, 3), np.float32),
            "list of arrays": [np.ones(2), np.ones(2)],
            "ragged": [np.ones(2), np.ones(3)],
            "objects": [Colour.RED, None],
            "mixed": [1, "a"],
            "strings": np.array(["a", "b"]),
            "swapped": np.array([1, 2], ">i8"),
            "complex": np.array([1j, 2j]),
            "big": [2**70, 1],
            "series": pd.Series([1, 2], index=[5, 6]),
            "series of objects": pd.Series([pd.NA, "x"], dtype=object),
            "bools": np.array([[True, False], [False, True]]),
        }
    )
    kinds = {field.name: field.type for field in table.schema}
    assert tensor.is_fixed(kinds["matrix"])
    assert tensor.is_fixed(kinds["list of arrays"])
    assert tensor.is_ragged(kinds["ragged"])
    assert all(objects.is_objects(kinds[name]) for name in ("objects", "mixed", "complex", "big"))
    assert kinds["swapped"] == kinds["series"] == pa.int64()
    assert kinds["strings"] == kinds["series of objects"] == pa.string()
    back = batch.to_numpy(table)
    assert back["mixed"].tolist() == [1, "a"]
    assert back["big"].tolist() == [2**70, 1]
    assert back["bools"].tolist() == [[True, False], [False, True]]
    assert table["series of objects"].to_pylist() == [None, "x"]


def test_wrong_batches_are_named() -> None:
    with pytest.raises(ValueError, match="'a': 1, 'b': 2"):
        batch.from_batch({"a": [1], "b": [1, 2]})
    with pytest.raises(TypeError, match="column 'a' of a batch is a sequence, not int"):
        batch.from_batch({"a": 1})
    with pytest.raises(TypeError, match="not one value"):
        batch.from_batch({"a": np.array(1)})
    with pytest.raises(TypeError, match="not list"):
        batch.from_batch([{"a": 1}])
    with pytest.raises(TypeError, match="not int: 5"):
        batch.from_rows([5])  # type: ignore[list-item]


def test_rows_without_some_keys() -> None:
    table = batch.from_rows([{"a": 1}, {"b": 2}, {"a": 3, "b": 4}])
    assert table.to_pydict() == {"a": [1, None, 3], "b": [None, 2, 4]}


def test_rows_without_columns() -> None:
    table = batch.empty_columns(3)
    assert (table.num_rows, table.num_columns) == (3, 0)
    assert list(batch.rows(table)) == [{}, {}, {}]
    assert batch.from_rows([{}, {}]).num_rows == 2
    assert batch.from_rows([]).num_rows == 0
    assert batch.to_batch(table) == {}


def test_a_frame_with_tensors_keeps_the_order_of_its_columns() -> None:
    table = pa.table({"t": COLUMNS["tensor"], "a": [1, 2, 3], "o": COLUMNS["object"]})
    frame = batch.to_pandas(table)
    assert list(frame.columns) == ["t", "a", "o"]
    assert batch.from_batch(frame).schema.types == table.schema.types


def test_rows_in_parts_make_the_block_of_all_rows() -> None:
    parts: list[list[dict[str, Any]]] = [
        [{"a": 1}, {"a": 2}],
        [],
        [{"b": "x", "a": 3}],
        [{"b": "y"}],
        [{"c": 0.5}],
    ]
    rows = batch.Rows()
    for part in parts:
        rows.add(part)
    whole = [row for part in parts for row in part]
    assert len(rows) == len(whole)
    assert rows.table().equals(batch.from_rows(whole))
    assert rows.table().to_pydict() == {
        "a": [1, 2, 3, None, None],
        "b": [None, None, "x", "y", None],
        "c": [None, None, None, None, 0.5],
    }
