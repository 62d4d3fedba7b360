"""Joins of random tables against DuckDB, and of types that Arrow's own join refuses."""

from __future__ import annotations

import datetime
import math
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from runtime.data._block import batch, join, objects, tensor
from runtime.data._block.schema_diff import SchemaMismatchError

SQL = {
    "inner": "select l.a, l.b, r.c from l join r on l.a = r.a",
    "left_outer": "select l.a, l.b, r.c from l left join r on l.a = r.a",
    "right_outer": "select r.a, l.b, r.c from l right join r on l.a = r.a",
    "full_outer": "select coalesce(l.a, r.a) as a, l.b, r.c from l full join r on l.a = r.a",
    "left_semi": "select l.a, l.b from l semi join r on l.a = r.a",
    "left_anti": "select l.a, l.b from l anti join r on l.a = r.a",
    "right_semi": "select r.a, r.c from r semi join l on l.a = r.a",
    "right_anti": "select r.a, r.c from r anti join l on l.a = r.a",
}


def joined(*args: Any, **options: Any) -> pa.Table:
    return pa.concat_tables(join.parts(*args, **options))


def ordered(table: pa.Table) -> list[str]:
    return sorted(str(row) for row in batch.rows(table))


def sides(seed: int, kind: pa.DataType) -> tuple[pa.Table, pa.Table]:
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 40, 2)
    keys = [pa.array(rng.integers(0, 12, n), mask=rng.random(n) < 0.2).cast(kind) for n in rows]
    return pa.table({"a": keys[0], "b": np.arange(rows[0])}), pa.table(
        {"a": keys[1], "c": np.arange(rows[1])}
    )


@pytest.mark.parametrize("how", SQL)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", [pa.int64(), pa.string()], ids=str)
def test_as_duckdb_does(how: str, seed: int, kind: pa.DataType) -> None:
    left, right = sides(seed, kind)
    connection = duckdb.connect()
    connection.register("l", left)
    connection.register("r", right)
    expected = connection.sql(SQL[how]).to_arrow_table()
    got = joined(left, right, ["a"], how)
    assert got.column_names == expected.column_names
    assert ordered(got) == ordered(expected)
    assert ordered(joined(left, right, ["a"], how, threads=True)) == ordered(expected)
    parts = list(join.parts(left, right, ["a"], how, part_bytes=100))
    assert ordered(pa.concat_tables(parts)) == ordered(expected)


def test_several_keys_of_other_names_and_types() -> None:
    left = pa.table({"a": pa.array([1, 2, 2], pa.int32()), "b": ["x", "y", "z"], "v": [1, 2, 3]})
    right = pa.table({"c": [2, 2, 1], "d": pa.array(["y", "q", "x"]).dictionary_encode(), "v": [7, 8, 9]})
    got = joined(left, right, ["a", "b"], "full_outer", ["c", "d"], right_suffix="_r")
    assert got.column_names == ["a", "b", "v", "v_r"]
    assert ordered(got) == ordered(
        pa.table(
            {
                "a": [1, 2, 2, 2],
                "b": ["x", "y", "z", "q"],
                "v": [1, 2, 3, None],
                "v_r": [9, 7, None, 8],
            }
        )
    )


def test_columns_of_all_types_move_along() -> None:
    left = pa.table(
        {
            "k": [1, 2],
            "t": tensor.from_numpy(np.arange(4).reshape(2, 2)),
            "l": [[1], None],
            "s": [{"a": 1}, {"a": 2}],
            "o": objects.from_objects([{1}, {2}]),
        }
    )
    right = pa.table({"k": [2, 3], "r": tensor.from_arrays([np.ones(1), np.ones(2)])})
    rows = sorted(batch.rows(joined(left, right, ["k"], "full_outer")), key=lambda row: row["k"])
    assert [row["k"] for row in rows] == [1, 2, 3]
    assert [None if row["t"] is None else row["t"].tolist() for row in rows] == [[0, 1], [2, 3], None]
    assert [row["o"] for row in rows] == [{1}, {2}, None]
    assert [row["l"] for row in rows] == [[1], None, None]
    assert [None if row["r"] is None else row["r"].tolist() for row in rows] == [None, [1.0], [1.0, 1.0]]


