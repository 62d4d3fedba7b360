"""Asynchronous parameter server: a worker's gradient is applied as soon as it is there."""

import numpy as np
import ray

ray.init(num_cpus=4)


@ray.remote
class ParameterServer:
    def __init__(self, **values):
        self.values = {name: np.array(value, dtype=float) for name, value in values.items()}
        self.updates = 0

    def push(self, gradients):
        for name, gradient in gradients.items():
            self.values[name] -= 0.1 * gradient
        self.updates += 1
        return self.pull()

    def pull(self):
        return {name: value.copy() for name, value in self.values.items()}

    def count(self):
        return self.updates


@ray.remote
def compute_gradient(values, target):
    """Gradient of 0.5 * |values - target|^2."""
    return {name: value - target[name] for name, value in values.items()}


target = {"a": np.array([1.0, 2.0]), "b": np.array([[3.0], [-4.0]])}
target_ref = ray.put(target)
server = ParameterServer.remote(a=[0.0, 0.0], b=[[0.0], [0.0]])

in_flight = {}
for worker in range(3):
    in_flight[compute_gradient.remote(server.pull.remote(), target_ref)] = worker

applied = {0: 0, 1: 0, 2: 0}
while min(applied.values()) < 40:  # one may take long to start
    [ready], _ = ray.wait(list(in_flight))
    worker = in_flight.pop(ready)
    applied[worker] += 1
    in_flight[compute_gradient.remote(server.push.remote(ready), target_ref)] = worker

ray.get(list(in_flight))
values = ray.get(server.pull.remote())
print("every update counts:", ray.get(server.count.remote()) == sum(applied.values()))
print("every worker took part:", all(n > 0 for n in applied.values()))
for name in sorted(values):
    print(name, values[name].shape, "close:", bool(np.allclose(values[name], target[name], atol=0.1)))
