"""A program that runs two trials, one of which fails, with a logger of another library.

Those libraries keep files, threads and processes until the end of the program, so the tests run them in one of its own.
"""

from __future__ import annotations

import json
import pathlib
import sys
import zipfile
from typing import Any

import runtime
from runtime import tune


def descend(config: dict[str, Any]) -> None:
    for step in range(3):
        tune.report({"loss": config["x"] - step, "eval": {"f1": 0.5}, "note": "text", "secret": 1})
    if config["x"] == 2:
        raise ValueError("two")


def run(folder: pathlib.Path, callback: Any) -> Any:
    return tune.Tuner(
        descend,
        param_space={"x": tune.grid_search([1, 2]), "model": {"layers": 3}},
        run_config=tune.RunConfig(name="two", storage_path=str(folder), callbacks=[callback], verbose=0),
    ).fit()


def with_mlflow(folder: pathlib.Path) -> dict[str, Any]:
    from mlflow.tracking import MlflowClient

    from runtime.tune.logger.mlflow import MLflowLoggerCallback

    uri = f"sqlite:///{folder / 'mlflow.db'}"
    run(folder, MLflowLoggerCallback(uri, experiment_name="descent", tags={"team": "a"}))
    client = MlflowClient(uri)
    found = client.search_runs([client.get_experiment_by_name("descent").experiment_id])
    return {
        each.data.params["x"]: {
            "status": each.info.status,
            "parameters": each.data.params,
            "tags": each.data.tags,
            "metrics": each.data.metrics,
            "losses": [[one.step, one.value] for one in client.get_metric_history(each.info.run_id, "loss")],
        }
        for each in found
    }


def with_wandb(folder: pathlib.Path) -> dict[str, Any]:
    from runtime.tune.logger.wandb import WandbLoggerCallback

    grid = run(folder, WandbLoggerCallback("descent", excludes=["secret"], mode="offline"))
    return {str(each.config["x"]): {"path": each.path, "id": each.metrics["trial_id"]} for each in grid}


def with_aim(folder: pathlib.Path) -> dict[str, Any]:
    from aim import Repo

    from runtime.tune.logger.aim import AimLoggerCallback

    run(folder, AimLoggerCallback(experiment_name="descent", metrics=["loss", "eval/f1"]))
    found = {}
    for each in Repo(str(folder / "two")).iter_runs():
        metrics = {metric.name: list(metric.values.values_list()) for metric in each.metrics()}
        found[str(each["hparams"]["x"])] = {"experiment": each.experiment, "metrics": metrics}
    return found


def with_comet(folder: pathlib.Path) -> dict[str, Any]:
    from runtime.tune.logger.comet import CometLoggerCallback

    written = folder / "offline"
    run(folder, CometLoggerCallback(online=False, tags=["a"], offline_directory=str(written)))
    found = {}
    for path in written.glob("*.zip"):
        lines = zipfile.ZipFile(path).read("messages.json").decode().splitlines()
        messages = [json.loads(line)["payload"] for line in lines]
        parameters = {
            each["param"]["paramName"]: each["param"]["paramValue"] for each in messages if each.get("param")
        }
        metrics = [each["metric"] for each in messages if each.get("metric")]
        losses = [float(each["metricValue"]) for each in metrics if each["metricName"] == "loss"]
        found[str(parameters["x"])] = {"parameters": parameters, "losses": losses}
    return found


PROGRAMS = {"mlflow": with_mlflow, "wandb": with_wandb, "aim": with_aim, "comet_ml": with_comet}

if __name__ == "__main__":
    library, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    runtime.init(num_cpus=2)
    found = PROGRAMS[library](folder)
    (folder / "found.json").write_text(json.dumps(found))
    runtime.shutdown()
