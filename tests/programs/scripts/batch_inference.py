"""Batch inference with a pool of actors that hold the model."""

import numpy as np
import ray
from ray.util import ActorPool

ray.init(num_cpus=4)


class Model:
    """Two dense layers; loading is the expensive part."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.w1 = rng.normal(size=(8, 16))
        self.w2 = rng.normal(size=(16, 3))

    def __call__(self, batch):
        hidden = np.maximum(batch @ self.w1, 0)
        return (hidden @ self.w2).argmax(axis=1)


@ray.remote
class Predictor:
    def __init__(self, weights_ref):
        self.model = ray.get(weights_ref[0])
        self.batches = 0

    def predict(self, batch):
        self.batches += 1
        return self.model(batch)

    def served(self):
        return self.batches


model_ref = ray.put(Model(seed=7))
predictors = [Predictor.remote([model_ref]) for _ in range(3)]
pool = ActorPool(predictors)

rng = np.random.default_rng(1)
batches = [rng.normal(size=(32, 8)) for _ in range(12)]
results = list(pool.map(lambda actor, batch: actor.predict.remote(batch), batches))

reference = Model(seed=7)
print("batches:", len(results))
print("same as local:", all((reference(b) == r).all() for b, r in zip(batches, results)))
print("histogram:", np.bincount(np.concatenate(results), minlength=3).tolist())
print("served:", sum(ray.get([p.served.remote() for p in predictors])))
print("in order again:", [int(r.sum()) for r in pool.map(lambda a, b: a.predict.remote(b), batches[:4])])
