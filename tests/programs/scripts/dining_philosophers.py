"""Dining philosophers: forks are async actors, the lower-numbered fork is taken first."""

import asyncio

import ray

ray.init(num_cpus=4)

N = 5
MEALS = 4


@ray.remote(num_cpus=0)
class Fork:
    def __init__(self):
        self.lock = asyncio.Lock()
        self.holder = None
        self.uses = 0

    async def pick_up(self, who):
        await self.lock.acquire()
        self.holder = who
        self.uses += 1

    async def put_down(self, who):
        assert self.holder == who, (self.holder, who)
        self.holder = None
        self.lock.release()

    async def report(self):
        return self.uses, self.lock.locked()


@ray.remote(num_cpus=0)
class Philosopher:
    def __init__(self, seat, left, right):
        self.seat = seat
        self.first, self.second = left, right

    def dine(self, meals):
        eaten = 0
        for _ in range(meals):
            ray.get(self.first.pick_up.remote(self.seat))
            ray.get(self.second.pick_up.remote(self.seat))
            eaten += 1
            ray.get([self.second.put_down.remote(self.seat), self.first.put_down.remote(self.seat)])
        return eaten


forks = [Fork.remote() for _ in range(N)]
philosophers = []
for seat in range(N):
    low, high = sorted((seat, (seat + 1) % N))
    philosophers.append(Philosopher.remote(seat, forks[low], forks[high]))

print("meals:", ray.get([p.dine.remote(MEALS) for p in philosophers], timeout=60))
print("forks:", ray.get([fork.report.remote() for fork in forks]))
