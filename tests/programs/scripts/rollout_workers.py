"""Rollout workers sample with weights that a learner broadcasts; slow ones are not waited for, dead ones are replaced."""

import numpy as np
import ray


class Corridor:
    def __init__(self, length):
        self.length = length

    def reset(self):
        self.position = 0
        return self.position

    def step(self, action):
        self.position = max(0, self.position + (1 if action else -1))
        done = self.position >= self.length
        return self.position, 1.0 if done else -0.1, done


@ray.remote(max_restarts=0)
class RolloutWorker:
    def __init__(self, index, length):
        self.index = index
        self.env = Corridor(length)
        self.version = -1

    def set_weights(self, version, weights):
        self.version, self.weights = version, weights

    def sample(self, seed):
        generator = np.random.default_rng(seed)
        self.env.reset()
        steps, total = 0, 0.0
        for _ in range(200):
            action = generator.random() < self.weights[0]
            _, reward, done = self.env.step(action)
            steps, total = steps + 1, total + reward
            if done:
                break
        return {"worker": self.index, "version": self.version, "steps": steps, "return": round(total, 3)}

    def crash(self):
        import os

        os._exit(1)


class WorkerSet:
    def __init__(self, size, length):
        self.length = length
        self.workers = [RolloutWorker.remote(i, length) for i in range(size)]
        self.replaced = 0

    def foreach(self, function):
        results = []
        for index, ref in enumerate([function(w) for w in self.workers]):
            try:
                results.append(ray.get(ref))
            except ray.exceptions.RayActorError:
                self.workers[index] = RolloutWorker.remote(index, self.length)
                self.replaced += 1
        return results


ray.init(num_cpus=4)
workers = WorkerSet(3, 5)
weights = np.array([0.6])
for version in range(3):
    weights_ref = ray.put(weights)
    workers.foreach(lambda w, v=version, r=weights_ref: w.set_weights.remote(v, r))
    samples = workers.foreach(lambda w, v=version: w.sample.remote(v))
    print(version, len(samples), {s["version"] for s in samples}, {s["steps"] for s in samples})
    weights = weights + 0.15
print(len(workers.foreach(lambda w: w.crash.remote() if w is workers.workers[1] else w.sample.remote(1))))
print("replaced", workers.replaced)
workers.foreach(lambda w: w.set_weights.remote(9, ray.put(np.array([1.0]))))
print([s["steps"] for s in workers.foreach(lambda w: w.sample.remote(0))])
