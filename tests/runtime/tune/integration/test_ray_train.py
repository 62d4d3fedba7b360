"""Trials that start a run of `runtime.train`, and report what it reports."""

from __future__ import annotations

import pathlib
import tempfile
from typing import Any

import pytest

import runtime
from runtime import train, tune
from runtime.train._api.trainer import DataParallelTrainer
from runtime.tune.integration.ray_train import TuneReportCallback

pytestmark = pytest.mark.usefixtures("session")


def worker(config: dict[str, Any]) -> None:
    for step in range(config["steps"]):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "step").write_text(str(step))
            train.report({"loss": config["x"] - step}, checkpoint=train.Checkpoint.from_directory(folder))


def trial(config: dict[str, Any]) -> None:
    DataParallelTrainer(
        worker,
        train_loop_config=config,
        scaling_config=train.ScalingConfig(num_workers=config["workers"]),
        run_config=train.RunConfig(storage_path=config["runs"], callbacks=[TuneReportCallback()]),
    ).fit()


def results(folder: pathlib.Path, stop: Any = None, **config: Any) -> Any:
    return tune.Tuner(
        trial,
        param_space={"x": 10, "runs": str(folder / "runs"), **config},
        run_config=tune.RunConfig(storage_path=str(folder), stop=stop, verbose=0),
    ).fit()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_trial_reports_what_its_run_reports(workers: int, tmp_path: pathlib.Path) -> None:
    found = results(tmp_path, steps=3, workers=workers)[0]
    assert found.error is None
    assert [row["loss"] for row in found.history] == [10, 9, 8]
    last = pathlib.Path(found.metrics["checkpoint_path"])
    assert tmp_path / "runs" in last.parents
    assert found.checkpoint is not None
    assert pathlib.Path(found.checkpoint.path) == last
    assert [pathlib.Path(each.path, "step").read_text() for each, _ in found.best_checkpoints] == [
        "0",
        "1",
        "2",
    ]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_trial_that_is_stopped_ends_its_run(workers: int, tmp_path: pathlib.Path) -> None:
    found = results(tmp_path, stop={"training_iteration": 2}, steps=100, workers=workers)[0]
    assert found.error is None
    assert [row["loss"] for row in found.history] == [10, 9]


def trains_on_all_cpus(config: dict[str, Any]) -> None:
    cpus = int(runtime.cluster_resources()["CPU"])
    result = DataParallelTrainer(
        size_of_run,
        scaling_config=train.ScalingConfig(num_workers=cpus),
        run_config=train.RunConfig(storage_path=config["runs"], name=f"run-{config['x']}"),
    ).fit()
    tune.report({"workers": result.return_value - cpus})


def size_of_run() -> int:
    return train.get_context().get_world_size()


def test_trials_lend_their_cpus_to_their_trainings(tmp_path: pathlib.Path) -> None:
    """More trials than CPUs, and each training needs all of these."""
    trials = [*range(1 + int(runtime.cluster_resources()["CPU"]))]
    found = tune.Tuner(
        trains_on_all_cpus,
        param_space={"x": tune.grid_search(trials), "runs": str(tmp_path / "runs")},
        run_config=tune.RunConfig(storage_path=str(tmp_path), verbose=0),
    ).fit()
    assert not found.errors
    assert [each.metrics["workers"] for each in found if each.metrics] == [0] * len(trials)


def test_the_callback_belongs_to_a_trial() -> None:
    with pytest.raises(RuntimeError, match="while a Tuner runs it"):
        TuneReportCallback()
