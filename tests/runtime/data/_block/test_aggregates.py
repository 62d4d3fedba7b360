"""Aggregates of random blocks, in one step and in partial states of several blocks, against pandas and DuckDB."""

from __future__ import annotations

import datetime
import decimal
import math
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from runtime.data import aggregate as public
from runtime.data._block import aggregates, batch, groups, tensor


def table_of(seed: int, rows: int) -> pa.Table:
    rng = np.random.default_rng(seed)

    def mask(share: float = 0.2) -> Any:
        return rng.random(rows) < share

    return pa.table(
        {
            "k": pa.array(rng.integers(0, 6, rows), mask=mask()),
            "s": pa.array([f"key {key}" for key in rng.integers(0, 4, rows)], mask=mask(0.1)),
            "x": pa.array(rng.integers(-50, 50, rows), mask=mask()),
            "f": pa.array(rng.normal(1e6, 1, rows), mask=mask()),
        }
    )


def in_blocks(table: pa.Table, keys: Sequence[str], aggs: Sequence[Any], seed: int) -> pa.Table:
    """As the executor does it: partial states of blocks, combined in two steps."""
    rng = np.random.default_rng(seed)
    cuts = np.sort(rng.integers(0, table.num_rows + 1, 4)).tolist()
    blocks = [table.slice(a, b - a) for a, b in zip([0, *cuts], [*cuts, table.num_rows], strict=True)]
    partials = [aggregates.partial(block, keys, aggs) for block in blocks]
    halves = [aggregates.combine(part, keys, aggs) for part in (partials[:2], partials[2:])]
    return aggregates.final(aggregates.combine(halves, keys, aggs), keys, aggs)


def by_key(table: pa.Table, keys: Sequence[str]) -> dict[Any, dict[str, Any]]:
    rows = list(batch.rows(table))
    found = {tuple(row.pop(key) for key in keys): row for row in rows}
    assert len(found) == len(rows)
    return found


def close(left: Any, right: Any) -> bool:
    if left is None or right is None:
        return left is right
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-9) or (left != left and right != right)
    return bool(left == right)


SQL = {
    "count()": "count(*)",
    "count(x)": "count(x)",
    "sum(x)": "sum(x)::bigint",
    "min(f)": "min(f)",
    "max(x)": "max(x)",
    "mean(f)": "avg(f)",
    "std(f)": "stddev_samp(f)",
    "abs_max(x)": "max(abs(x))",
    "quantile(x)": "quantile_cont(x, 0.3)",
    "count_distinct(x)": "count(distinct x)",
}


def sql_aggs() -> list[Any]:
    return [
        public.Count(),
        public.Count("x", ignore_nulls=True),
        public.Sum("x"),
        public.Min("f"),
        public.Max("x"),
        public.Mean("f"),
        public.Std("f"),
        public.AbsMax("x"),
        public.Quantile("x", q=0.3),
        public.CountDistinct("x"),
    ]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("keys", [[], ["k"], ["s"], ["k", "s"]], ids=str)
def test_as_duckdb_does(seed: int, keys: list[str]) -> None:
    table = table_of(seed, 5 + 40 * seed)
    columns = [*keys, *(f'{sql} as "{name}"' for name, sql in SQL.items())]
    ending = f"group by {', '.join(keys)}" if keys else ""
    connection = duckdb.connect()
    connection.register("data", table)
    query = f"select {', '.join(columns)} from data {ending}"
    expected = by_key(connection.sql(query).to_arrow_table(), keys)
    one_step = aggregates.aggregate([table], keys, sql_aggs())
    for result in (one_step, in_blocks(table, keys, sql_aggs(), seed)):
        got = by_key(result, keys)
        assert got.keys() == expected.keys()
        for key, row in expected.items():
            for name, value in row.items():
                if (
                    name.startswith("std") and value is None
                ):  # DuckDB has null for one value, Ray and numpy NaN
                    value = got[key]["mean(f)"] and math.nan
                assert close(got[key][name], value), (key, name, got[key][name], value)


