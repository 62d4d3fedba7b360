"""Quick sort whose tasks call themselves, and a search that stops its siblings."""

import random

import ray


@ray.remote
def quick_sort(values):
    if len(values) <= 40:
        return sorted(values)
    pivot = values[len(values) // 2]
    less = quick_sort.remote([v for v in values if v < pivot])
    more = quick_sort.remote([v for v in values if v > pivot])
    same = [v for v in values if v == pivot]
    low, high = ray.get([less, more])
    return low + same + high


@ray.remote
def search(low, high, target):
    if high - low <= 50:
        return target if low <= target < high else None
    middle = (low + high) // 2
    refs = [search.remote(low, middle, target), search.remote(middle, high, target)]
    while refs:
        done, refs = ray.wait(refs)
        found = ray.get(done[0])
        if found is not None:
            for ref in refs:
                ray.cancel(ref)
            return found
    return None


ray.init(num_cpus=2)
generator = random.Random(7)
values = [generator.randrange(1000) for _ in range(400)]
print(ray.get(quick_sort.remote(values)) == sorted(values))
print(ray.get(search.remote(0, 400, 321)), ray.get(search.remote(0, 400, 400)))
