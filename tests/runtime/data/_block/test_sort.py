"""Sorting: blocks as pandas and as a plain sort by Python would, and data sets by ranges."""

from __future__ import annotations

import datetime
import decimal
import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from runtime.data._block import batch, sort, tensor


def column_of(kind: str, rng: np.random.Generator, rows: int) -> pa.Array:
    numbers = rng.integers(-9, 9, rows)
    made: dict[str, Any] = {
        "int": lambda: pa.array(numbers),
        "int8": lambda: pa.array(numbers.astype(np.int8)),
        "uint64": lambda: pa.array(numbers.astype(np.uint64)),
        "nullable": lambda: pa.array(numbers, mask=rng.random(rows) < 0.3),
        "float": lambda: pa.array(np.where(rng.random(rows) < 0.2, np.nan, numbers / 4)),
        "float32": lambda: pa.array(rng.random(rows).astype(np.float32)),
        "nullable float": lambda: pa.array(
            np.where(rng.random(rows) < 0.2, np.nan, numbers / 4),
            mask=rng.random(rows) < 0.2,
            from_pandas=False,
        ),
        "text": lambda: pa.array([None if number == 0 else f"k{number}" for number in numbers]),
        "dictionary": lambda: pa.array([f"k{number}" for number in numbers]).dictionary_encode(),
        "bool": lambda: pa.array(numbers > 0),
        "date": lambda: pa.array([datetime.date(2026, 1, 10 + int(number)) for number in numbers]),
        "timestamp": lambda: pa.array(numbers, pa.timestamp("ns", "UTC")),
        "decimal": lambda: pa.array(
            [decimal.Decimal(int(number)) for number in numbers], pa.decimal128(9, 2)
        ),
        "null": lambda: pa.nulls(rows),
    }
    return made[kind]()


KINDS = (
    "int,int8,uint64,nullable,float,float32,nullable float,text,dictionary,bool,date,timestamp,decimal,null"
).split(",")


def keys_of(table: pa.Table, keys: sort.Keys) -> list[tuple[Any, ...]]:
    return list(zip(*(table[name].to_pylist() for name, _ in keys), strict=True))


