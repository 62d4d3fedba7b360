"""Custom resources as semaphores: licences limit how many run at once."""

import time

import ray

ray.init(num_cpus=8, resources={"licence": 2, "scratch": 1})


@ray.remote(num_cpus=0)
class Monitor:
    def __init__(self):
        self.now = {}
        self.most = {}

    def enter(self, kind):
        self.now[kind] = self.now.get(kind, 0) + 1
        self.most[kind] = max(self.most.get(kind, 0), self.now[kind])

    def leave(self, kind):
        self.now[kind] -= 1

    def report(self):
        return self.most


def occupy(kind, monitor):
    ray.get(monitor.enter.remote(kind))
    time.sleep(0.02)
    ray.get(monitor.leave.remote(kind))
    return ray.get_runtime_context().get_assigned_resources().get(kind)


@ray.remote(resources={"licence": 1})
def licensed(monitor):
    return occupy("licence", monitor)


@ray.remote(resources={"scratch": 0.25}, num_cpus=0.1)
def scratch(monitor):
    return occupy("scratch", monitor)


monitor = Monitor.remote()
print(set(ray.get([licensed.remote(monitor) for _ in range(6)])))
print(set(ray.get([scratch.remote(monitor) for _ in range(8)])))
most = ray.get(monitor.report.remote())
print("licences:", most["licence"] <= 2, "scratch:", most["scratch"] <= 4)

total = ray.cluster_resources()
print({key: total[key] for key in ("CPU", "licence", "scratch")})


@ray.remote(resources={"unicorn": 1})
def impossible():
    return 1


ready, waiting = ray.wait([impossible.remote()], timeout=0.2)
print("impossible:", len(ready), len(waiting))

for bad in ({"CPU": 1}, {"licence": -1}):
    try:
        ray.remote(resources=bad)(lambda: 1).remote()
    except ValueError:
        print("ValueError for", bad)
