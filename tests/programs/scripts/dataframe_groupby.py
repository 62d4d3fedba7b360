"""Group-by over shards of a data frame: partial aggregates are merged."""

import numpy as np
import pandas as pd
import ray

ray.init(num_cpus=4)


@ray.remote
def load(shard, rows=500):
    rng = np.random.default_rng(shard)
    return pd.DataFrame(
        {
            "city": rng.choice(["Oslo", "Rome", "Lima", "Kyiv"], size=rows),
            "kind": pd.Categorical(rng.choice(["a", "b"], size=rows), categories=["a", "b"]),
            "amount": rng.integers(1, 100, size=rows),
            "when": pd.date_range("2024-01-01", periods=rows, freq="h") + pd.Timedelta(days=shard),
        }
    )


@ray.remote
def partial(frame, key):
    grouped = frame.groupby(key, observed=True)["amount"]
    return pd.DataFrame({"sum": grouped.sum(), "count": grouped.count(), "max": grouped.max()})


@ray.remote
def combine(*frames):
    stacked = pd.concat(frames)
    grouped = stacked.groupby(level=0, observed=True)
    result = pd.DataFrame(
        {
            "sum": grouped["sum"].sum(),
            "count": grouped["count"].sum(),
            "max": grouped["max"].max(),
        }
    )
    result["mean"] = result["sum"] / result["count"]
    return result.sort_index()


shards = [load.remote(i) for i in range(4)]
for key in ("city", "kind"):
    result = ray.get(combine.remote(*[partial.remote(shard, key) for shard in shards]))
    print(key, list(result.columns))
    for name, row in result.iterrows():
        print(f"  {name:5} {int(row['sum'])} {int(row['count'])} {int(row['max'])} {row['mean']:.4f}")

whole = pd.concat(ray.get(shards))
print("rows:", len(whole), whole.dtypes["kind"].name, whole["when"].max())
check = whole.groupby("city")["amount"].sum().sort_index()
again = ray.get(combine.remote(*[partial.remote(s, "city") for s in shards]))["sum"]
print("agrees:", check.to_dict() == again.to_dict())
