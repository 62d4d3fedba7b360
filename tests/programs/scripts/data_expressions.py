"""Columns are computed and rows chosen by expressions, without functions over rows."""

import datetime

import pyarrow as pa
import pyarrow.compute as pc
import ray
from ray.data.datatype import DataType
from ray.data.expressions import col, lit, udf

ray.init(num_cpus=4)
rows = [
    {
        "id": i,
        "item": ["Lamp", "desk", "Chair", "sofa"][i % 4],
        "price": 10.0 * (i + 1),
        "count": i % 3,
        "sold": None if i == 3 else i % 2 == 0,
        "day": datetime.datetime(2024, 2, 27 + i % 3, i),
        "size": {"w": i, "h": 2 * i},
        "marks": list(range(i % 4)),
    }
    for i in range(8)
]
dataset = ray.data.from_items(rows, override_num_blocks=2)


def show(title, dataset, *columns):
    print(
        title,
        [
            tuple(row[name] for name in columns)
            for row in sorted(dataset.take_all(), key=lambda row: row["id"])
        ],
    )


priced = dataset.with_column("total", col("price") * col("count")).with_column(
    "taxed", (col("price") + 5) * lit(1.5)
)
show("arithmetic:", priced, "total", "taxed")
show("compared:", dataset.with_column("cheap", (col("price") < 30) | (col("item") == "sofa")), "id", "cheap")
show("filter:", dataset.filter(expr=(col("price") >= 30) & (col("count") != 2)), "id", "price")
show("not:", dataset.filter(expr=~(col("count") > 0)), "id")
show("in:", dataset.filter(expr=col("item").is_in(["Lamp", "sofa"])), "id", "item")
show("null:", dataset.filter(expr=col("sold").is_null()), "id")
show("not null:", dataset.filter(expr=col("sold").is_not_null() & col("sold")), "id")
show(
    "text:",
    dataset.with_column("upper", col("item").str.upper()).with_column("n", col("item").str.len()),
    "upper",
    "n",
)
show("starts:", dataset.filter(expr=col("item").str.starts_with("s")), "item", "id")
show("replaced:", dataset.with_column("new", col("item").str.replace("a", "_")).limit(4), "new")
show("day:", dataset.with_column("d", col("day").dt.day()).with_column("y", col("day").dt.year()), "d", "y")
show("struct:", dataset.with_column("h", col("size").struct.field("h")), "h")
show("list:", dataset.with_column("n", col("marks").list.len()), "n")
show(
    "rounded:",
    dataset.with_column("r", (col("price") / 7).round()).with_column("f", (col("price") / 7).floor()),
    "r",
    "f",
)
show("cast:", dataset.with_column("p", col("price").cast(DataType.int64())), "p")
show("literal:", dataset.with_column("unit", lit("EUR")).limit(2), "unit")


@udf(return_dtype=DataType.float64())
def discounted(price: pa.Array, count: pa.Array) -> pa.Array:
    return pc.if_else(pc.greater(count, 1), pc.multiply(price, 0.5), price)


show("udf:", dataset.with_column("pays", discounted(col("price"), col("count"))), "pays")
renamed = dataset.select_columns(["id", "price"]).rename_columns({"price": "cost"})
print(renamed.columns(), renamed.drop_columns(["cost"]).columns())
show("added:", renamed.add_column("double", lambda frame: frame["cost"] * 2).limit(3), "double")
mean = dataset.filter(expr=col("price") > 20).with_column("w", col("price") * 2).mean("w")
print("mean:", mean, "rows:", dataset.filter(expr=col("id") >= 100).count())
try:
    dataset.with_column("x", col("missing") + 1).take_all()
except Exception as error:
    print("no such column:", "missing" in str(error))
