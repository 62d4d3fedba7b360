"""More data than the object store holds: blocks are written, read again and aggregated."""

import numpy as np
import ray

MIB = 1 << 20


@ray.remote
def block(i):
    return np.full(8 * MIB // 8, i, dtype=np.int64)


@ray.remote
def total(array):
    return int(array[0]), int(array.sum() // len(array)), array.flags.writeable


ray.init(num_cpus=2, object_store_memory=100 * MIB)
refs = [block.remote(i) for i in range(25)]
ready, rest = ray.wait(refs, num_returns=25, timeout=120, fetch_local=False)
print(len(ready), len(rest))
print([a for a, _, _ in ray.get([total.remote(ref) for ref in refs])])
print({(b, w) for _, b, w in ray.get([total.remote(ref) for ref in refs[:3]])})
print(int(sum(ray.get(ref)[5] for ref in refs)))
