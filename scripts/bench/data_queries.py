"""Queries of TPC-H for data.py: through the data API, in SQL for anchors, and their answers by pyarrow alone."""

from __future__ import annotations

import datetime
import functools
import importlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from data_measuring import Check, require

Rows = list[tuple[Any, ...]]
DAY = datetime.date
Q1_COLUMNS = [
    *("l_returnflag", "l_linestatus", "l_quantity", "l_extendedprice", "l_discount", "l_tax", "l_shipdate")
]
Q3_COLUMNS = ["l_orderkey", "l_extendedprice", "l_discount", "l_shipdate"]
Q6_COLUMNS = ["l_extendedprice", "l_discount", "l_quantity", "l_shipdate"]
SQL = {
    "Q1": """select l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice),
        sum(l_extendedprice * (1 - l_discount)), sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)),
        avg(l_quantity), avg(l_extendedprice), avg(l_discount), count(*) from lineitem
        where l_shipdate <= date '1998-09-02'
        group by l_returnflag, l_linestatus order by l_returnflag, l_linestatus""",
    "Q3": """select l_orderkey, sum(l_extendedprice * (1 - l_discount)) as revenue, o_orderdate, o_shippriority
        from customer join orders on c_custkey = o_custkey join lineitem on l_orderkey = o_orderkey
        where c_mktsegment = 'BUILDING' and o_orderdate < date '1995-03-15' and l_shipdate > date '1995-03-15'
        group by l_orderkey, o_orderdate, o_shippriority order by revenue desc, o_orderdate limit 10""",
    "Q6": """select sum(l_extendedprice * l_discount) from lineitem where l_shipdate >= date '1994-01-01'
        and l_shipdate < date '1995-01-01' and l_discount between 0.05 and 0.07 and l_quantity < 24""",
}


def floats(table: pa.Table) -> pa.Table:
    """Decimal columns as float64."""
    for n, field in enumerate(table.schema):
        if pa.types.is_decimal(field.type):
            table = table.set_column(n, field.name, table.column(n).cast(pa.float64()))
    return table


def _discounted(table: pa.Table) -> Any:
    return pc.multiply(table["l_extendedprice"], pc.subtract(1.0, table["l_discount"]))


def with_prices(table: pa.Table) -> pa.Table:
    """Columns of Q1."""
    table = floats(table)
    price = _discounted(table)
    table = table.append_column("disc_price", price)
    return table.append_column("charge", pc.multiply(price, pc.add(table["l_tax"], 1.0)))


def with_revenue(table: pa.Table) -> pa.Table:
    """Columns of Q3."""
    table = floats(table)
    return table.append_column("revenue", _discounted(table)).drop_columns(["l_extendedprice", "l_discount"])


def q6_revenue(table: pa.Table) -> pa.Table:
    """The rows of Q6 within their year."""
    table = floats(table)
    discount = table["l_discount"]
    cheap = pc.and_(pc.greater_equal(discount, 0.05), pc.less_equal(discount, 0.07))
    table = table.filter(pc.and_(cheap, pc.less(table["l_quantity"], 24)))
    return pa.table({"revenue": pc.multiply(table["l_extendedprice"], table["l_discount"])})


