"""One generator that feeds several consumers: refs are handed on without their values passing the driver."""

import ray


@ray.remote
def produce(count):
    for i in range(count):
        yield [i] * 3


@ray.remote
class Consumer:
    def __init__(self):
        self.total = self.items = 0

    def feed(self, block):
        self.total += sum(block)
        self.items += 1

    def result(self):
        return self.items, self.total


@ray.remote
def drain(generator):
    return [sum(ray.get(ref)) for ref in generator]


@ray.remote
class Source:
    def __init__(self):
        self.calls = 0

    @ray.method(num_returns="streaming")
    def items(self, *names):
        self.calls += 1
        for name in names:
            yield f"{self.calls}:{name}"


ray.init(num_cpus=3)
consumers = [Consumer.remote() for _ in range(3)]
for index, ref in enumerate(produce.remote(10)):
    consumers[index % 3].feed.remote(ref)
print(ray.get([c.result.remote() for c in consumers]))
source = Source.remote()
streams = [source.items.remote("a", "b"), source.items.remote(), source.items.remote("c")]
print([[ray.get(ref) for ref in stream] for stream in streams])
stream = produce.remote(4)
print(ray.get(next(stream)), ray.get(stream.completed()) is None, len(list(stream)))
early = produce.remote(1000)
print(ray.get(next(early)))
del early
print(ray.get(produce.options(num_returns=2).remote(2)))
