"""Generators as stages of a pipeline; a slow consumer holds the producer back."""

import ray

ray.init(num_cpus=4)


@ray.remote(num_cpus=0)
class Gauge:
    def __init__(self):
        self.made = 0
        self.used = 0
        self.most = 0

    def produced(self):
        self.made += 1
        self.most = max(self.most, self.made - self.used)

    def consumed(self):
        self.used += 1

    def report(self):
        return self.made, self.used, self.most


@ray.remote(_generator_backpressure_num_objects=3)
def produce(n, gauge):
    for i in range(n):
        ray.get(gauge.produced.remote())
        yield i


@ray.remote
def square_all(refs):
    for ref in refs:
        yield ray.get(ref) ** 2


@ray.remote
def take(n):
    """A generator that consumes another one, which it started itself."""
    for ref in numbers.remote():
        value = ray.get(ref)
        if value >= n:
            return
        yield value * 10


@ray.remote
def numbers():
    for i in range(50):
        yield i


gauge = Gauge.remote()
seen = []
for ref in produce.remote(20, gauge):
    seen.append(ray.get(ref))
    ray.get(gauge.consumed.remote())
print(seen == list(range(20)))
made, used, most = ray.get(gauge.report.remote())
print("made", made, "used", used, "held back:", most <= 6)

refs = [ray.put(i) for i in range(6)]
print([ray.get(r) for r in square_all.remote(refs)])
print([ray.get(r) for r in take.remote(5)])

stream = numbers.remote()
first = [ray.get(next(stream)) for _ in range(3)]
print(first)
del stream  # the rest is not wanted

both = [numbers.remote(), numbers.remote()]
print([ray.get(next(g)) for _ in range(3) for g in both])
