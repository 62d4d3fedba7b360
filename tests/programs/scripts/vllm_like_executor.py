"""An executor that puts its workers into the bundles of a group, ranks them by node, and runs a method on all of them."""

import os

import ray
from ray.util import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


class WorkerWrapper:
    def __init__(self, rpc_rank):
        self.rpc_rank = rpc_rank
        self.worker = None

    def get_node_and_pid(self):
        return ray.get_runtime_context().get_node_id(), os.getpid()

    def update_environment(self, values):
        os.environ.update(values)

    def init_worker(self, cls, **kwargs):
        self.worker = cls(rank=self.rpc_rank, **kwargs)

    def execute_method(self, method, *args, **kwargs):
        try:
            return getattr(self.worker, method)(*args, **kwargs)
        except Exception as error:
            raise RuntimeError(f"rank {self.rpc_rank}: {method} failed: {error}") from error


class Shard:
    def __init__(self, rank, size, width):
        self.rank, self.size, self.width = rank, size, width

    def load(self):
        self.part = list(range(self.rank, self.width, self.size))
        return len(self.part)

    def step(self, token):
        return sum(token * p for p in self.part)

    def environment(self, name):
        return os.environ.get(name)

    def bad(self):
        if self.rank == 1:
            raise KeyError("no such layer")


class Executor:
    def __init__(self, size, width):
        self.group = placement_group([{"CPU": 1}] * size, strategy="PACK")
        ray.get(self.group.ready(), timeout=60)
        self.workers = []
        for bundle in range(size):
            strategy = PlacementGroupSchedulingStrategy(
                placement_group=self.group,
                placement_group_capture_child_tasks=True,
                placement_group_bundle_index=bundle,
            )
            self.workers.append(
                ray.remote(num_cpus=1, scheduling_strategy=strategy)(WorkerWrapper).remote(rpc_rank=bundle)
            )
        where = ray.get([w.get_node_and_pid.remote() for w in self.workers])
        print("nodes", len({node for node, _ in where}), "processes", len({pid for _, pid in where}))
        ray.get([w.update_environment.remote({"WORLD": str(size)}) for w in self.workers])
        ray.get([w.init_worker.remote(Shard, size=size, width=width) for w in self.workers])

    def collective_rpc(self, method, args=(), timeout=None):
        return ray.get([w.execute_method.remote(method, *args) for w in self.workers], timeout=timeout)

    def shutdown(self):
        for worker in self.workers:
            ray.kill(worker, no_restart=True)
        remove_placement_group(self.group)


ray.init(num_cpus=4)
executor = Executor(3, 10)
print(executor.collective_rpc("load"))
print([sum(executor.collective_rpc("step", (token,))) for token in (1, 2, 3)])
print(executor.collective_rpc("environment", ("WORLD",)))
try:
    executor.collective_rpc("bad")
except RuntimeError as error:
    print(isinstance(error, ray.exceptions.RayTaskError), str(error.cause))
state = placement_group_table(executor.group)["state"]
executor.shutdown()
print(state, placement_group_table(executor.group)["state"])
