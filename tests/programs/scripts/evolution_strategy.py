"""Evolution with a shared table of noise that every worker reads in place, and seeds instead of vectors."""

import numpy as np
import ray


@ray.remote
class Evaluator:
    def __init__(self, noise):
        self.noise = noise
        self.writeable = noise.flags.writeable

    def evaluate(self, params, offsets, sigma):
        target = np.linspace(-1, 1, len(params))
        out = []
        for offset in offsets:
            step = sigma * self.noise[offset : offset + len(params)]
            out.append((offset, -float(((params + step - target) ** 2).sum())))
        return out

    def is_writeable(self):
        return self.writeable


ray.init(num_cpus=3)
noise = np.random.default_rng(3).standard_normal(50_000)
table = ray.put(noise)
workers = [Evaluator.remote(table) for _ in range(3)]
print(ray.get([w.is_writeable.remote() for w in workers]))
params, generator, scores = np.zeros(8), np.random.default_rng(5), []
for generation in range(15):
    ref = ray.put(params)
    offsets = [generator.integers(0, 49_000, 12).tolist() for _ in workers]
    results = ray.get([w.evaluate.remote(ref, o, 0.3) for w, o in zip(workers, offsets, strict=True)])
    flat = sorted((s, o) for part in results for o, s in part)
    best = flat[-6:]
    params = params + np.mean([0.3 * noise[o : o + 8] for _, o in best], axis=0)
    scores.append(best[-1][0])
print(round(scores[0], 4), round(scores[-1], 4), scores[-1] > scores[0])
