"""Large arrays: no copies on reading, read-only, shared between tasks."""

import numpy as np
import ray

ray.init(num_cpus=4, object_store_memory=300 * 1024 * 1024)


@ray.remote
def inspect(array):
    return array.flags.writeable, array.flags.owndata, array.dtype.str, array.shape, float(array.sum())


@ray.remote
def make(n):
    return np.full(n, 1.5)


@ray.remote
def modify(array):
    try:
        array[0] = 99
        return "modified"
    except ValueError as error:
        return "read-only" in str(error)


@ray.remote
def part(array, start, stop):
    return array[start:stop]


array = np.arange(1_000_000, dtype=np.float64)
ref = ray.put(array)
array[0] = -1  # not seen by anyone else
print(ray.get(inspect.remote(ref)))
one, two = ray.get(ref), ray.get([ref])[0]
print("same memory:", one.__array_interface__["data"][0] == two.__array_interface__["data"][0])
print("first:", one[0], "writeable:", one.flags.writeable)
print(ray.get(modify.remote(ref)))
copy = one.copy()
copy[0] = 7
print("a copy is writeable:", copy[0], one[0])

values = ray.get([make.remote(200_000) for _ in range(4)])
print([float(v.sum()) for v in values])
parts = [part.remote(ref, i, i + 250_000) for i in range(0, 1_000_000, 250_000)]
print([int(p[0]) for p in ray.get(parts)])

box = {"a": np.ones((300, 300)), "b": [np.zeros(200_000, dtype=np.int32)], "c": "text"}
again = ray.get(ray.put(box))
print(again["a"].flags.writeable, again["b"][0].flags.writeable, again["c"])
structured = np.zeros(3, dtype=[("x", "f4"), ("name", "U5")])
structured["name"] = ["a", "bb", "ccc"]
print(ray.get(ray.put(structured)).tolist())
objects = np.array([None, {"k": 1}, (1, 2)], dtype=object)
print(ray.get(ray.put(objects)).tolist())
print(ray.get(ray.put(np.asfortranarray(np.arange(6).reshape(2, 3)))).flags.f_contiguous)

# 40 x 40 MB in turn through a store of 300 MB
total = 0
for i in range(40):
    total += int(ray.get(ray.put(np.full(5_000_000, i, dtype=np.int64)))[-1])
print("through the store:", total)