def same(left: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
    return all(a == b or (a != a and b != b) for a, b in zip(left, right, strict=True))


def alike(left: list[tuple[Any, ...]], right: list[tuple[Any, ...]]) -> bool:
    return len(left) == len(right) and all(map(same, left, right))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("descending", [False, True])
def test_one_key(kind: str, descending: bool) -> None:
    rng = np.random.default_rng(len(kind))
    column = column_of(kind, rng, 200)
    table = pa.table({"k": pa.chunked_array([column.slice(3, 90), column.slice(93)]), "row": np.arange(197)})
    keys = [("k", descending)]
    done = sort.sort_table(table, keys)
    assert sorted(done["row"].to_pylist()) == list(range(197))
    assert alike(keys_of(done, keys), sorted(keys_of(table, keys), key=sort.sort_key(keys)))


@pytest.mark.parametrize("seed", range(10))
def test_several_keys(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kinds = [KINDS[index] for index in rng.integers(0, len(KINDS), 3)]
    table = pa.table({f"{index}": column_of(kind, rng, 300) for index, kind in enumerate(kinds)})
    keys = [(str(index), bool(rng.integers(2))) for index in range(3)]
    assert alike(
        keys_of(sort.sort_table(table, keys), keys), sorted(keys_of(table, keys), key=sort.sort_key(keys))
    )


def test_the_order_of_nulls_and_nans() -> None:
    table = pa.table({"x": pa.array([2.0, None, float("nan"), 1.0, float("inf"), float("-inf")])})
    for descending, values in (
        (False, "[-inf, 1.0, 2.0, inf, nan, None]"),
        (True, "[inf, 2.0, 1.0, -inf, nan, None]"),
    ):
        assert str(sort.sort_table(table, [("x", descending)])["x"].to_pylist()) == values


def test_other_columns_move_along() -> None:
    array = np.arange(6.0).reshape(3, 2)
    table = pa.table({"k": [3, 1, 2], "t": tensor.from_numpy(array), "l": [[1], None, []]})
    done = sort.sort_table(table, [("k", False)])
    np.testing.assert_array_equal(batch.to_numpy(done)["t"], array[[1, 2, 0]])
    assert done["l"].to_pylist() == [None, [], [1]]


def test_what_cannot_be_sorted() -> None:
    for column in (pa.array([[1], [2]]), tensor.from_numpy(np.ones((2, 2)))):
        with pytest.raises(TypeError, match="cannot be sorted by a column of type"):
            sort.sort_table(pa.table({"x": column}), [("x", False)])


def test_samples_are_at_equal_distances() -> None:
    table = pa.table({"k": np.arange(101), "v": np.ones(101)})
    assert sort.sample(table, [("k", False)], 5).to_pydict() == {"k": [0, 25, 50, 75, 100]}
    assert sort.sample(table.slice(3, 2), [("k", False)], 5).to_pydict() == {"k": [3, 4]}


@pytest.mark.parametrize("seed", range(30))
def test_sorting_by_ranges_is_sorting(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kinds = [KINDS[index] for index in rng.integers(0, len(KINDS), 2)]
    keys = [("0", bool(rng.integers(2))), ("1", bool(rng.integers(2)))][: rng.integers(1, 3)]
    tables = []
    for _ in range(4):
        rows = int(rng.integers(0, 100))
        table = pa.table({str(index): column_of(kind, rng, rows) for index, kind in enumerate(kinds)})
        tables.append(sort.sort_table(table, keys))
    cuts = sort.cuts(
        [sort.sample(table, keys, 20) for table in tables],
        [table.num_rows for table in tables],
        keys,
        int(rng.integers(1, 8)),
    )
    parts: list[list[pa.Table]] = [[] for _ in range(cuts.rows.num_rows + 1)]
    for table in tables:
        borders = [0, *sort.positions(table, keys, cuts), table.num_rows]
        assert borders == sorted(borders)
        for part, (start, end) in zip(parts, itertools.pairwise(borders), strict=True):
            part.append(table.slice(start, end - start))
    merged = pa.concat_tables([sort.sort_table(pa.concat_tables(part), keys) for part in parts])
    expected = sorted((row for table in tables for row in keys_of(table, keys)), key=sort.sort_key(keys))
    assert alike(keys_of(merged, keys), expected)


def sizes(table: pa.Table, keys: sort.Keys, samples: int, ranges: int) -> list[int]:
    ordered = sort.sort_table(table, keys)
    cuts = sort.cuts([sort.sample(ordered, keys, samples)], [ordered.num_rows], keys, ranges)
    borders = [0, *sort.positions(ordered, keys, cuts), ordered.num_rows]
    return [end - start for start, end in itertools.pairwise(borders)]


def test_a_key_that_fills_ranges_is_divided() -> None:
    hot = pa.table({"k": [7] * 900 + list(range(100, 200))})
    assert max(sizes(hot, [("k", False)], 1000, 10)) < 120
    assert sizes(pa.table({"k": ["same"] * 1000}), [("k", True)], 5, 8) == [125] * 8


def test_ranges_are_about_even() -> None:
    table = pa.table({"k": np.random.default_rng(1).random(100_000)})
    assert min(sizes(table, [("k", True)], 2_000, 8)) > 12_000


def test_samples_count_for_the_rows_that_they_stand_for() -> None:
    keys = [("k", False)]
    cuts = sort.cuts([pa.table({"k": [1, 2]}), pa.table({"k": [3, 4]})], [10, 1000], keys, 2)
    assert cuts.rows["k"].to_pylist() == [4] or (cuts.rows["k"].to_pylist() == [3] and cuts.shares[0] > 0.9)


def test_given_cuts_are_before_equal_rows() -> None:
    table = pa.table({"k": [1, 2, 2, 3], "v": [4, 3, 2, 1]})
    cuts = sort.given_cuts([table], [("k", False)], [2, 9])
    assert sort.positions(table, [("k", False)], cuts) == [1, 4]


def test_no_samples() -> None:
    empty = pa.table({"k": pa.array([], pa.int64())})
    cuts = sort.cuts([empty], [0], [("k", False)], 4)
    assert cuts.rows.num_rows == 0
    assert sort.positions(empty, [("k", False)], cuts) == []
