"""View types are cast wherever data comes in."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runtime.data._block import batch, views
from runtime.data.io.interfaces import as_table
from runtime.data.io.parquet import ParquetDatasource

VIEW, PLAIN = pa.string_view(), pa.string()


@pytest.mark.parametrize(
    ("kind", "plain", "values"),
    [
        (VIEW, PLAIN, ["a", None, "long enough for a buffer of its own"]),
        (pa.binary_view(), pa.binary(), [b"a", None]),
        (pa.list_view(pa.int64()), pa.list_(pa.int64()), [[1, 2], None, []]),
        (pa.list_(VIEW), pa.list_(PLAIN), [["a", None], None]),
        (pa.struct([("x", VIEW), ("y", pa.int8())]), pa.struct([("x", PLAIN), ("y", pa.int8())]), [{"x": "a", "y": 1}]),
        (pa.int64(), pa.int64(), [1]),
        (pa.dictionary(pa.int8(), PLAIN), pa.dictionary(pa.int8(), PLAIN), ["a"]),
    ],
)  # fmt: skip
def test_columns_keep_their_values(kind: pa.DataType, plain: pa.DataType, values: list[Any]) -> None:
    column = pa.array(values, PLAIN).cast(VIEW) if kind == VIEW else _array(values, kind, plain)
    table = pa.table({"n": range(len(values)), "x": column})
    found = views.without_views(table)
    assert found.schema == views.plain_schema(table.schema)
    assert found.schema.field("x").type == plain
    assert found["x"].to_pylist() == values


def _array(values: list[Any], kind: pa.DataType, plain: pa.DataType) -> pa.Array:
    """Arrow cannot make all of them of Python values."""
    try:
        return pa.array(values, kind)
    except pa.ArrowNotImplementedError:
        return pa.array(values, plain).cast(kind)


def test_a_table_without_views_is_itself() -> None:
    table = pa.table({"x": ["a"]})
    assert views.without_views(table) is table


def test_at_every_entrance() -> None:
    table = pa.table({"x": pa.array(["b", "a"]).cast(VIEW)})
    assert batch.from_batch(table)["x"].type == PLAIN
    assert batch.from_batch({"x": table["x"]})["x"].type == PLAIN
    assert as_table(table.to_batches()[0])["x"].type == PLAIN


def test_of_polars() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"x": ["a", "b"]})
    newest = frame.to_arrow(compat_level=polars.CompatLevel.newest())
    assert newest["x"].type == VIEW
    assert batch.from_batch(newest)["x"].type == PLAIN


def test_of_parquet_with_a_predicate(tmp_path: Any) -> None:
    from runtime.data.expressions import col, lit

    table = pa.table({"x": pa.array(["a", "b", "c"]).cast(VIEW), "n": [1, 2, 3]})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=1)
    assert pq.read_schema(tmp_path / "x.parquet").field("x").type == VIEW
    for predicate, rows in ((col("x") == lit("b"), [2]), (col("n") > lit(1), [2, 3])):
        source = ParquetDatasource(str(tmp_path)).with_predicate(predicate)
        assert source is not None
        tables = [each for task in source.get_read_tasks(1) for each in task()]
        assert {each["x"].type for each in tables} == {PLAIN}
        assert [n for each in tables for n in each["n"].to_pylist()] == rows
