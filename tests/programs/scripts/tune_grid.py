"""A grid of two parameters, a value that follows from others, and a trial that fails: reports, results and errors."""

import os
import tempfile

import pandas
import ray
from ray import tune


def train_function(config):
    if config["width"] == 3 and config["depth"] == 2:
        raise ValueError("too large")
    for step in range(1, 4):
        tune.report({"score": config["width"] * step - config["depth"], "step": step, "area": config["area"]})


def returning(config, table):
    return {"total": sum(table) * config["factor"]}


ray.init(num_cpus=4, log_to_driver=False)
store = tempfile.mkdtemp()
tuner = tune.Tuner(
    train_function,
    param_space={
        "width": tune.grid_search([1, 2, 3]),
        "depth": tune.grid_search([1, 2]),
        "area": tune.sample_from(lambda spec: spec.config.width * spec.config.depth),
        "fixed": "always",
    },
    tune_config=tune.TuneConfig(metric="score", mode="max"),
    run_config=tune.RunConfig(name="grid", storage_path=store, verbose=0),
)
results = tuner.fit()
print(len(results), "trials,", results.num_errors, "failed,", results.num_terminated, "ended")
for result in sorted(results, key=lambda each: (each.config["width"], each.config["depth"])):
    if result.error is None:
        shown = {key: result.metrics[key] for key in ("score", "step", "area", "training_iteration", "done")}
        print(result.config["width"], result.config["depth"], result.config["fixed"], shown)
    else:
        print(result.config["width"], result.config["depth"], "failed:", isinstance(result.error, ValueError))
best = results.get_best_result()
print("best:", best.config, best.metrics["score"])
print("best by the lowest:", results.get_best_result(metric="score", mode="min").metrics["score"])
print("best of all reports:", results.get_best_result(scope="all").metrics["score"])
frame = results.get_dataframe()
good = frame[frame["score"].notna()].sort_values(["config/width", "config/depth"])
print([int(each) for each in good["score"]], [int(each) for each in good["config/area"]])
print("history:", [int(each) for each in best.metrics_dataframe["score"]])
print("its folder:", os.path.relpath(results.experiment_path, store), os.path.isdir(best.path))
print(
    "files:",
    sorted(name for name in os.listdir(best.path) if name in ("params.json", "progress.csv", "result.json")),
)
print("progress.csv:", list(pandas.read_csv(os.path.join(best.path, "progress.csv"))["score"]))

table = list(range(1000))
grid = tune.Tuner(
    tune.with_parameters(tune.with_resources(returning, {"CPU": 2}), table=table),
    param_space={"factor": tune.grid_search([1, 2])},
    run_config=tune.RunConfig(name="returning", storage_path=store, verbose=0),
).fit()
print("returned:", sorted(each.metrics["total"] for each in grid))

sampled = tune.Tuner(
    lambda config: {"sum": config["a"]["x"] + config["a"]["y"]},
    param_space={"a": {"x": tune.randint(0, 10), "y": tune.choice([10, 20])}},
    tune_config=tune.TuneConfig(num_samples=3),
    run_config=tune.RunConfig(name="sampled", storage_path=store, verbose=0),
).fit()
print(
    "within bounds:",
    all(each.metrics["sum"] == each.config["a"]["x"] + each.config["a"]["y"] for each in sampled),
)
print(
    all(0 <= each.config["a"]["x"] < 10 and each.config["a"]["y"] in (10, 20) for each in sampled),
    len(sampled),
)

stopped = tune.Tuner(
    train_function,
    param_space={"width": 1, "depth": tune.grid_search([1, 2]), "area": 1},
    run_config=tune.RunConfig(name="stopped", storage_path=store, verbose=0, stop={"step": 2}),
).fit()
print("stopped:", [(each.metrics["step"], each.metrics["done"]) for each in stopped])
number = tune.Tuner(
    lambda config: 2.5, run_config=tune.RunConfig(name="number", storage_path=store, verbose=0)
).fit()
print("a number:", number[0].metrics["_metric"])
