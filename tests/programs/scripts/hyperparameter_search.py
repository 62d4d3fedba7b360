"""Random search with early stopping by successive halving, driven by ray.wait."""

import random

import ray

ray.init(num_cpus=4)


def objective(config, steps):
    """A noisy bowl with its minimum at lr = 0.1, momentum = 0.9; more steps, less noise."""
    noise = random.Random(f"{config}{steps}").uniform(-1, 1) / (steps + 1)
    return (config["lr"] - 0.1) ** 2 * 40 + (config["momentum"] - 0.9) ** 2 + noise * 0.01


@ray.remote
class Trial:
    def __init__(self, trial_id, config):
        self.trial_id = trial_id
        self.config = config
        self.steps = 0

    def train(self, steps):
        self.steps += steps
        return {"trial": self.trial_id, "loss": objective(self.config, self.steps), "steps": self.steps}

    def checkpoint(self):
        return {"config": self.config, "steps": self.steps}


def sample(rng):
    return {"lr": round(rng.uniform(0.001, 0.5), 4), "momentum": round(rng.uniform(0, 1), 3)}


rng = random.Random(42)
trials = {i: Trial.options(num_cpus=0.5).remote(i, sample(rng)) for i in range(8)}
budget = 1
rung = 0
while len(trials) > 1:
    running = {trial.train.remote(budget): trial_id for trial_id, trial in trials.items()}
    results = []
    remaining = list(running)
    while remaining:
        done, remaining = ray.wait(remaining, num_returns=min(2, len(remaining)))
        for ref in done:
            result = ray.get(ref)
            assert running[ref] == result["trial"]
            results.append(result)
    results.sort(key=lambda r: (r["loss"], r["trial"]))
    keep = results[: len(results) // 2]
    print(
        f"rung {rung}: kept {sorted(r['trial'] for r in keep)} of {len(results)}, best {results[0]['loss']:.5f}"
    )
    trials = {r["trial"]: trials[r["trial"]] for r in keep}
    budget *= 2
    rung += 1

[(best, actor)] = trials.items()
print("best:", best, ray.get(actor.checkpoint.remote()))
