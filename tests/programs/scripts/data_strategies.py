"""Where functions run: tasks, pools of actors, resources, and settings of the context."""

import asyncio
import os

import ray
from ray.data import ActorPoolStrategy, DataContext, ExecutionResources, TaskPoolStrategy

ray.init(num_cpus=4)
context = DataContext.get_current()
context.execution_options.preserve_order = True
context.execution_options.verbose_progress = False
context.enable_progress_bars = False
context.target_max_block_size = 16 * 1024 * 1024
print("the context is shared:", DataContext.get_current() is context, context.target_max_block_size >> 20)
dataset = ray.data.range(60, override_num_blocks=6)
print("in order:", [row["id"] for row in dataset.map(lambda row: row).take(5)])


def add(batch, amount, factor=1):
    return {"id": batch["id"] * factor + amount}


tasks = dataset.map_batches(
    add, fn_args=[5], fn_kwargs={"factor": 2}, compute=TaskPoolStrategy(size=2), num_cpus=0.5
)
print("tasks:", tasks.sum("id"))


class Counter:
    """Counts its calls; each actor is a process of its own."""

    def __init__(self, start=0):
        self.calls = start

    def __call__(self, batch):
        self.calls += 1
        return {
            "id": batch["id"],
            "pid": [os.getpid()] * len(batch["id"]),
            "call": [self.calls] * len(batch["id"]),
        }


fixed = dataset.map_batches(
    Counter, compute=ActorPoolStrategy(size=2), batch_size=10, num_cpus=0.5
).take_all()
print(
    "two actors at most:",
    len({row["pid"] for row in fixed}) <= 2,
    os.getpid() not in {row["pid"] for row in fixed},
)
print("they keep their state:", max(row["call"] for row in fixed) >= 3)
elastic = dataset.map_batches(
    Counter, compute=ActorPoolStrategy(min_size=1, max_size=3), fn_constructor_args=[100]
)
rows = elastic.take_all()
print("elastic:", len(rows), min(row["call"] for row in rows) == 101, len({row["pid"] for row in rows}) <= 3)
one = dataset.map_batches(Counter, concurrency=1, batch_size=5).take_all()
print("one actor:", len({row["pid"] for row in one}), sorted({row["call"] for row in one}))


class Fetcher:
    """Waits for several answers at a time."""

    async def __call__(self, batch):
        async def fetch(i):
            await asyncio.sleep(0.001)
            return int(i) ** 2

        return {"square": await asyncio.gather(*map(fetch, batch["id"]))}


squares = dataset.map_batches(Fetcher, concurrency=1, batch_size=15)
print("async:", squares.sum("square"), squares.count())


class Sign:
    def __call__(self, row):
        return row["id"] % 7 == 0


print("filter by a class:", [row["id"] for row in dataset.filter(Sign, concurrency=1).take(4)])
print("flat_map:", dataset.flat_map(lambda row: [row] * (row["id"] % 3), num_cpus=0.25).count())
for wrong in ({"size": 0}, {"min_size": 3, "max_size": 1}):
    try:
        ActorPoolStrategy(**wrong)
    except ValueError as error:
        print("wrong pool:", type(error).__name__)
try:
    dataset.map_batches(Counter, fn_args=[1], compute=TaskPoolStrategy(size=1)).take_all()
except (ValueError, TypeError) as error:
    print("a class in tasks:", type(error).__name__)
context.execution_options.resource_limits = ExecutionResources(cpu=2)
print(
    "limits:", context.execution_options.resource_limits.cpu, dataset.map_batches(add, fn_args=[1]).sum("id")
)
