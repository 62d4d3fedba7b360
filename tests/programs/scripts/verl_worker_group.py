"""A single controller that drives groups of workers: methods say how arguments are split and results gathered."""

import functools

import numpy as np
import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

SPLIT = "split"
BROADCAST = "broadcast"


def register(mode, gather=list):
    def decorate(function):
        @functools.wraps(function)
        def inner(self, *args, **kwargs):
            return function(self, *args, **kwargs)

        inner.dispatch = (mode, gather)
        return inner

    return decorate


class Worker:
    def __init__(self, rank, world_size, role):
        self.rank, self.world_size, self.role = rank, world_size, role
        self.weights = np.zeros(4)

    @register(BROADCAST, gather=lambda out: out[0])
    def load(self, weights):
        self.weights = weights.copy()
        return float(self.weights.sum())

    @register(SPLIT, gather=lambda out: np.concatenate(out))
    def forward(self, batch):
        return batch @ self.weights

    @register(SPLIT, gather=lambda out: sum(out))
    def count(self, batch):
        return len(batch)

    @register(BROADCAST)
    def whoami(self):
        return f"{self.role} {self.rank}/{self.world_size}"


class WorkerGroup:
    def __init__(self, cls, size, role):
        self.group = placement_group([{"CPU": 0.5}] * size, strategy="PACK")
        ray.get(self.group.ready())
        remote = ray.remote(cls)
        self.workers = [
            remote.options(
                num_cpus=0.5,
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    self.group, placement_group_bundle_index=i
                ),
            ).remote(i, size, role)
            for i in range(size)
        ]
        for name in dir(cls):
            dispatch = getattr(getattr(cls, name), "dispatch", None)
            if dispatch:
                setattr(self, name, functools.partial(self._call, name, *dispatch))

    def _call(self, name, mode, gather, *args):
        if mode == SPLIT:
            parts = [np.array_split(arg, len(self.workers)) for arg in args]
            refs = [getattr(w, name).remote(*(p[i] for p in parts)) for i, w in enumerate(self.workers)]
        else:
            refs = [getattr(w, name).remote(*args) for w in self.workers]
        return gather(ray.get(refs))

    def close(self):
        for worker in self.workers:
            ray.kill(worker)
        remove_placement_group(self.group)


ray.init(num_cpus=4)
actor = WorkerGroup(Worker, 3, "actor")
critic = WorkerGroup(Worker, 2, "critic")
print(actor.whoami(), critic.whoami())
print(actor.load(np.arange(4.0)), critic.load(np.ones(4)))
batch = np.arange(28.0).reshape(7, 4)
print(actor.forward(batch))
print(critic.forward(batch) - actor.forward(batch))
print(actor.count(batch), critic.count(batch))
actor.close()
critic.close()
