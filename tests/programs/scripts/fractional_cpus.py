"""Fractional CPUs: how many actors and tasks fit, and what is left."""

import time

import ray

ray.init(num_cpus=2)


def cpus():
    return round(ray.available_resources().get("CPU", 0), 4)


def settle(expected):
    for _ in range(3000):
        if cpus() == expected:
            break
        time.sleep(0.01)
    return cpus()


@ray.remote(num_cpus=0.25)
class Small:
    def ping(self):
        return ray.get_runtime_context().get_assigned_resources().get("CPU")


@ray.remote
class Default:
    def ping(self):
        return ray.get_runtime_context().get_assigned_resources().get("CPU")


@ray.remote(num_cpus=0.5)
def half(gate):
    ray.get(gate.arrive.remote())
    return 1


@ray.remote(num_cpus=0)
class Gate:
    """Opens when enough have arrived at the same time."""

    def __init__(self, expected):
        import asyncio

        self.expected = expected
        self.arrived = 0
        self.event = asyncio.Event()

    async def arrive(self):
        self.arrived += 1
        if self.arrived >= self.expected:
            self.event.set()
        await self.event.wait()


actors = [Small.remote() for _ in range(8)]
print(ray.get([actor.ping.remote() for actor in actors]))
print("left:", settle(0))
one_more = Small.remote()
ready, _ = ray.wait([one_more.ping.remote()], timeout=0.3)
print("a ninth waits:", not ready)
ray.kill(actors[0])
print("now it runs:", ray.get(one_more.ping.remote(), timeout=30))
for actor in [*actors[1:], one_more]:
    ray.kill(actor)
print("left:", settle(2))

idle = [Default.remote() for _ in range(3)]
print("an actor runs without a CPU:", ray.get([actor.ping.remote() for actor in idle]), settle(2))

gate = Gate.remote(4)
print("four halves at once:", sum(ray.get([half.remote(gate) for _ in range(4)], timeout=60)))
for amount in (-1, "many"):
    try:
        ray.remote(num_cpus=amount)(lambda: 1)
    except (ValueError, TypeError) as error:
        print(type(error).__name__)
