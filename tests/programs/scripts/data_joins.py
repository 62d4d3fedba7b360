"""Orders and customers, joined in every way."""

import ray

ray.init(num_cpus=4)
ray.data.DataContext.get_current().default_hash_shuffle_parallelism = 2  # little data
customers = ray.data.from_items(
    [{"id": i, "name": name} for i, name in enumerate(["Ada", "Bo", "Cy", "Dee", "Eve"])],
    override_num_blocks=2,
)
orders = ray.data.from_items(
    [
        {"order": 100, "customer": 0, "total": 5.0},
        {"order": 101, "customer": 2, "total": 7.5},
        {"order": 102, "customer": 0, "total": 1.25},
        {"order": 103, "customer": 9, "total": 3.0},
        {"order": 104, "customer": 4, "total": 2.0},
    ],
    override_num_blocks=3,
)


def shown(dataset, *keys):
    rows = [tuple(row.get(key) for key in keys) for row in dataset.take_all()]
    return sorted(rows, key=lambda row: tuple((value is None or value != value, value or 0) for value in row))


def plain(rows):
    return [tuple(None if value != value else value for value in row) for row in rows]


print("columns of an inner join:")
inner = customers.join(orders, "inner", 2, on=("id",), right_on=("customer",))
print(" ", sorted(inner.columns()), inner.count())
for row in shown(inner, "order", "name", "total"):
    print(" ", row)
for kind in ("left_outer", "right_outer", "full_outer"):
    joined = customers.join(orders, kind, num_partitions=2, on=("id",), right_on=("customer",))
    print(kind)
    for row in plain(shown(joined, "order", "name")):
        print(" ", row)
for kind in ("left_semi", "left_anti"):
    joined = customers.join(orders, kind, num_partitions=2, on=("id",), right_on=("customer",))
    print(kind, shown(joined, "id", "name"))
for kind in ("right_semi", "right_anti"):
    joined = customers.join(orders, kind, num_partitions=2, on=("id",), right_on=("customer",))
    print(kind, shown(joined, "order", "customer"))

monthly = ray.data.from_items([{"city": c, "month": m, "value": 10 * m} for c in "ab" for m in (1, 2, 3)])
targets = ray.data.from_items([{"city": c, "month": m, "value": 15} for c in "bc" for m in (2, 3)])
both = monthly.join(targets, "inner", 2, on=("city", "month"), left_suffix="_real", right_suffix="_target")
print(sorted(both.columns()))
print(shown(both, "city", "month", "value_real", "value_target"))

spent = (
    orders.groupby("customer")
    .sum("total")
    .join(customers, "inner", 2, on=("customer",), right_on=("id",))
    .sort("sum(total)", descending=True)
)
print([(row["name"], row["sum(total)"]) for row in spent.take_all()])
try:
    customers.join(orders, "outer", 2, on=("id",), right_on=("customer",)).take_all()
except ValueError as error:
    print("no such join:", type(error).__name__)
