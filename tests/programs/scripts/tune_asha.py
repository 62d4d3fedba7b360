"""ASHA stops trials early; each trial saves checkpoints, of which the best two are kept, and goes on from them."""

import json
import os
import tempfile

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler


def train_function(config):
    step, loss = 0, 10.0
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            with open(os.path.join(folder, "state.json")) as file:
                state = json.load(file)
        step, loss = state["step"], state["loss"]
    began = step
    while step < 8:
        step += 1
        if step == 6 and began == 0 and config["fails"]:
            raise RuntimeError("the trial fails once, in step 6")
        loss = loss * config["decay"]
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "state.json"), "w") as file:
                json.dump({"step": step, "loss": loss}, file)
            tune.report(
                {"loss": loss, "step": step, "began": began},
                checkpoint=tune.Checkpoint.from_directory(folder),
            )


ray.init(num_cpus=2, log_to_driver=False)
store = tempfile.mkdtemp()
results = tune.Tuner(
    train_function,
    param_space={
        "decay": tune.grid_search([0.8, 0.9, 0.7, 0.95, 0.6, 0.75]),
        "fails": tune.sample_from(lambda spec: spec.config.decay == 0.6),
    },
    tune_config=tune.TuneConfig(
        metric="loss",
        mode="min",
        scheduler=ASHAScheduler(time_attr="training_iteration", max_t=8, grace_period=1, reduction_factor=2),
        max_concurrent_trials=1,
    ),
    run_config=tune.RunConfig(
        name="asha",
        storage_path=store,
        verbose=0,
        failure_config=tune.FailureConfig(max_failures=1),
        checkpoint_config=tune.CheckpointConfig(
            num_to_keep=2, checkpoint_score_attribute="loss", checkpoint_score_order="min"
        ),
    ),
).fit()
print("errors:", results.errors)
for result in results:
    metrics = result.metrics
    kept = [round(each["loss"], 4) for _, each in result.best_checkpoints]
    print(
        result.config["decay"],
        "steps:",
        metrics["step"],
        "iterations:",
        metrics["training_iteration"],
        end=" ",
    )
    print("began:", metrics["began"], "loss:", round(metrics["loss"], 4), "kept:", sorted(kept))
best = results.get_best_result()
with best.checkpoint.as_directory() as folder:
    with open(os.path.join(folder, "state.json")) as file:
        state = json.load(file)
print("best:", best.config["decay"], state["step"], round(state["loss"], 4))
print("stopped early:", sum(each.metrics["step"] < 8 for each in results))
print("folders:", sorted(name for name in os.listdir(best.path) if name.startswith("checkpoint_")))
