"""Generators of async actors and of plain ones, consumed with for, async for and ray.wait."""

import asyncio

import ray

ray.init(num_cpus=4)


@ray.remote
class Feed:
    def __init__(self):
        self.closed = []

    async def ticks(self, name, n):
        for i in range(n):
            await asyncio.sleep(0)
            yield f"{name}{i}"

    async def fails(self, n):
        for i in range(n):
            yield i
        raise ValueError("the feed broke")

    async def merged(self, other, n):
        async for ref in other.ticks.remote("m", n):
            yield (await ref).upper()


@ray.remote
class Plain:
    def count(self, n):
        for i in range(n):
            yield i * 10

    @ray.method(num_returns=2)
    def pair(self):
        return "left", "right"


feed, plain = Feed.remote(), Plain.remote()
print([ray.get(ref) for ref in feed.ticks.remote("t", 4)])
print([ray.get(ref) for ref in plain.count.remote(4)])

stream = feed.fails.remote(2)
got = []
try:
    for ref in stream:
        got.append(ray.get(ref))
except ValueError as error:
    print(got, "then", "the feed broke" in str(error))
try:
    next(stream)
except StopIteration:
    print("nothing after the error")


async def consume():
    found = []
    async for ref in feed.ticks.remote("a", 3):
        found.append(await ref)
    both = await asyncio.gather(*[collect(feed.ticks.remote(name, 2)) for name in "xy"])
    return found, both


async def collect(generator):
    return [await ref async for ref in generator]


print(asyncio.run(consume()))
print([ray.get(ref) for ref in feed.merged.remote(Feed.remote(), 3)])

streams = [plain.count.remote(3), plain.count.remote(3)]
taken = {stream: [] for stream in streams}
unfinished = list(streams)
while unfinished:
    ready, unfinished = ray.wait(unfinished, num_returns=1)
    for stream in ready:
        try:
            taken[stream].append(ray.get(next(stream)))
        except StopIteration:
            continue
        unfinished.append(stream)
print(list(taken.values()))
left, right = plain.pair.remote()
print(ray.get([left, right]))
print(type(feed.ticks.remote("z", 1)).__name__)
