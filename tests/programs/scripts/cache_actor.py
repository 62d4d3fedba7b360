"""Many tasks share one cache actor which the first of them creates."""

import ray

ray.init(num_cpus=4, namespace="cache")


@ray.remote(num_cpus=0)
class Cache:
    def __init__(self):
        self.data = {}
        self.hits = 0
        self.misses = 0

    def get(self, key):
        if key in self.data:
            self.hits += 1
            return True, self.data[key]
        self.misses += 1
        return False, None

    def put(self, key, value):
        return self.data.setdefault(key, value)

    def stats(self):
        return self.hits + self.misses, len(self.data)


def cache():
    return Cache.options(name="cache", get_if_exists=True, lifetime="detached").remote()


@ray.remote
def slow_square(x):
    handle = cache()
    found, value = ray.get(handle.get.remote(x))
    if not found:
        value = ray.get(handle.put.remote(x, x * x))
    return value


print(ray.get([slow_square.remote(i % 5) for i in range(30)]))
handle = cache()
lookups, keys = ray.get(handle.stats.remote())
print("lookups:", lookups, "keys:", keys)
print("one cache:", ray.util.list_named_actors())

try:
    Cache.options(get_if_exists=True).remote()
except ValueError:
    print("get_if_exists needs a name")

ray.kill(handle)
fresh = None
while fresh is None:
    try:
        fresh = cache()
        print("after kill:", ray.get(fresh.stats.remote()))
    except ray.exceptions.RayActorError:
        fresh = None
ray.kill(fresh)
