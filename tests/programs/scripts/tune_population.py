"""A class is trained by a population, and an experiment with a trial that fails is restored."""

import json
import os
import tempfile

import ray
from ray import tune
from ray.tune.schedulers import PopulationBasedTraining

STORE = tempfile.mkdtemp()


class Climber(tune.Trainable):
    def setup(self, config):
        self.height = 0.0
        self.rates = []

    def step(self):
        rate = self.config["rate"]
        self.rates.append(rate)
        self.height += rate
        return {"height": self.height, "changed": len(set(self.rates)) > 1}

    def save_checkpoint(self, checkpoint_dir):
        with open(os.path.join(checkpoint_dir, "state.json"), "w") as file:
            json.dump({"height": self.height, "rates": self.rates}, file)

    def load_checkpoint(self, checkpoint_dir):
        with open(os.path.join(checkpoint_dir, "state.json")) as file:
            state = json.load(file)
        self.height, self.rates = state["height"], state["rates"]


class Fragile(Climber):
    def step(self):
        if len(self.rates) == 3 and self.config["rate"] == 2 and not os.path.exists(STORE + "/mended"):
            raise RuntimeError("not mended yet")
        return super().step()

    def save_checkpoint(self, checkpoint_dir):
        return {"height": self.height, "rates": self.rates}

    def load_checkpoint(self, checkpoint):
        self.height, self.rates = checkpoint["height"], checkpoint["rates"]


def by_rate(result):
    return result.config["rate"]


def explore(config):
    config["rate"] = 1.25
    return config


ray.init(num_cpus=4, log_to_driver=False)
scheduler = PopulationBasedTraining(
    time_attr="training_iteration",
    perturbation_interval=4,
    hyperparam_mutations={"rate": tune.uniform(0.1, 2.0)},
    custom_explore_fn=explore,
    quantile_fraction=0.25,
    synch=True,
)
results = tune.Tuner(
    Climber,
    param_space={"rate": tune.grid_search([0.25, 0.5, 0.75, 1.0])},
    tune_config=tune.TuneConfig(metric="height", mode="max", scheduler=scheduler),
    run_config=tune.RunConfig(
        name="population",
        storage_path=STORE,
        verbose=0,
        stop={"training_iteration": 12},
        checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=4, checkpoint_at_end=True),
    ),
).fit()
print("iterations:", [each.metrics["training_iteration"] for each in results], "errors:", results.errors)
print("heights:", sorted(each.metrics["height"] for each in results))
print("changed:", sum(each.metrics["changed"] for each in results))
best = results.get_best_result()
with best.checkpoint.as_directory() as folder:
    print("best:", json.load(open(os.path.join(folder, "state.json")))["rates"])

tuner = tune.Tuner(
    Fragile,
    param_space={"rate": tune.grid_search([1, 2, 3])},
    run_config=tune.RunConfig(
        name="fragile",
        storage_path=STORE,
        verbose=0,
        stop={"training_iteration": 5},
        checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1),
    ),
)
results = tuner.fit()
print("failed:", [each.config["rate"] for each in results if each.error], "of", len(results))
path = STORE + "/fragile"
print("can be restored:", tune.Tuner.can_restore(path), tune.Tuner.can_restore(STORE + "/nothing"))
past = tune.Tuner.restore(path, trainable=Fragile).get_results()
print(
    "as restored:",
    [(each.config["rate"], each.metrics["height"], each.error is None) for each in sorted(past, key=by_rate)],
)
open(STORE + "/mended", "w").close()
results = tune.Tuner.restore(path, trainable=Fragile, resume_errored=True).fit()
for result in sorted(results, key=by_rate):
    metrics = result.metrics
    print(
        result.config["rate"],
        metrics["height"],
        metrics["training_iteration"],
        metrics["iterations_since_restore"],
    )
print("errors:", results.errors)
