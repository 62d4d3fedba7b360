"""A report of sales: several aggregates of groups, groups of two keys, and global ones."""

import numpy as np
import ray
from ray.data.aggregate import AbsMax, Count, CountDistinct, Max, Mean, Min, Quantile, Std, Sum, Unique

ray.init(num_cpus=4)
ray.data.DataContext.get_current().default_hash_shuffle_parallelism = 2  # little data
rng = np.random.default_rng(5)
cities = ["Basel", "Graz", "Turin"]
sales = ray.data.from_items(
    [
        {
            "city": cities[int(rng.integers(3))],
            "month": int(rng.integers(1, 5)),
            "amount": int(rng.integers(1, 500)),
            "discount": None if i % 11 == 0 else float(i % 5),
        }
        for i in range(400)
    ]
)

report = sales.groupby("city").aggregate(
    Count(),
    Sum("amount"),
    Min("amount", alias_name="least"),
    Max("amount", alias_name="most"),
    Mean("amount"),
    Std("amount", ddof=0, alias_name="spread"),
    Quantile("amount", q=0.5, alias_name="median"),
    CountDistinct("month"),
)
print(sorted(report.columns()))
for row in sorted(report.take_all(), key=lambda row: row["city"]):
    print(
        {name: round(value, 4) if isinstance(value, float) else value for name, value in sorted(row.items())}
    )

two_keys = sales.groupby(["city", "month"]).sum("amount").sort(["city", "month"])
for row in two_keys.take(4):
    print(row)
print("groups:", two_keys.count())

several = sales.groupby("month").mean(["amount", "discount"]).sort("month").take_all()
print([{name: round(value, 3) for name, value in row.items()} for row in several])

nulls = sales.aggregate(
    Count("discount", ignore_nulls=True, alias_name="known"),
    Count("discount", ignore_nulls=False, alias_name="all"),
    Mean("discount", alias_name="mean"),
    Sum("discount", ignore_nulls=False, alias_name="strict"),
    AbsMax("discount"),
)
print({name: None if value is None else round(value, 4) for name, value in sorted(nulls.items())})
print(sorted(sales.aggregate(Unique("city"))["unique(city)"]))
print(sales.sum("amount"), sales.min("amount"), sales.max("amount"), round(sales.mean("amount"), 3))
print(sales.sum(["amount", "month"]), round(sales.std("amount"), 4))
print("all rows as one group:", sales.groupby(None).count().take_all())


def share(group):
    total = group["amount"].sum()
    best = group["amount"].argmax()
    return {
        "city": group["city"][:1],
        "month": group["month"][[best]],
        "share": [group["amount"][best] / total],
    }


for row in sorted(sales.groupby("city").map_groups(share).take_all(), key=lambda row: row["city"]):
    print(row["city"], row["month"], round(float(row["share"]), 5))
