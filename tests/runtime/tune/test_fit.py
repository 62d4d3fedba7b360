"""Experiments on a local cluster."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from typing import Any

import pytest

import runtime
from runtime import tune
from runtime.tune import schedulers
from tests.polling import eventually

pytestmark = pytest.mark.usefixtures("session")


def run_config(folder: pathlib.Path, name: str = "experiment", **more: Any) -> tune.RunConfig:
    return tune.RunConfig(name=name, storage_path=str(folder), verbose=0, **more)


def counting(config: dict[str, Any]) -> None:
    """Reports up to `last`, from a checkpoint on; its process ends once at `dies`."""
    checkpoint, number = tune.get_checkpoint(), 0
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            number = int(pathlib.Path(folder, "number").read_text())
    while number < config.get("last", 4):
        number += 1
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "number").write_text(str(number))
            tune.report(
                {"number": number, "pid": os.getpid()}, checkpoint=tune.Checkpoint.from_directory(folder)
            )
        mark = pathlib.Path(config.get("mark", "/nowhere"))
        if number == config.get("dies") and not mark.exists():
            mark.touch()
            os._exit(1)


class Counter(tune.Trainable):
    def setup(self, config: dict[str, Any], text: str = "") -> None:
        self.number, self.text = 0, text

    def step(self) -> dict[str, Any]:
        self.number += 1
        return {
            "score": self.config["x"] * self.number,
            "number": self.number,
            "text": self.text,
            "pid": os.getpid(),
            "done": self.number == 6,
        }

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"number": self.number}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.number = checkpoint["number"]

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.number = 0
        return True


def test_results_of_a_grid(tmp_path: pathlib.Path) -> None:
    def function(config: dict[str, Any]) -> None:
        for step in range(3):
            tune.report({"loss": config["x"] * step, "inner": {"step": step}})
        if config["x"] == 2:
            raise ValueError("two is bad")

    grid = tune.Tuner(
        function,
        param_space={"x": tune.grid_search([1, 2, 3]), "constant": 7},
        tune_config=tune.TuneConfig(metric="loss", mode="max"),
        run_config=run_config(tmp_path),
    ).fit()
    assert [result.metrics["loss"] for result in grid if result.metrics] == [2, 4, 6]
    assert [result.error is not None for result in grid] == [False, True, False]
    assert "two is bad" in str(grid.errors[0])
    assert (grid.num_errors, grid.num_terminated) == (1, 2)
    best = grid.get_best_result()
    assert best.metrics is not None
    assert best.config == {"x": 3, "constant": 7}
    assert best.metrics["config"] == best.config
    assert best.metrics["training_iteration"] == 3
    lines = pathlib.Path(best.path, "result.json").read_text().splitlines()
    assert [json.loads(line)["inner"]["step"] for line in lines] == [0, 1, 2]
    assert json.loads(pathlib.Path(best.path, "params.json").read_text()) == best.config
    assert pathlib.Path(best.path, "progress.csv").read_text().count("\n") == 4
    assert "two is bad" in pathlib.Path(grid[1].path, "error.txt").read_text()
    frame = grid.get_dataframe()
    assert list(frame["config/x"]) == [1, 2, 3]
    assert list(frame["inner/step"]) == [2, 2, 2]
    assert grid[2].metrics_dataframe is not None
    assert list(grid[2].metrics_dataframe["loss"]) == [0, 3, 6]
    assert grid.get_best_result("loss", "min", scope="avg").config["x"] == 1  # type: ignore[index]


@pytest.mark.parametrize("reuses", [False, True])
def test_processes_are_fresh_unless_they_are_reused(tmp_path: pathlib.Path, reuses: bool) -> None:
    grid = tune.Tuner(
        lambda config: {"pid": os.getpid()},
        tune_config=tune.TuneConfig(num_samples=6, reuse_actors=reuses),
        run_config=run_config(tmp_path),
    ).fit()
    pids = [result.metrics["pid"] for result in grid if result.metrics]
    assert len(pids) == 6
    assert (len(set(pids)) < 6) == reuses


def test_a_trial_goes_on_from_its_checkpoint_when_its_process_has_died(tmp_path: pathlib.Path) -> None:
    grid = tune.Tuner(
        counting,
        param_space={"dies": 2, "mark": str(tmp_path / "mark")},
        run_config=run_config(
            tmp_path,
            failure_config=tune.FailureConfig(max_failures=1),
            checkpoint_config=tune.CheckpointConfig(num_to_keep=1),
        ),
    ).fit()
    assert not grid.errors
    result = grid[0]
    assert result.metrics is not None
    assert (result.metrics["number"], result.metrics["training_iteration"]) == (4, 4)
    rows = [json.loads(line) for line in pathlib.Path(result.path, "result.json").read_text().splitlines()]
    assert [row["number"] for row in rows] == [1, 2, 3, 4]
    assert len({row["pid"] for row in rows}) == 2
    assert result.checkpoint is not None
    assert pathlib.Path(result.checkpoint.path, "number").read_text() == "4"
    assert len(list(pathlib.Path(result.path).glob("checkpoint_*"))) == 1


@pytest.mark.parametrize("reuses", [False, True])
def test_classes_save_and_stop(tmp_path: pathlib.Path, reuses: bool) -> None:
    grid = tune.Tuner(
        tune.with_parameters(Counter, text="large"),
        param_space={"x": tune.grid_search([1, 2, 3])},
        tune_config=tune.TuneConfig(reuse_actors=reuses),
        run_config=run_config(
            tmp_path,
            checkpoint_config=tune.CheckpointConfig(
                checkpoint_frequency=4, checkpoint_at_end=True, num_to_keep=1
            ),
        ),
    ).fit()
    assert not grid.errors
    assert [(each.metrics["number"], each.metrics["text"]) for each in grid if each.metrics] == [
        (6, "large")
    ] * 3
    assert [each.metrics["score"] for each in grid if each.metrics] == [6, 12, 18]
    assert all(each.checkpoint and "checkpoint_000001" in each.checkpoint.path for each in grid)


@pytest.mark.parametrize("reuses", [False, True])
def test_members_of_a_population_take_over_from_better_ones(tmp_path: pathlib.Path, reuses: bool) -> None:
    scheduler = schedulers.PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=2,
        hyperparam_mutations={"x": [100, 200]},
        resample_probability=1.0,
    )
    grid = tune.Tuner(
        Counter,
        param_space={"x": tune.grid_search([1, 2, 50, 51])},
        tune_config=tune.TuneConfig(metric="score", mode="max", scheduler=scheduler, reuse_actors=reuses),
        run_config=run_config(tmp_path),
    ).fit()
    assert not grid.errors
    assert [each.metrics["number"] for each in grid if each.metrics] == [6] * 4
    assert any(each.metrics["config"]["x"] in (100, 200) for each in grid if each.metrics)


def test_a_scheduler_stops_bad_trials(tmp_path: pathlib.Path) -> None:
    grid = tune.Tuner(
        Counter,
        param_space={"x": tune.grid_search([6, 5, 4, 3, 2, 1])},
        tune_config=tune.TuneConfig(
            metric="score", mode="max", scheduler=schedulers.ASHAScheduler(max_t=6, reduction_factor=2)
        ),
        run_config=run_config(tmp_path),
    ).fit()
    numbers = [each.metrics["number"] for each in grid if each.metrics]
    assert numbers[0] == 6
    assert min(numbers) < 6


def test_trials_stop_by_rules(tmp_path: pathlib.Path) -> None:
    for name, stop in (("dict", {"number": 2}), ("function", lambda _id, result: result["number"] >= 2)):
        grid = tune.Tuner(
            counting, run_config=run_config(tmp_path, name, stop=stop), tune_config=tune.TuneConfig()
        ).fit()
        assert [each.metrics["number"] for each in grid if each.metrics] == [2]


def test_a_time_budget_ends_an_endless_experiment(tmp_path: pathlib.Path) -> None:
    grid = tune.Tuner(
        lambda config: {"x": config["x"]},
        param_space={"x": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(num_samples=-1, time_budget_s=1.0),
        run_config=run_config(tmp_path),
    ).fit()
    assert len(grid) > 2
    assert grid.num_terminated == len(grid)


def test_a_trial_has_a_placement_group_for_what_it_starts(tmp_path: pathlib.Path) -> None:
    def function(config: dict[str, Any]) -> dict[str, Any]:
        return {"answer": runtime.get(runtime.remote(lambda: 42).remote())}

    grid = tune.Tuner(
        tune.with_resources(function, tune.PlacementGroupFactory([{"CPU": 1}, {"CPU": 1}])),
        run_config=run_config(tmp_path),
    ).fit()
    assert not grid.errors
    assert grid[0].metrics is not None
    assert grid[0].metrics["answer"] == 42
    total = runtime.cluster_resources()["CPU"]
    assert eventually(lambda: runtime.available_resources().get("CPU") == total)


def test_the_first_failure_ends_the_experiment_if_asked_to(tmp_path: pathlib.Path) -> None:
    def function(config: dict[str, Any]) -> None:
        if config["x"] == 0:
            raise ValueError("zero")
        time.sleep(60)

    space = {"x": tune.grid_search([0, 1])}
    grid = tune.Tuner(
        function,
        param_space=space,
        run_config=run_config(tmp_path, failure_config=tune.FailureConfig(fail_fast=True)),
    ).fit()
    assert (grid.num_errors, len(grid)) == (1, 2)
    with pytest.raises(ValueError, match="zero"):
        tune.Tuner(
            function,
            param_space=space,
            run_config=run_config(tmp_path, "again", failure_config=tune.FailureConfig(fail_fast="raise")),
        ).fit()


@pytest.mark.parametrize("reuses", [False, True])
def test_a_class_that_is_stopped_saves_at_its_end_and_cleans_up(tmp_path: pathlib.Path, reuses: bool) -> None:
    class Cleaning(Counter):
        def cleanup(self) -> None:
            (tmp_path / f"cleaned {self.config['x']} {self.number}").touch()

        reset_config = tune.Trainable.reset_config

    grid = tune.Tuner(
        Cleaning,
        param_space={"x": tune.grid_search([1, 2])},
        tune_config=tune.TuneConfig(reuse_actors=reuses),
        run_config=run_config(
            tmp_path,
            stop={"number": 3},
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=True),
        ),
    ).fit()
    assert not grid.errors
    assert all(each.checkpoint is not None for each in grid)
    assert sorted(path.name for path in tmp_path.glob("cleaned*")) == ["cleaned 1 3", "cleaned 2 3"]


def test_a_name_can_be_used_again(tmp_path: pathlib.Path) -> None:
    def function(config: dict[str, Any]) -> None:
        tune.report({"x": config["x"]})

    paths = []
    for value in (1, 2):
        grid = tune.Tuner(function, param_space={"x": value}, run_config=run_config(tmp_path)).fit()
        assert grid[0].metrics is not None
        assert grid[0].metrics["x"] == value
        paths.append(grid[0].path)
    assert all(pathlib.Path(path, "result.json").exists() for path in paths)
    last = tune.Tuner.restore(str(tmp_path / "experiment"), function).get_results()
    assert [each.path for each in last] == paths[1:]


def test_failed_trials_are_resumed_or_restarted(tmp_path: pathlib.Path) -> None:
    space = {"dies": 2, "mark": str(tmp_path / "mark"), "last": 3}
    first = tune.Tuner(counting, param_space=space, run_config=run_config(tmp_path, "resumed")).fit()
    assert first.num_errors == 1
    path = str(tmp_path / "resumed")
    assert tune.Tuner.can_restore(path)
    assert tune.Tuner.restore(path, counting).get_results().num_errors == 1
    assert tune.Tuner.restore(path, counting).fit().num_errors == 1  # what has ended does not run again
    again = tune.Tuner.restore(path, counting, resume_errored=True).fit()
    assert not again.errors
    assert again[0].metrics is not None
    assert again[0].metrics["iterations_since_restore"] == 1
    assert tune.Tuner.restore(path, counting).get_results()[0].metrics == again[0].metrics


def test_what_trials_call_fails_outside_of_one() -> None:
    for call in (lambda: tune.report({}), tune.get_checkpoint):
        with pytest.raises(RuntimeError, match="works in a trial's function only"):
            call()
    assert tune.get_context().get_trial_id() is None


STUDY = """
    import pathlib, sys, time
    import runtime
    from runtime import tune

    folder = sys.argv[1]

    def trial(config):
        time.sleep(0.02)
        with open(folder + "/ended", "a") as file:
            file.write(f"{config['x']!r}\\n")
        return {"x": config["x"]}

    runtime.init(num_cpus=2)
    if tune.Tuner.can_restore(folder + "/study"):
        tuner = tune.Tuner.restore(folder + "/study", trial)
    else:
        tuner = tune.Tuner(
            trial,
            param_space={"x": tune.uniform(0, 1)},
            tune_config=tune.TuneConfig(num_samples=40, reuse_actors=True),
            run_config=tune.RunConfig(name="study", storage_path=folder, verbose=0),
        )
    grid = tuner.fit()
    print(len(grid), grid.num_terminated, len({result.metrics["x"] for result in grid}))
"""


def test_a_driver_that_is_killed_again_and_again_ends_the_study_in_the_end(tmp_path: pathlib.Path) -> None:
    def ended() -> list[str]:
        file = tmp_path / "ended"
        return file.read_text().split() if file.exists() else []

    command = [sys.executable, "-c", textwrap.dedent(STUDY), str(tmp_path)]
    for wanted in (4, 12, 20, 28):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as driver:
            assert eventually(lambda wanted=wanted: len(ended()) >= wanted)
            driver.send_signal(signal.SIGKILL)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "40 40 40\n"
    # A trial may have ended in the moment in which the driver was killed, one for each of the two runners.
    assert len(ended()) <= 40 + 4 * 2
    assert len(set(ended())) == 40
