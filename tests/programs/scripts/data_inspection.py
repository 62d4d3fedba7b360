"""What a data set tells about itself: schema, columns, sizes, rows, batches, statistics."""

import numpy as np
import ray

ray.init(num_cpus=4)


def made(batch):
    n = batch["id"]
    return {"id": n, "half": n / 2, "name": [f"row {i}" for i in n], "point": np.stack([n, -n], axis=1)}


lazy = ray.data.range(100, override_num_blocks=5).map_batches(made)
print("columns:", lazy.columns())
schema = lazy.schema()
print("names:", schema.names)
print(
    "types:", [str(kind) for name, kind in zip(schema.names, schema.types) if name in ("id", "half", "name")]
)
print("count:", lazy.count())
print(lazy.select_columns(["id", "half", "name"]).schema())

dataset = lazy.materialize()
print("kind:", type(dataset).__name__, isinstance(dataset, ray.data.Dataset))
print("blocks:", dataset.num_blocks(), "bytes:", 2000 < dataset.size_bytes() < 10000)
print("row:", {name: np.asarray(value).tolist() for name, value in dataset.take(1)[0].items()})
batch = dataset.take_batch(3)
print("batch:", {name: (type(values).__name__, np.asarray(values).shape) for name, values in batch.items()})
frame = dataset.take_batch(2, batch_format="pandas")
print("frame:", list(frame.columns), frame["half"].tolist())
table = dataset.take_batch(2, batch_format="pyarrow")
print("table:", table.num_rows, table.column_names)
print("numbers:", dataset.min("id"), dataset.max("id"), dataset.mean("half"), dataset.sum("id"))
print("several:", dataset.select_columns(["id", "half"]).max(["id", "half"]))
dataset.select_columns(["id", "name"]).show(2)

empty = dataset.filter(lambda row: row["id"] > 1000)
print("empty:", empty.count(), empty.take_all(), empty.take(5))
try:
    empty.take_batch(1)
except ValueError as error:
    print("no batch:", type(error).__name__)
print("sum of nothing:", empty.sum("id"), empty.max("id"))
print("twice:", dataset.count() == len(list(dataset.iter_rows())) == 100)
try:
    dataset.take_all(limit=10)
except ValueError as error:
    print("too many rows:", type(error).__name__)
tensors = ray.data.range_tensor(6, shape=(2, 2))
print("tensor:", tensors.take(2)[1]["data"].tolist(), tensors.count())
print(
    "items:", ray.data.from_items(["a", "b"]).schema().names, ray.data.from_items([{"x": 1}]).schema().names
)
