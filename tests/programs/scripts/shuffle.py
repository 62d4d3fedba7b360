"""A two-stage shuffle: maps with several returns, reduces over a column of them."""

import numpy as np
import ray

ray.init(num_cpus=4)

PARTITIONS = 4


@ray.remote
def make(partition, rows):
    rng = np.random.default_rng(partition)
    return rng.integers(0, 10_000, size=rows)


@ray.remote
def split(values, bounds):
    order = np.sort(values)
    parts = np.split(order, np.searchsorted(order, bounds))
    return tuple(parts)


@ray.remote
def merge(*parts):
    merged = np.sort(np.concatenate(parts))
    return merged, {"rows": len(merged), "min": int(merged[0]), "max": int(merged[-1])}


inputs = [make.remote(i, 20_000) for i in range(PARTITIONS)]
bounds = ray.put(np.linspace(0, 10_000, PARTITIONS + 1)[1:-1])
maps = [split.options(num_returns=PARTITIONS).remote(part, bounds) for part in inputs]
reduces = [
    merge.options(num_returns=2).remote(*[maps[i][r] for i in range(PARTITIONS)]) for r in range(PARTITIONS)
]
blocks, metadata = zip(*reduces)
infos = ray.get(list(metadata))
for info in infos:
    print(info)
everything = np.concatenate(ray.get(list(blocks)))
print("sorted:", bool((np.diff(everything) >= 0).all()), len(everything))
print("same rows:", np.array_equal(np.sort(np.concatenate(ray.get(inputs))), everything))

# The blocks themselves are large and read-only; the metadata is small.
block = ray.get(blocks[0])
try:
    block[0] = 0
except ValueError as error:
    print("ValueError:", "read-only" in str(error))
