"""In and out of pandas, NumPy, Arrow and object references."""

import numpy as np
import pandas as pd
import pyarrow as pa
import ray

ray.init(num_cpus=4)
frame = pd.DataFrame(
    {
        "id": range(6),
        "word": list("abcdef"),
        "value": [0.5, 1.5, None, 3.5, 4.5, 5.5],
        "when": pd.date_range("2024-03-01", periods=6, freq="D"),
        "kind": pd.Categorical(["x", "y", "x", "x", "y", "y"]),
    }
)
dataset = ray.data.from_pandas(frame)
print("from pandas:", dataset.count(), dataset.columns())
back = dataset.to_pandas().sort_values("id").reset_index(drop=True)
print("to pandas:", list(back.columns), back["word"].tolist(), str(back["when"].max()))
print("nulls:", back["value"].isna().sum(), "sum:", back["value"].sum(), "kinds:", sorted(set(back["kind"])))
several = ray.data.from_pandas([frame.iloc[:2], frame.iloc[2:]])
print("of two frames:", several.count(), several.num_blocks())


def enrich(frame: pd.DataFrame) -> pd.DataFrame:
    frame = frame.assign(filled=frame["value"].fillna(0), weekday=frame["when"].dt.day_name())
    return frame[frame["filled"] < 5]


rich = dataset.map_batches(enrich, batch_format="pandas").sort("id").take_all()
print("enriched:", [(row["id"], row["filled"], row["weekday"]) for row in rich])

array = np.arange(24).reshape(4, 3, 2)
tensors = ray.data.from_numpy(array)
print("from numpy:", tensors.columns(), tensors.take(1)[0]["data"].shape, tensors.count())
print("two arrays:", ray.data.from_numpy([np.ones(3), np.zeros(2)]).sum("data"))
stacked = np.stack([row["data"] for row in tensors.take_all()])
print("the same:", np.array_equal(np.sort(stacked, axis=0), array))

table = pa.table({"id": [1, 2, 3], "xs": [[1], [], [2, 3]], "point": [{"x": 1}, {"x": 2}, {"x": 3}]})
arrow = ray.data.from_arrow(table)
print("from arrow:", arrow.schema().names, arrow.take(1))
lengths = arrow.map_batches(
    lambda t: t.append_column("n", pa.array([len(x) for x in t["xs"].to_pylist()])), batch_format="pyarrow"
)
print("lengths:", sorted((row["id"], row["n"]) for row in lengths.take_all()))
print("tables:", pa.concat_tables(ray.get(arrow.to_arrow_refs())).select(["id", "xs"]).to_pydict())

refs = dataset.to_pandas_refs()
print("frames by reference:", sum(len(part) for part in ray.get(refs)))
again = ray.data.from_pandas_refs([ray.put(frame), ray.put(frame.head(1))])
print("from references:", again.count())
columns = ray.get(ray.data.range(5).to_numpy_refs())
print("arrays by reference:", sorted(int(i) for part in columns for i in part["id"]))
print("from arrow refs:", ray.data.from_arrow_refs([ray.put(table)]).count())

objects = ray.data.from_items([{"id": 1, "thing": {1, 2}}, {"id": 2, "thing": {3}}])
print("python objects:", sorted((row["id"], sorted(row["thing"])) for row in objects.take_all()))
try:
    ray.data.range(100).to_pandas(limit=10)
except ValueError as error:
    print("too large:", type(error).__name__)