@pytest.mark.parametrize("seed", range(5))
def test_lists_and_counts(seed: int) -> None:
    table = table_of(seed, 100)
    aggs = [
        public.AsList("x"),
        public.AsList("x", alias_name="known", ignore_nulls=True),
        public.Unique("s"),
        public.Unique("s", ignore_nulls=True, alias_name="unique known"),
        public.ValueCounter("s"),
        public.MissingValuePercentage("x"),
        public.ZeroPercentage("x"),
        public.ApproximateTopK("s", 2),
    ]
    rows = list(batch.rows(table))
    got = by_key(in_blocks(table, ["k"], aggs, seed), ["k"])
    assert got.keys() == {(row["k"],) for row in rows}
    for (key,), row in got.items():
        mine = [other for other in rows if other["k"] == key]
        numbers = [other["x"] for other in mine]
        words = [other["s"] for other in mine]
        known = [word for word in dict.fromkeys(words) if word is not None]
        assert row["list(x)"] == numbers
        assert row["known"] == [number for number in numbers if number is not None]
        assert row["unique(s)"] == list(dict.fromkeys(words))
        assert row["unique known"] == known
        assert dict(zip(*row["value_counter(s)"].values(), strict=True)) == {
            word: words.count(word) for word in words
        }
        assert close(row["missing_pct(x)"], 100 * numbers.count(None) / len(numbers))
        some = len(numbers) - numbers.count(None)
        assert close(row["zero_pct(x)"], 100 * numbers.count(0) / some if some else None)
        best = sorted((words.count(word) for word in known), reverse=True)[:2]
        assert [entry["count"] for entry in row["approx_topk(s)"]] == best


@pytest.mark.parametrize(
    "agg",
    [
        public.Sum("x", ignore_nulls=False),
        public.Min("x", ignore_nulls=False),
        public.Mean("x", ignore_nulls=False),
        public.Std("x", ignore_nulls=False, ddof=0),
        public.AbsMax("x", ignore_nulls=False),
        public.Quantile("x", ignore_nulls=False),
    ],
    ids=lambda agg: agg.name,
)
def test_nulls_that_are_not_ignored(agg: Any) -> None:
    table = pa.table({"k": ["a", "b", "a", "b"], "x": [1, 2, None, 4]})
    got = by_key(in_blocks(table, ["k"], [agg], 1), ["k"])
    assert got[("a",)][agg.name] is None
    assert got[("b",)][agg.name] is not None
    assert aggregates.aggregate([table], [], [agg])[agg.name].to_pylist() == [None]


def test_what_is_made_of_no_rows() -> None:
    empty = pa.table({"x": pa.array([], pa.int64()), "s": pa.array([], pa.string())})
    aggs = [
        *sql_aggs()[:3],
        public.Mean("x"),
        public.Std("x"),
        public.Quantile("x"),
        public.CountDistinct("s"),
        public.AsList("x"),
        public.Unique("s"),
        public.ValueCounter("s"),
    ]
    done = aggregates.final(aggregates.combine([aggregates.partial(empty, [], aggs)] * 2, [], aggs), [], aggs)
    assert [column[0].as_py() for column in done.columns] == [
        0,
        0,
        None,
        None,
        None,
        None,
        0,
        None,
        None,
        None,
    ]
    assert aggregates.aggregate([empty], ["s"], aggs[:-1]).num_rows == 0


def test_an_empty_block_does_not_make_the_result_null() -> None:
    table = pa.table({"x": [1, 2]})
    aggs = [public.Sum("x", ignore_nulls=False), public.Std("x", ignore_nulls=False)]
    assert aggregates.aggregate([table.slice(0, 0), table], [], aggs).to_pylist() == [
        {"sum(x)": 3, "std(x)": pytest.approx(math.sqrt(0.5))}
    ]


