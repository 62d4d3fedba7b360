"""Order of calls: one caller's calls of an actor run in order; async and threaded actors overlap."""

import asyncio
import threading
import time

import ray


@ray.remote
class Ordered:
    def __init__(self):
        self.log = []

    def append(self, item):
        self.log.append(item)
        return len(self.log)

    def read(self):
        return self.log


@ray.remote
class Gate:
    def __init__(self):
        self.event = asyncio.Event()
        self.waiting = 0

    async def wait(self):
        self.waiting += 1
        await self.event.wait()
        return "through"

    async def open(self):
        self.event.set()
        return self.waiting


@ray.remote(max_concurrency=3)
class Barrier:
    def __init__(self, parties):
        self.barrier = threading.Barrier(parties)

    def wait(self):
        return self.barrier.wait(timeout=60) >= 0


@ray.remote
def write(actor, name, count):
    return ray.get([actor.append.remote((name, i)) for i in range(count)])[-1] >= count


ray.init(num_cpus=4)
ordered = Ordered.remote()
print(ray.get([ordered.append.remote(i) for i in range(5)]))
print(ray.get([write.remote(ordered, name, 4) for name in "ab"]))
log = ray.get(ordered.read.remote())
print([i for n, i in log[5:] if n == "a"], [i for n, i in log[5:] if n == "b"])
gate = Gate.remote()
refs = [gate.wait.remote() for _ in range(5)]
print(ray.get(gate.open.remote()) <= 5, ray.get(refs))
barrier = Barrier.remote(3)
print(ray.get([barrier.wait.remote() for _ in range(3)]))
