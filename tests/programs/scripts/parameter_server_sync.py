"""Synchronous parameter server: every round waits for the gradients of all workers."""

import numpy as np
import ray

ray.init(num_cpus=4)

ROUNDS = 12
RATE = 0.2


def dataset(shard, n=200):
    rng = np.random.default_rng(shard)
    x = rng.normal(size=(n, 3))
    y = x @ np.array([2.0, -1.0, 0.5]) + 3.0
    return np.hstack([x, np.ones((n, 1))]), y


@ray.remote
class ParameterServer:
    def __init__(self, size):
        self.weights = np.zeros(size)
        self.version = 0

    def apply_gradients(self, *gradients):
        self.weights = self.weights - RATE * np.mean(gradients, axis=0)
        self.version += 1
        return self.weights

    def get_weights(self):
        return self.weights

    def get_version(self):
        return self.version


@ray.remote
class DataWorker:
    def __init__(self, shard):
        self.x, self.y = dataset(shard)

    def compute_gradients(self, weights):
        error = self.x @ weights - self.y
        return self.x.T @ error / len(self.y)

    def loss(self, weights):
        return float(np.mean((self.x @ weights - self.y) ** 2))


server = ParameterServer.remote(4)
workers = [DataWorker.remote(i) for i in range(3)]

weights = server.get_weights.remote()
losses = []
for _ in range(ROUNDS):
    gradients = [worker.compute_gradients.remote(weights) for worker in workers]
    weights = server.apply_gradients.remote(*gradients)
    losses.append(np.mean(ray.get([worker.loss.remote(weights) for worker in workers])))

print("rounds:", ray.get(server.get_version.remote()))
print("loss falls:", all(b < a for a, b in zip(losses, losses[1:])))
print("last loss:", f"{losses[-1]:.6f}")
print("weights:", [f"{w:.4f}" for w in ray.get(weights)])