def test_std_of_large_numbers() -> None:
    values = 1e9 + np.arange(10_000) % 7
    table = pa.table({"x": values})
    got = in_blocks(table, [], [public.Std("x")], 3)["std(x)"][0].as_py()
    assert got == pytest.approx(values.std(ddof=1), rel=1e-9)


def test_std_of_one_value() -> None:
    table = pa.table({"x": [1.0]})
    assert math.isnan(aggregates.aggregate([table], [], [public.Std("x")])["std(x)"][0].as_py())
    assert aggregates.aggregate([table], [], [public.Std("x", ddof=0)])["std(x)"].to_pylist() == [0.0]


def test_nans() -> None:
    table = pa.table({"k": [1, 1, 2], "f": [math.nan, 2.0, math.nan]})
    got = by_key(in_blocks(table, ["k"], [public.Min("f"), public.Max("f"), public.Quantile("f")], 1), ["k"])
    assert got[(1,)] == {"min(f)": 2.0, "max(f)": 2.0, "quantile(f)": 2.0}
    assert math.isnan(got[(2,)]["min(f)"])


KEYS: dict[str, tuple[pa.Array, int]] = {
    "floats": (pa.array([0.0, -0.0, math.nan, -math.nan, None, None]), 3),
    "dictionary": (pa.array(["a", "b", None, "a", "b", None]).dictionary_encode(), 3),
    "dates": (pa.array([datetime.date(2026, 1, day) for day in (1, 1, 2, 2, 3, 3)]), 3),
    "decimals": (pa.array([decimal.Decimal(number) / 2 for number in (1, 1, 2, 2, 3, 3)]), 3),
    "bools": (pa.array([True, False, None, True, False, None]), 3),
    "bytes": (pa.array([b"a", b"a", b"b", b"b", None, None]), 3),
    "lists": (pa.array([[1], [1], [2], [2], None, None]), 3),
    "structs": (pa.array([{"a": 1}, {"a": 1}, {"a": None}, {"a": None}, None, None]), 3),
    "tensors": (tensor.from_numpy(np.repeat(np.arange(6).reshape(3, 2), 2, axis=0)), 3),
    "nulls": (pa.nulls(6), 1),
}


@pytest.mark.parametrize("name", KEYS)
def test_keys_of_all_types(name: str) -> None:
    column, expected = KEYS[name]
    table = pa.table({"k": column, "x": [1, 2, 3, 4, 5, 6]})
    for aggs in ([public.Sum("x"), public.Count()], [public.Sum("x"), public.Count(), public.Quantile("x")]):
        for result in (aggregates.aggregate([table], ["k"], aggs), in_blocks(table, ["k"], aggs, 4)):
            assert result.num_rows == expected
            assert sum(result["sum(x)"].to_pylist()) == 21
            assert sum(result["count()"].to_pylist()) == 6


