"""Results as they come: ray.util.as_completed, map_unordered, and the loop around ray.wait."""

import time

import ray
from ray.util import as_completed, map_unordered

ray.init(num_cpus=4)


@ray.remote
def work(x):
    time.sleep(0.001 * (x % 5))
    return x * x


@ray.remote
def fail(x):
    if x == 3:
        raise ValueError("three")
    return x


expected = sorted(x * x for x in range(30))
print(sorted(as_completed([work.remote(x) for x in range(30)])) == expected)
print(sorted(as_completed([work.remote(x) for x in range(30)], chunk_size=4)) == expected)
refs = list(as_completed([work.remote(x) for x in range(5)], yield_obj_refs=True))
print(all(isinstance(r, ray.ObjectRef) for r in refs), sorted(ray.get(refs)))

print(sorted(map_unordered(work, range(30))) == expected)
print(sorted(map_unordered(work, range(30), backpressure_size=10, chunk_size=5)) == expected)
refs = list(map_unordered(work, range(5), yield_obj_refs=True))
print(sorted(ray.get(refs)))

try:
    list(map_unordered(fail, range(6)))
except ValueError as error:
    print("ValueError", "three" in str(error))
try:
    list(map_unordered(work, range(6), backpressure_size=2, chunk_size=5))
except ValueError:
    print("ValueError: chunk larger than backpressure")

seen = []
pending = [work.remote(x) for x in range(12)]
while pending:
    done, pending = ray.wait(pending, num_returns=min(3, len(pending)), timeout=30)
    seen += ray.get(done)
print(sorted(seen) == sorted(x * x for x in range(12)))
