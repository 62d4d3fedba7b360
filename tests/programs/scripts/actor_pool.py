"""ActorPool: ordered and unordered, with results taken one by one."""

import ray
from ray.util import ActorPool

ray.init(num_cpus=4)


@ray.remote(num_cpus=0)
class Worker:
    def __init__(self, name):
        self.name = name
        self.calls = 0

    def double(self, value):
        self.calls += 1
        if value == "bad":
            raise ValueError(value)
        return value * 2

    def count(self):
        return self.calls


def double(actor, value):
    return actor.double.remote(value)


workers = [Worker.remote(name) for name in "abc"]
pool = ActorPool(workers)
print(list(pool.map(double, [3, 1, 2, 5, 4])))
print(sorted(pool.map_unordered(double, range(8))))
print(sum(ray.get([w.count.remote() for w in workers])))

print(pool.has_next(), pool.has_free())
for i in range(5):
    pool.submit(double, i)
print(pool.has_next(), pool.has_free())
print(pool.get_next(), pool.get_next(timeout=30))
print(sorted(pool.get_next_unordered() for _ in range(3)))
print(pool.has_next())
try:
    pool.get_next()
except StopIteration as error:
    print("StopIteration:", error)

idle = pool.pop_idle()
print(idle in workers, len([w for w in workers if w == idle]))
try:
    pool.push(workers[0] if workers[0] != idle else workers[1])
except ValueError:
    print("ValueError: it belongs to the pool already")
pool.push(idle)
pool.push(Worker.remote("d"))
print(sorted(pool.map_unordered(double, "xyz")))

pool.submit(double, "bad")
try:
    pool.get_next()
except ValueError as error:
    print("ValueError", type(error).__name__)
print(list(pool.map(double, [7])))
lazy = pool.map(double, (n for n in (1, 2, 3)))
print(next(lazy), list(lazy))