VALUES: dict[str, tuple[pa.Array, Any, Any]] = {
    "strings": (pa.array(["b", "a", None]), "a", "b"),
    "dictionary": (pa.array(["b", "a", None]).dictionary_encode(), "a", "b"),
    "dates": (
        pa.array([datetime.date(2026, 1, 2), datetime.date(2025, 1, 1), None]),
        datetime.date(2025, 1, 1),
        datetime.date(2026, 1, 2),
    ),
    "timestamps": (
        pa.array([datetime.datetime(2026, 1, 2), None, datetime.datetime(2025, 1, 1)]),
        datetime.datetime(2025, 1, 1),
        datetime.datetime(2026, 1, 2),
    ),
    "decimals": (
        pa.array([decimal.Decimal("2.50"), None, decimal.Decimal("1.25")]),
        decimal.Decimal("1.25"),
        decimal.Decimal("2.50"),
    ),
    "bools": (pa.array([True, False, None]), False, True),
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("keys", [[], ["k"]], ids=str)
def test_extremes_of_all_types(name: str, keys: list[str]) -> None:
    column, low, high = VALUES[name]
    table = pa.table({"k": [1, 1, 1], "x": column})
    row = in_blocks(table, keys, [public.Min("x"), public.Max("x")], 2).to_pylist()[0]
    assert (row["min(x)"], row["max(x)"]) == (low, high)


def test_sums_of_decimals_and_bools_are_exact() -> None:
    table = pa.table({"d": pa.array([decimal.Decimal("0.1")] * 3), "b": [True, True, False]})
    row = aggregates.aggregate(
        [table], [], [public.Sum("d"), public.Sum("b"), public.Mean("b"), public.Mean("d")]
    )
    assert row.to_pylist() == [
        {
            "sum(d)": decimal.Decimal("0.3"),
            "sum(b)": 2,
            "mean(b)": pytest.approx(2 / 3),
            "mean(d)": pytest.approx(0.1),
        }
    ]


def test_lists_are_taken_apart_if_asked() -> None:
    table = pa.table({"x": [[1, 2], [2, None], None, []]})
    aggs = [public.Unique("x", encode_lists=True), public.CountDistinct("x")]
    row = in_blocks(table, [], aggs, 1).to_pylist()[0]
    assert row == {"unique(x)": [1, 2, None], "count_distinct(x)": 3}


def test_approximate_quantiles() -> None:
    rng = np.random.default_rng(1)
    values = rng.lognormal(size=100_000)
    table = pa.table({"k": rng.integers(0, 2, 100_000), "x": values})
    agg = public.ApproximateQuantile("x", [0.0, 0.1, 0.5, 0.99, 1.0], quantile_precision=200)
    states = aggregates.partial(table, [], [agg])
    assert len(states.column(0)[0]) == 202
    got = in_blocks(table, [], [agg], 2)["approx_quantile(x)"][0].as_py()
    ranks = np.searchsorted(np.sort(values), got) / len(values)
    assert np.abs(ranks - [0, 0.1, 0.5, 0.99, 1]).max() < 0.01
    assert (got[0], got[-1]) == (values.min(), values.max())
    assert len(in_blocks(table, ["k"], [agg], 2)) == 2


class Longest(public.AggregateFnV2[str, int]):
    """The length of the longest string."""

    def __init__(self, on: str, ignore_nulls: bool = True) -> None:
        super().__init__(f"longest({on})", str, on=on, ignore_nulls=ignore_nulls)

    def aggregate_block(self, block: pa.Table) -> str | None:
        words = [word for word in block["s"].to_pylist() if word is not None]
        return max(words, key=len) if words else None

    def combine(self, current_accumulator: str, new: str) -> str:
        return max(current_accumulator, new, key=len)

    def finalize(self, accumulator: str) -> int:
        return len(accumulator)


@pytest.mark.parametrize("keys", [[], ["k"]], ids=str)
def test_aggregations_of_users(keys: list[str]) -> None:
    table = pa.table({"k": [1, 2, 1, 3], "s": ["a", "bb", "ccc", None]})
    got = by_key(in_blocks(table, keys, [Longest("s"), public.Count()], 1), keys)
    assert {key: row["longest(s)"] for key, row in got.items()} == (
        {(1,): 3, (2,): 2, (3,): None} if keys else {(): 3}
    )
    strict = by_key(in_blocks(table, keys, [Longest("s", ignore_nulls=False)], 1), keys)
    assert strict[(3,) if keys else ()]["longest(s)"] is None
    assert aggregates.aggregate([table.slice(0, 0)], [], [Longest("s")]).to_pylist() == [{"longest(s)": None}]


def test_aggregations_by_functions() -> None:
    rows = public.AggregateFn(
        init=lambda key: 0,
        accumulate_row=lambda total, row: total + row["x"],
        merge=lambda a, b: a + b,
        name="total",
        finalize=lambda total: total * 10,
    )
    blocks = public.AggregateFn(
        init=lambda key: 1,
        accumulate_block=lambda product, block: product * int(np.prod(block["x"].to_numpy())),
        merge=lambda a, b: a * b,
        name="product",
    )
    table = pa.table({"k": [1, 2, 1], "x": [2, 3, 4]})
    assert by_key(in_blocks(table, ["k"], [rows, blocks], 2), ["k"]) == {
        (1,): {"total": 60, "product": 8},
        (2,): {"total": 30, "product": 3},
    }
    assert aggregates.aggregate([table.slice(0, 0)], [], [rows, blocks]).to_pylist() == [
        {"total": 0, "product": 1}
    ]
    with pytest.raises(ValueError, match="either"):
        public.AggregateFn(init=lambda key: 0, merge=max, name="x")


def test_a_built_in_one_by_its_methods() -> None:
    agg = public.Mean("x")
    parts = [agg.aggregate_block(pa.table({"x": values})) for values in ([1, 2], [6])]
    assert agg.finalize(agg.combine(*parts)) == 3.0
    assert agg.get_target_column() == "x"
    assert agg.get_agg_name() == "Mean"


def test_errors_name_the_column() -> None:
    table = pa.table({"k": [1], "s": ["a"]})
    with pytest.raises(KeyError, match="no column 'y'; columns are 'k', 's'"):
        aggregates.partial(table, ["k"], [public.Sum("y")])
    with pytest.raises(KeyError, match="no column 'z'"):
        aggregates.partial(table, ["z"], [public.Count()])
    with pytest.raises(TypeError, match="sum of string"):
        aggregates.partial(table, ["k"], [public.Sum("s")])
    with pytest.raises(TypeError, match=r"mean\(s\) cannot be computed on a column of type string"):
        aggregates.partial(table, ["k"], [public.Mean("s")])
    with pytest.raises(TypeError, match=r"several results would be named 'sum\(k\)'"):
        aggregates.partial(table, [], [public.Sum("k"), public.Sum("k")])
    with pytest.raises(ValueError, match="Sum needs the name of a column"):
        aggregates.partial(table, [], [public.Sum()])
    with pytest.raises(ValueError, match="between 0 and 1"):
        public.Quantile("k", q=50)


def test_groups_are_numbered_in_order_of_appearance() -> None:
    made = groups.group([pa.array(["b", "a", "b"]), pa.array([1, None, 1])], 3)
    assert made.of_rows.tolist() == [0, 1, 0]
    assert made.first_rows.tolist() == [0, 1]
    order, borders = made.slices()
    assert order.tolist() == [0, 2, 1]
    assert borders.tolist() == [0, 2, 3]


def test_threads_give_the_same() -> None:
    table = table_of(1, 5000)
    one = by_key(aggregates.aggregate([table], ["k", "s"], sql_aggs()), ["k", "s"])
    many = by_key(aggregates.aggregate([table], ["k", "s"], sql_aggs(), threads=True), ["k", "s"])
    assert one.keys() == many.keys()
    assert all(close(value, many[key][name]) for key, row in one.items() for name, value in row.items())


def test_pandas_agrees_on_a_quantile_of_each_group() -> None:
    table = table_of(3, 200)
    frame: pd.DataFrame = table.to_pandas()
    expected = frame.groupby("k")["x"].quantile(0.9)
    got = by_key(in_blocks(table, ["k"], [public.Quantile("x", q=0.9)], 3), ["k"])
    for key, value in expected.items():
        assert close(got[(int(key),)]["quantile(x)"], float(value))


def test_grouping_joining_and_sorting_numbers_imports_no_pandas() -> None:
    """It costs half a second in each worker."""
    script = """
import sys
import numpy as np
import pyarrow as pa
from runtime.data._block import aggregates, arrays, join, partition, sort
from runtime.data.aggregate import Count, Std, Sum, Unique
numbers = arrays.of_numpy(np.arange(6) % 3)
table = pa.table({"k": numbers, "x": numbers})
aggregates.aggregate([table, table], ["k"], [Sum("x"), Count()])
aggregates.aggregate([table, table], ["k"], [Unique("x"), Std("x")])
list(join.parts(table, table.rename_columns(["k", "y"]), ["k"]))
partition.hash_partition(table, ["k"], 2)
sort.sort_table(table, [("k", True)])
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)
