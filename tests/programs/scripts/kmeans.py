"""K-means: shards stay in actors, only sums travel."""

import numpy as np
import ray

ray.init(num_cpus=4)

CENTRES = np.array([[0.0, 0.0], [8.0, 0.0], [0.0, 8.0], [8.0, 8.0]])


@ray.remote
class Shard:
    def __init__(self, seed, n):
        rng = np.random.default_rng(seed)
        self.points = CENTRES[rng.integers(len(CENTRES), size=n)] + rng.normal(size=(n, 2))

    @ray.method(num_returns=2)
    def assign(self, centroids):
        distances = ((self.points[:, None, :] - centroids[None]) ** 2).sum(axis=2)
        nearest = distances.argmin(axis=1)
        sums = np.array([self.points[nearest == k].sum(axis=0) for k in range(len(centroids))])
        return sums, np.bincount(nearest, minlength=len(centroids))

    def sample(self, n):
        return self.points[:n].copy()


shards = [Shard.remote(seed, 250) for seed in range(4)]
centroids = np.array([[1.0, 1.0], [5.0, 1.0], [1.0, 5.0], [5.0, 5.0]])

for iteration in range(50):
    centroids_ref = ray.put(centroids)
    answers = [shard.assign.remote(centroids_ref) for shard in shards]
    sums = sum(ray.get([s for s, _ in answers]))
    counts = sum(ray.get([c for _, c in answers]))
    updated = sums / counts[:, None]
    moved = float(np.abs(updated - centroids).max())
    centroids = updated
    if moved < 1e-9:
        break

print("iterations:", iteration + 1)
print("counts:", counts.tolist(), counts.sum())
for centroid, true in zip(centroids, [[0, 0], [8, 0], [0, 8], [8, 8]]):
    print([f"{v:.3f}" for v in centroid], "near", true, bool(np.abs(centroid - true).max() < 0.3))
