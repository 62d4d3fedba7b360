"""Queries of TPC-H, as tpchgen-cli writes its tables, each checked against DuckDB."""

from __future__ import annotations

import datetime
import importlib
import math
import pathlib
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.under_test import ray

duckdb = pytest.importorskip("duckdb")
aggregate = importlib.import_module(f"{ray.__name__}.data.aggregate")
expressions = importlib.import_module(f"{ray.__name__}.data.expressions")
col, lit = expressions.col, expressions.lit
Sum, Mean, Count, Min, Max = (getattr(aggregate, name) for name in ("Sum", "Mean", "Count", "Min", "Max"))

pytestmark = pytest.mark.usefixtures("session")

TPCHGEN = pathlib.Path(sys.executable).with_name("tpchgen-cli")
DAY = datetime.date


class Tables:
    """Of TPC-H at a scale of 0.01: through the data API, and through DuckDB."""

    def __init__(self, folder: pathlib.Path) -> None:
        command = [str(TPCHGEN), "parquet", "-s", "0.01", "--parts=3", f"--output-dir={folder}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        self.folder = folder
        self._db = duckdb.connect(config={"threads": 2})
        for table in folder.iterdir():
            self._db.execute(f"create view {table.name} as from read_parquet('{table}/*.parquet')")

    def __call__(self, name: str, *columns: str) -> Any:
        return ray.data.read_parquet(str(self.folder / name), columns=list(columns) or None)

    def sql(self, query: str) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self._db.sql(query).fetchall()
        return found


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    if not TPCHGEN.exists():
        pytest.skip("tpchgen-cli is not installed")
    return Tables(tmp_path_factory.mktemp("tpch"))


def check(ds: Any, columns: str, expected: list[tuple[Any, ...]], in_order: bool = False) -> None:
    """The rows of a data set, in these columns, are the expected ones; numbers nearly."""
    names = columns.split()
    found = [tuple(row[name] for name in names) for row in ds.take_all()]
    if not in_order:
        found, expected = sorted(found, key=str), sorted(expected, key=str)
    assert len(found) == len(expected) > 0
    for row, right in zip(found, expected, strict=True):
        assert len(row) == len(right)
        for value, wanted in zip(row, right, strict=True):
            if isinstance(wanted, int | float) or type(wanted).__name__ == "Decimal":
                assert value is not None
                assert math.isclose(value, wanted, rel_tol=1e-9), (row, right)
            else:
                assert value == wanted, (row, right)


def test_q1_by_expressions(tables: Tables) -> None:
    price = col("l_extendedprice") * (lit(1) - col("l_discount"))
    names = "l_returnflag l_linestatus qty base disc charge avg_qty avg_price avg_disc n"
    ds = (
        tables("lineitem")
        .filter(expr=col("l_shipdate") <= lit(DAY(1998, 9, 2)))
        .with_column("disc_price", price)
        .with_column("charge", col("disc_price") * (lit(1) + col("l_tax")))
        .groupby(["l_returnflag", "l_linestatus"])
        .aggregate(
            Sum("l_quantity", alias_name="qty"),
            Sum("l_extendedprice", alias_name="base"),
            Sum("disc_price", alias_name="disc"),
            Sum("charge", alias_name="charge"),
            Mean("l_quantity", alias_name="avg_qty"),
            Mean("l_extendedprice", alias_name="avg_price"),
            Mean("l_discount", alias_name="avg_disc"),
            Count(alias_name="n"),
        )
        .sort(["l_returnflag", "l_linestatus"])
    )
    query = """select l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice),
        sum(l_extendedprice * (1 - l_discount)), sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)),
        avg(l_quantity), avg(l_extendedprice), avg(l_discount), count(*) from lineitem
        where l_shipdate <= date '1998-09-02' group by all order by all"""
    check(ds, names, tables.sql(query), in_order=True)


def test_q3_with_two_joins(tables: Tables) -> None:
    customer = tables("customer", "c_custkey", "c_mktsegment").filter(
        expr=col("c_mktsegment") == lit("BUILDING")
    )
    orders = tables("orders", "o_orderkey", "o_custkey", "o_orderdate", "o_shippriority").filter(
        expr=col("o_orderdate") < lit(DAY(1995, 3, 15))
    )
    lines = (
        tables("lineitem", "l_orderkey", "l_extendedprice", "l_discount", "l_shipdate")
        .filter(expr=col("l_shipdate") > lit(DAY(1995, 3, 15)))
        .with_column("revenue", col("l_extendedprice") * (lit(1) - col("l_discount")))
        .select_columns(["l_orderkey", "revenue"])
    )
    ds = (
        orders.join(customer, "inner", num_partitions=3, on=("o_custkey",), right_on=("c_custkey",))
        .join(lines, "inner", num_partitions=3, on=("o_orderkey",), right_on=("l_orderkey",))
        .groupby(["o_orderkey", "o_orderdate", "o_shippriority"])
        .aggregate(Sum("revenue", alias_name="revenue"))
        .sort(["revenue", "o_orderdate"], descending=[True, False])
        .limit(10)
    )
    query = """select l_orderkey, sum(l_extendedprice * (1 - l_discount)) as revenue, o_orderdate, o_shippriority
        from customer join orders on c_custkey = o_custkey join lineitem on l_orderkey = o_orderkey
        where c_mktsegment = 'BUILDING' and o_orderdate < date '1995-03-15' and l_shipdate > date '1995-03-15'
        group by all order by revenue desc, o_orderdate limit 10"""
    check(ds, "o_orderkey revenue o_orderdate o_shippriority", tables.sql(query), in_order=True)


def test_q6_by_expressions_and_by_a_function(tables: Tables) -> None:
    lines = tables("lineitem", "l_extendedprice", "l_discount", "l_quantity", "l_shipdate").filter(
        expr=(col("l_shipdate") >= lit(DAY(1994, 1, 1))) & (col("l_shipdate") < lit(DAY(1995, 1, 1)))
    )
    [(expected,)] = tables.sql(
        """select sum(l_extendedprice * l_discount) from lineitem where l_shipdate >= date '1994-01-01'
        and l_shipdate < date '1995-01-01' and l_discount between 0.05 and 0.07 and l_quantity < 24"""
    )
    discount = col("l_discount").cast(pa.float64())
    cheap = (discount >= lit(0.05)) & (discount <= lit(0.07)) & (col("l_quantity") < lit(24))
    revenue = lines.filter(expr=cheap).with_column("revenue", col("l_extendedprice") * col("l_discount"))
    assert float(revenue.sum("revenue")) == pytest.approx(float(expected))

    def of_frames(frame: Any) -> Any:
        numbers = frame[["l_extendedprice", "l_discount", "l_quantity"]].astype(float)
        kept = numbers[numbers["l_discount"].between(0.0499, 0.0701) & (numbers["l_quantity"] < 24)]
        return (kept["l_extendedprice"] * kept["l_discount"]).to_frame("revenue")

    assert lines.map_batches(of_frames, batch_format="pandas").sum("revenue") == pytest.approx(
        float(expected)
    )


@pytest.mark.parametrize("kind", ["inner", "left_outer", "right_outer", "full_outer"])
def test_joins_with_columns_of_both_sides(tables: Tables, kind: str) -> None:
    suppliers = tables("supplier", "s_suppkey", "s_nationkey", "s_name").filter(
        expr=col("s_suppkey") < lit(40)
    )
    nations = tables("nation", "n_nationkey", "n_name").filter(expr=col("n_nationkey") > lit(5))
    ds = suppliers.join(nations, kind, num_partitions=2, on=("s_nationkey",), right_on=("n_nationkey",))
    query = f"""select coalesce(s_nationkey, n_nationkey), s_suppkey, s_name, n_name
        from (from supplier where s_suppkey < 40) {kind.replace("_", " ")} join (from nation where n_nationkey > 5)
        on s_nationkey = n_nationkey"""
    check(ds, "s_nationkey s_suppkey s_name n_name", tables.sql(query))


@pytest.mark.parametrize("kind", ["left_semi", "left_anti", "right_semi", "right_anti"])
def test_joins_with_columns_of_one_side(tables: Tables, kind: str) -> None:
    customers = tables("customer", "c_custkey", "c_name")
    orders = tables("orders", "o_custkey", "o_orderpriority").filter(
        expr=col("o_orderpriority") == lit("1-URGENT")
    )
    sides = [(customers, "c_custkey"), (orders, "o_custkey")]
    if kind.startswith("right"):
        sides.reverse()
    (left, left_on), (right, right_on) = sides
    ds = left.join(right, kind, num_partitions=3, on=(left_on,), right_on=(right_on,))
    query = f"""from customer {kind.partition("_")[2]} join
        (from orders where o_orderpriority = '1-URGENT') on c_custkey = o_custkey select c_custkey, c_name"""
    check(ds, "c_custkey c_name", tables.sql(query))


def test_a_join_of_strings(tables: Tables) -> None:
    lines = tables("lineitem", "l_shipmode", "l_quantity").groupby("l_shipmode").sum("l_quantity")
    modes = ray.data.from_items(
        [{"mode": mode, "n": n} for n, mode in enumerate(["AIR", "RAIL", "MAIL", "NONE"])]
    )
    ds = lines.join(modes, "inner", num_partitions=2, on=("l_shipmode",), right_on=("mode",))
    query = """select l_shipmode, sum(l_quantity) from lineitem
        where l_shipmode in ('AIR', 'RAIL', 'MAIL') group by all"""
    check(ds, "l_shipmode sum(l_quantity)", tables.sql(query))


def test_groups_of_strings_dates_and_decimals(tables: Tables) -> None:
    for keys in (["o_orderpriority", "o_orderstatus"], ["o_orderdate"], ["o_totalprice"]):
        ds = (
            tables("orders")
            .groupby(keys)
            .aggregate(
                Count(alias_name="n"),
                Sum("o_totalprice", alias_name="total"),
                Max("o_clerk", alias_name="clerk"),
            )
        )
        names = ", ".join(keys)
        query = f"select {names}, count(*), sum(o_totalprice), max(o_clerk) from orders group by all"
        check(ds, f"{' '.join(keys)} n total clerk", tables.sql(query))


def test_distinct_values_and_extremes(tables: Tables) -> None:
    orders = tables("orders")
    distinct = [value for (value,) in tables.sql("select distinct o_clerk from orders")]
    assert sorted(orders.unique("o_clerk")) == sorted(distinct)
    [expected] = tables.sql(
        "select min(o_orderdate), max(o_orderdate), min(o_comment), max(o_totalprice) from orders"
    )
    found = (
        orders.min("o_orderdate"),
        orders.max("o_orderdate"),
        orders.min("o_comment"),
        orders.max("o_totalprice"),
    )
    assert found == expected
    assert orders.count() == tables.sql("select count(*) from orders")[0][0]


def test_a_sort_by_strings_dates_and_decimals(tables: Tables) -> None:
    ds = tables("orders").sort(["o_orderpriority", "o_totalprice"], descending=[False, True])
    query = """select o_orderpriority, o_totalprice, o_orderkey from orders
        order by o_orderpriority, o_totalprice desc, o_orderkey"""
    check(ds, "o_orderpriority o_totalprice o_orderkey", tables.sql(query), in_order=True)
    latest = tables("orders", "o_orderdate", "o_orderkey").sort(
        ["o_orderdate", "o_orderkey"], descending=True
    )
    query = "select o_orderdate, o_orderkey from orders order by all desc limit 25"
    check(latest.limit(25), "o_orderdate o_orderkey", tables.sql(query), in_order=True)


def test_through_tasks_as_in_the_driver(tables: Tables) -> None:
    """A function of the user's moves a plan into tasks: grouping, sorting and joining have their exchanges."""

    def same(batch: Any) -> Any:
        return batch

    lines = tables("lineitem").map_batches(same, batch_format="pyarrow")
    orders = tables("orders", "o_orderkey", "o_orderpriority").map_batches(same, batch_format="pyarrow")
    ds = (
        lines.join(orders, "inner", num_partitions=4, on=("l_orderkey",), right_on=("o_orderkey",))
        .groupby(["l_shipmode", "o_orderpriority"])
        .aggregate(Sum("l_extendedprice", alias_name="total"), Count(alias_name="n"))
        .sort(["l_shipmode", "o_orderpriority"], descending=[True, False])
    )
    query = """select l_shipmode, o_orderpriority, sum(l_extendedprice), count(*)
        from lineitem join orders on l_orderkey = o_orderkey group by all
        order by l_shipmode desc, o_orderpriority"""
    check(ds, "l_shipmode o_orderpriority total n", tables.sql(query), in_order=True)


def test_a_function_of_frames_of_polars(tables: Tables) -> None:
    polars = pytest.importorskip("polars")

    def cheapest(frame: Any) -> Any:
        return frame.group_by("p_brand").agg(polars.col("p_retailprice").min(), polars.len().alias("n"))

    parts = tables("part", "p_brand", "p_retailprice").map_batches(cheapest, batch_format="polars")
    ds = parts.groupby("p_brand").aggregate(
        Min("p_retailprice", alias_name="price"), Sum("n", alias_name="n")
    )
    check(
        ds,
        "p_brand price n",
        tables.sql("select p_brand, min(p_retailprice), count(*) from part group by all"),
    )


def test_tables_given_by_hand(tables: Tables) -> None:
    """They have columns of string_view, as the files do."""
    table = pq.read_table(tables.folder / "supplier")
    assert table.schema.field("s_name").type == pa.string_view()
    for given in (ray.data.from_arrow(table), ray.data.from_arrow_refs([ray.put(table)])):
        check(
            given.sort("s_name").limit(9),
            "s_name s_acctbal",
            tables.sql("select s_name, s_acctbal from supplier order by s_name limit 9"),
            in_order=True,
        )


def test_written_by_groups_of_folders(tables: Tables, tmp_path: pathlib.Path) -> None:
    tables("orders").write_parquet(str(tmp_path / "out"), partition_cols=["o_orderstatus"])
    back = ray.data.read_parquet(str(tmp_path / "out"))
    query = "select o_orderstatus, count(*), sum(o_totalprice) from orders group by all"
    grouped = back.groupby("o_orderstatus").aggregate(
        Count(alias_name="n"), Sum("o_totalprice", alias_name="total")
    )
    check(grouped, "o_orderstatus n total", tables.sql(query))
