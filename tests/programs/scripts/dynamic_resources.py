"""Custom resources as tokens: at most as many tasks run side by side as there are tokens."""

import ray


@ray.remote(num_cpus=0)
class Meter:
    def __init__(self):
        self.now = self.most = 0

    def enter(self):
        self.now += 1
        self.most = max(self.most, self.now)

    def leave(self):
        self.now -= 1

    def read(self):
        return self.now, self.most


@ray.remote(num_cpus=0, resources={"license": 1})
def licensed(meter, i):
    ray.get(meter.enter.remote())
    ray.get(meter.leave.remote())
    return i


ray.init(num_cpus=4, resources={"license": 2, "gizmo": 1})
meter = Meter.remote()
print(ray.get([licensed.remote(meter, i) for i in range(10)]))
now, most = ray.get(meter.read.remote())
print(now, most <= 2)
print(sorted((k, v) for k, v in ray.cluster_resources().items() if k in ("license", "gizmo", "CPU")))


@ray.remote(num_cpus=0, resources={"gizmo": 0.25})
def gizmo():
    return ray.get_runtime_context().get_assigned_resources()


print(ray.get([gizmo.remote() for _ in range(3)]))
ref = licensed.options(resources={"license": 3}).remote(meter, 99)
print(ray.wait([ref], timeout=1)[0])
ray.cancel(ref)
try:
    ray.get(ref)
except ray.exceptions.TaskCancelledError:
    print("cancelled")
for bad in ({"CPU": 1}, {"license": -1}):
    try:
        licensed.options(resources=bad).remote(meter, 1)
    except ValueError:
        print("refused", bad)
