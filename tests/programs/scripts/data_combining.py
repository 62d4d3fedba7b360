"""Data sets are put together and taken apart: union, zip, limit, unique, splits."""

import ray

ray.init(num_cpus=4)
evens = ray.data.range(10).map(lambda row: {"id": 2 * row["id"]})
odds = ray.data.range(10).map(lambda row: {"id": 2 * row["id"] + 1})

both = evens.union(odds)
print("union:", both.count(), sorted(row["id"] for row in both.take_all()) == list(range(20)))
print("of three:", evens.union(odds, ray.data.range(3)).sum("id"))

squares = ray.data.range(10).map(lambda row: {"square": row["id"] ** 2, "id": -row["id"]})
zipped = ray.data.range(10).zip(squares)
print("zip:", sorted(zipped.columns()))
print(sorted(zipped.take_all(), key=lambda row: row["id"])[:3])

print("limit:", ray.data.range(1000).limit(7).count(), len(ray.data.range(100).limit(5).take_all()))
print("take more than there is:", len(ray.data.range(3).take(10)))
print("limit 0:", ray.data.range(3).limit(0).take_all())
print("unique:", sorted(both.map(lambda row: {"rest": row["id"] % 3}).unique("rest")))

ordered = ray.data.range(100, override_num_blocks=4)
train, test = ordered.train_test_split(test_size=0.25)
print("train and test:", train.count(), test.count(), test.min("id"), test.max("id"))
train, test = ordered.train_test_split(test_size=30, shuffle=True, seed=3)
ids = [row["id"] for part in (train, test) for row in part.take_all()]
print("shuffled:", train.count(), test.count(), sorted(ids) == list(range(100)), ids != sorted(ids))

print("proportions:", [part.count() for part in ordered.split_proportionately([0.2, 0.5])])
parts = ordered.split_at_indices([10, 60])
print("indices:", [(part.count(), part.min("id")) for part in parts])
print("equal parts:", sorted(part.count() for part in ordered.split(3, equal=True)))
unequal = ordered.split(3)
print("parts:", len(unequal), sum(part.count() for part in unequal))

cut = ray.data.range(12, override_num_blocks=2).repartition(3).materialize()
print("blocks:", cut.num_blocks(), cut.count(), cut.sum("id"))
for row in ray.data.range(50).filter(lambda row: row["id"] % 20 == 7).sort("id", descending=True).iter_rows():
    print("row", row)
ray.data.from_items(["red", "green"]).show()
print(ray.data.from_items([1, 2, 3]).map(lambda row: {"tenfold": row["item"] * 10}).take_all())
