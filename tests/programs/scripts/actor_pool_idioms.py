"""ActorPool: ordered and unordered maps, submit and get_next, busy and idle actors, a pool that grows."""

import ray
from ray.util import ActorPool


@ray.remote
class Square:
    def __init__(self):
        self.done = 0

    def compute(self, x):
        self.done += 1
        if x < 0:
            raise ValueError(x)
        return x * x

    def count(self):
        return self.done


ray.init(num_cpus=3)
actors = [Square.remote() for _ in range(2)]
pool = ActorPool(actors)
print(list(pool.map(lambda a, v: a.compute.remote(v), range(6))))
print(sorted(pool.map_unordered(lambda a, v: a.compute.remote(v), range(5))))
print(pool.has_next(), pool.has_free())
for value in (3, 1, 2):
    pool.submit(lambda a, v: a.compute.remote(v), value)
print(pool.has_free(), pool.get_next(), pool.get_next(timeout=30), pool.get_next())
try:
    pool.get_next()
except StopIteration as error:
    print("stop", error)
idle = pool.pop_idle()
print(idle is not None, pool.has_free())
pool.push(idle)
try:
    pool.push(idle)
except ValueError as error:
    print("already", "Actor already belongs" in str(error))
pool.push(Square.remote())
pool.submit(lambda a, v: a.compute.remote(v), -1)
pool.submit(lambda a, v: a.compute.remote(v), 5)
try:
    print(pool.get_next())
except ValueError as error:
    print("error", type(error).__name__)
print(pool.get_next_unordered())
print(sum(ray.get([a.count.remote() for a in actors])) >= 8)
