"""A decorator that memoizes remote functions in an actor with least-recently-used eviction."""

import collections
import functools

import ray

ray.init(num_cpus=4)


@ray.remote
class Lru:
    def __init__(self, capacity):
        self.capacity = capacity
        self.entries = collections.OrderedDict()
        self.evicted = []

    def lookup(self, key):
        if key not in self.entries:
            return None
        self.entries.move_to_end(key)
        return self.entries[key]

    def store(self, key, refs):
        self.entries[key] = refs
        self.entries.move_to_end(key)
        while len(self.entries) > self.capacity:
            old, _ = self.entries.popitem(last=False)
            self.evicted.append(old)

    def keys(self):
        return list(self.entries)

    def get_evicted(self):
        return self.evicted


def memoize(capacity):
    def decorate(function):
        store = Lru.remote(capacity)
        remote_function = ray.remote(function)

        @functools.wraps(function)
        def call(*args):
            found = ray.get(store.lookup.remote(args))
            if found is None:
                ref = remote_function.remote(*args)
                ray.get(store.store.remote(args, [ref]))
                call.computed.append(args)
                return ref
            return found[0]

        call.computed = []
        call.store = store
        return call

    return decorate


@memoize(capacity=3)
def power(base, exponent):
    """base ** exponent, slowly"""
    result = 1
    for _ in range(exponent):
        result *= base
    return result


calls = [(2, 3), (3, 2), (2, 3), (5, 2), (7, 1), (3, 2), (2, 3), (7, 1)]
print([ray.get(power(*call)) for call in calls])
print("computed:", power.computed)
print("kept:", ray.get(power.store.keys.remote()))
print("evicted:", ray.get(power.store.get_evicted.remote()))
print(power.__name__, power.__doc__)
