"""Logistic regression: mini-batch gradients from stateless tasks, averaged by the driver."""

import numpy as np
import ray

ray.init(num_cpus=4)


@ray.remote(num_returns=2)
def gradient_and_loss(data, weights, start, stop):
    x, y = data
    x, y = x[start:stop], y[start:stop]
    p = 1 / (1 + np.exp(-(x @ weights)))
    loss = -np.mean(y * np.log(p + 1e-12) + (1 - y) * np.log(1 - p + 1e-12))
    return x.T @ (p - y) / len(y), loss


@ray.remote
def evaluate(data, weights):
    x, y = data
    return float(np.mean(((x @ weights) > 0) == y))


rng = np.random.default_rng(0)
true = np.array([1.5, -2.0, 0.7, 0.0, 3.0])
x = rng.normal(size=(4000, 5))
y = (x @ true + rng.normal(size=4000) * 0.1 > 0).astype(float)
data = ray.put((x, y))

weights = np.zeros(5)
history = []
for epoch in range(15):
    shared = ray.put(weights)
    parts = [gradient_and_loss.remote(data, shared, i, i + 1000) for i in range(0, 4000, 1000)]
    gradients, losses = zip(*[ray.get(list(part)) for part in parts])
    history.append(float(np.mean(losses)))
    weights = weights - 2.0 * np.mean(gradients, axis=0)

print("loss falls:", history == sorted(history, reverse=True))
print("first and last:", f"{history[0]:.4f} {history[-1]:.4f}")
print("accuracy:", f"{ray.get(evaluate.remote(data, weights)):.3f}")
print("signs:", np.sign(np.round(weights, 1)).astype(int).tolist())