class Queries:
    """Of one folder with the tables."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def check(self, query: str) -> Check:
        """The check of its rows, numbers nearly."""

        def check(rows: Rows) -> None:
            expected = self._answers[query]
            require(len(rows) == len(expected), f"{query}: {len(rows)} rows in place of {len(expected)}")
            for row, wanted in zip(rows, expected, strict=True):
                for value, right in zip(row, wanted, strict=True):
                    number = isinstance(right, int | float)
                    same = math.isclose(value, right, rel_tol=1e-6) if number else value == right
                    require(same, f"{query}: {value!r} in place of {right!r}")

        return check

    @functools.cached_property
    def _answers(self) -> dict[str, Rows]:
        return {"Q1": self._q1(), "Q3": self._q3(), "Q6": self._q6()}

    def _read(self, name: str, columns: list[str]) -> pa.Table:
        return floats(pq.read_table(self._folder / name, columns=columns))

    def _q1(self) -> Rows:
        lines = self._read("lineitem", Q1_COLUMNS)
        lines = with_prices(lines.filter(pc.less_equal(lines["l_shipdate"], DAY(1998, 9, 2))))
        sums = ["l_quantity", "l_extendedprice", "disc_price", "charge"]
        means = ["l_quantity", "l_extendedprice", "l_discount"]
        groups = lines.group_by(["l_returnflag", "l_linestatus"]).aggregate(
            [*((name, "sum") for name in sums), *((name, "mean") for name in means), ([], "count_all")]
        )
        return sorted(tuple(row.values()) for row in groups.to_pylist())

    def _q3(self) -> Rows:
        customer = self._read("customer", ["c_custkey", "c_mktsegment"])
        customer = customer.filter(pc.equal(customer["c_mktsegment"], "BUILDING"))
        orders = self._read("orders", ["o_orderkey", "o_custkey", "o_orderdate", "o_shippriority"])
        orders = orders.filter(pc.less(orders["o_orderdate"], DAY(1995, 3, 15)))
        orders = orders.filter(pc.is_in(orders["o_custkey"], customer["c_custkey"].combine_chunks()))
        lines = self._read("lineitem", Q3_COLUMNS)
        lines = with_revenue(lines.filter(pc.greater(lines["l_shipdate"], DAY(1995, 3, 15))))
        found = pc.index_in(lines["l_orderkey"], orders["o_orderkey"].combine_chunks())
        lines = lines.append_column("at", found).filter(pc.is_valid(found))
        sums = lines.group_by("at").aggregate([("revenue", "sum")])
        of = orders.take(sums["at"])
        columns = [
            *(of["o_orderkey"], sums["revenue_sum"], of["o_orderdate"], of["o_shippriority"]),
        ]
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        return sorted(rows, key=lambda row: (-row[1], row[2]))[:10]

    def _q6(self) -> Rows:
        lines = self._read("lineitem", Q6_COLUMNS)
        in_year = pc.and_(
            pc.greater_equal(lines["l_shipdate"], DAY(1994, 1, 1)),
            pc.less(lines["l_shipdate"], DAY(1995, 1, 1)),
        )
        return [(pc.sum(q6_revenue(lines.filter(in_year))["revenue"]).as_py(),)]

    def through(self, data: Any) -> dict[str, Callable[[], Rows]]:
        """The queries through a module with Ray's data API."""
        folder = self._folder
        expressions = importlib.import_module(f"{data.__name__}.expressions")
        aggregate = importlib.import_module(f"{data.__name__}.aggregate")
        col, lit = expressions.col, expressions.lit

        def q1() -> Rows:
            sums = {
                "l_quantity": "sum_qty",
                "l_extendedprice": "sum_base",
                "disc_price": "sum_disc",
                "charge": "sum_charge",
            }
            means = {"l_quantity": "avg_qty", "l_extendedprice": "avg_price", "l_discount": "avg_disc"}
            rows = (
                data.read_parquet(str(folder / "lineitem"), columns=Q1_COLUMNS)
                .filter(expr=col("l_shipdate") <= lit(DAY(1998, 9, 2)))
                .map_batches(with_prices, batch_format="pyarrow")
                .groupby(["l_returnflag", "l_linestatus"])
                .aggregate(
                    *(aggregate.Sum(name, alias_name=alias) for name, alias in sums.items()),
                    *(aggregate.Mean(name, alias_name=alias) for name, alias in means.items()),
                    aggregate.Count(alias_name="n"),
                )
                .sort(["l_returnflag", "l_linestatus"])
                .take_all()
            )
            names = ["l_returnflag", "l_linestatus", *sums.values(), *means.values(), "n"]
            return [tuple(row[name] for name in names) for row in rows]

        def q3() -> Rows:
            customer = (
                data.read_parquet(str(folder / "customer"), columns=["c_custkey", "c_mktsegment"])
                .filter(expr=col("c_mktsegment") == lit("BUILDING"))
                .select_columns(["c_custkey"])
            )
            columns = ["o_orderkey", "o_custkey", "o_orderdate", "o_shippriority"]
            orders = data.read_parquet(str(folder / "orders"), columns=columns).filter(
                expr=col("o_orderdate") < lit(DAY(1995, 3, 15))
            )
            lines = (
                data.read_parquet(str(folder / "lineitem"), columns=Q3_COLUMNS)
                .filter(expr=col("l_shipdate") > lit(DAY(1995, 3, 15)))
                .map_batches(with_revenue, batch_format="pyarrow")
                .select_columns(["l_orderkey", "revenue"])
            )
            how = {"join_type": "inner", "num_partitions": 4}
            rows = (
                orders.join(customer, on=("o_custkey",), right_on=("c_custkey",), **how)
                .join(lines, on=("o_orderkey",), right_on=("l_orderkey",), **how)
                .groupby(["o_orderkey", "o_orderdate", "o_shippriority"])
                .aggregate(aggregate.Sum("revenue", alias_name="revenue"))
                .sort(["revenue", "o_orderdate"], descending=[True, False])
                .limit(10)
                .take_all()
            )
            names = ["o_orderkey", "revenue", "o_orderdate", "o_shippriority"]
            return [tuple(row[name] for name in names) for row in rows]

        def q6() -> Rows:
            since, until = lit(DAY(1994, 1, 1)), lit(DAY(1995, 1, 1))
            lines = data.read_parquet(str(folder / "lineitem"), columns=Q6_COLUMNS)
            year = lines.filter(expr=(col("l_shipdate") >= since) & (col("l_shipdate") < until))
            return [(year.map_batches(q6_revenue, batch_format="pyarrow").sum("revenue"),)]

        return {"Q1": q1, "Q3": q3, "Q6": q6}
