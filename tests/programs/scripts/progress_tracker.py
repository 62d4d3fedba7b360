"""Progress bars kept by an actor and drawn by the driver."""

import asyncio

import ray

ray.init(num_cpus=4)


@ray.remote(num_cpus=0)
class ProgressBarActor:
    def __init__(self):
        self.counter = {}
        self.delta = 0
        self.event = asyncio.Event()

    def update(self, job, items):
        self.counter[job] = self.counter.get(job, 0) + items
        self.delta += items
        self.event.set()

    async def wait_for_update(self):
        """Returns what is new since the last call, and everything so far."""
        await self.event.wait()
        self.event.clear()
        saved, self.delta = self.delta, 0
        return saved, dict(self.counter)


@ray.remote
def work(job, items, bar):
    for _ in range(items):
        bar.update.remote(job, 1)
    return job, items


def draw(job, done, total, width=20):
    filled = width * done // total
    return f"{job:>6} [{'#' * filled}{'.' * (width - filled)}] {done}/{total}"


totals = {"fetch": 12, "parse": 20, "store": 5}
bar = ProgressBarActor.remote()
tasks = [work.remote(job, n, bar) for job, n in totals.items()]

seen = 0
while seen < sum(totals.values()):
    delta, counter = ray.get(bar.wait_for_update.remote())
    seen += delta
    assert sum(counter.values()) == seen

for job, total in totals.items():
    print(draw(job, counter[job], total))
print(ray.get(tasks))