KEYS: dict[str, Any] = {
    "lists": (pa.array([[1], [2], None]), pa.array([[2], None, [3]])),
    "structs": (pa.array([{"a": 1}, {"a": None}, None]), pa.array([{"a": None}, None, {"a": 3}])),
    "tensors": (
        tensor.from_numpy(np.arange(6).reshape(3, 2)),
        tensor.from_numpy(np.arange(2, 8).reshape(3, 2))[:1],
    ),
    "dates": (pa.array([datetime.date(2026, 1, 1), None]), pa.array([datetime.date(2026, 1, 1)])),
    "floats": (pa.array([0.0, math.nan, 1.5]), pa.array([-0.0])),
    "nan": (pa.array([1.0, math.nan]), pa.array([-math.nan])),
    "bools": (pa.array([True, None]), pa.array([True, None])),
    "narrow": (pa.array([1, 2], pa.int8()), pa.array([2.0, 3.0])),
}


@pytest.mark.parametrize("name", KEYS)
def test_keys_of_all_types(name: str) -> None:
    left, right = KEYS[name]
    got = joined(
        pa.table({"k": left, "i": np.arange(len(left))}),
        pa.table({"k": right, "j": np.arange(len(right))}),
        ["k"],
    )
    assert got.num_rows == 1


def test_null_columns_match_nothing() -> None:
    table = pa.table({"k": pa.nulls(2), "i": [1, 2]})
    assert joined(table, table.rename_columns(["k", "j"]), ["k"]).num_rows == 0
    assert joined(table, table.rename_columns(["k", "j"]), ["k"], "left_anti").num_rows == 2


def test_empty_sides() -> None:
    full, empty = (
        pa.table({"k": [1], "a": [1]}),
        pa.table({"k": pa.array([], pa.int64()), "b": pa.array([], pa.int64())}),
    )
    assert joined(full, empty, ["k"], "left_outer").to_pylist() == [{"k": 1, "a": 1, "b": None}]
    assert joined(empty, full, ["k"], "right_outer").to_pylist() == [{"k": 1, "b": None, "a": 1}]
    assert joined(empty, empty.rename_columns(["k", "c"]), ["k"], "full_outer").num_rows == 0


@pytest.mark.parametrize(
    "how", ["inner", "left_outer", "right_outer", "full_outer", "left_anti", "right_semi"]
)
def test_a_side_of_which_nothing_is_known_has_no_rows(how: str) -> None:
    full, nothing = pa.table({"k": [1], "a": [1]}), pa.table({})
    left = joined(full, nothing, ["k"], how).to_pylist()
    assert left == ([{"k": 1, "a": 1}] if how in ("left_outer", "full_outer", "left_anti") else [])
    right = joined(nothing, full, ["k"], how).to_pylist()
    assert right == ([{"k": 1, "a": 1}] if how in ("right_outer", "full_outer") else [])
    assert joined(nothing, nothing, ["k"], how).num_rows == 0


def test_wrong_joins_are_named() -> None:
    left, right = pa.table({"k": [1], "v": [1]}), pa.table({"k": ["1"], "v": [1]})
    with pytest.raises(ValueError, match="'outer' is none of inner, left_outer"):
        joined(left, left, ["k"], "outer")
    with pytest.raises(KeyError, match="right table has no column 'x'"):
        joined(left, right, ["k"], right_on=["x"])
    with pytest.raises(ValueError, match="as many keys"):
        joined(left, right, [])
    with pytest.raises(ValueError, match="both tables have a column 'v'"):
        joined(left, left, ["k"])
    with pytest.raises(SchemaMismatchError, match="left side of the join"):
        joined(left, right, ["k"])


def test_what_hot_keys_make_comes_in_parts() -> None:
    left, right = (pa.table({"k": np.zeros(300, np.int64), name: np.arange(300)}) for name in "ab")
    parts = list(join.parts(left, right, ["k"], part_bytes=32_000))
    assert sum(part.num_rows for part in parts) == 90_000
    assert max(part.nbytes for part in parts) <= 32_000
