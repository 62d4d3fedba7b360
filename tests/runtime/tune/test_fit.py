"""Experiments on a local cluster."""

from __future__ import annotations

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

import pytest

import runtime
from runtime import tune
from runtime.tune import schedulers
from runtime.tune._core import records
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
    logged = [pathlib.Path(each.path, "result.json").read_text().splitlines() for each in grid]
    done = [[json.loads(line)["done"] for line in lines] for lines in logged]
    assert done == [[False, False, True]] * 2


def test_an_object_that_is_reused_or_whose_trial_fails_cleans_up_once(tmp_path: pathlib.Path) -> None:
    class Cleaning(Counter):
        def step(self) -> dict[str, Any]:
            if self.config["x"] == 3:
                raise ValueError("three")
            return super().step()

        def cleanup(self) -> None:
            (tmp_path / f"cleaned {os.getpid()} {time.monotonic_ns()}").touch()

    grid = tune.Tuner(
        Cleaning,
        param_space={"x": tune.grid_search([1, 2, 3])},
        tune_config=tune.TuneConfig(reuse_actors=True, max_concurrent_trials=1),
        run_config=run_config(tmp_path),
    ).fit()
    assert grid.num_errors == 1
    assert len({each.metrics["pid"] for each in grid if each.metrics}) == 1
    assert len(list(tmp_path.glob("cleaned*"))) == 1


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
    restart = tune.ResumeConfig(finished=tune.ResumeConfig.ResumeType.RESTART)
    anew = tune.Tuner.restore(path, counting, _resume_config=restart).fit()
    assert anew[0].metrics is not None
    assert anew[0].metrics["iterations_since_restore"] == 3
    assert tune.Tuner.restore(path, counting).get_results()[0].metrics == anew[0].metrics


def test_what_trials_call_fails_outside_of_one() -> None:
    for call in (lambda: tune.report({}), tune.get_checkpoint):
        with pytest.raises(RuntimeError, match="works in a trial's function only"):
            call()
    assert tune.get_context().get_trial_id() is None


KILLS = int(os.environ.get("TUNE_CHAOS_KILLS", "3"))
"""How often the driver is killed; 100 with 1,000 trials take some minutes."""
KILLED_STUDY = str(pathlib.Path(__file__).with_name("killed_study.py"))


class KilledStudy:
    """Runs `killed_study.py`, again and again."""

    def __init__(self, folder: pathlib.Path, trials: int) -> None:
        self.folder = folder
        self.command = [sys.executable, KILLED_STUDY, str(folder), str(trials)]
        self.environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[3])}
        self.ended: set[int] = set()
        self.ids: list[str] = []

    def log(self) -> list[tuple[str, str]]:
        """What trials have noted: id and "begun" or "computed"."""
        file = self.folder / "log"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(line.split()[0], line.split()[1]) for line in lines]

    def computed(self) -> int:
        return sum(what == "computed" for _, what in self.log())

    def killed(self, rng: random.Random) -> None:
        """Kills a driver while it starts, while it replays, or after some more trials."""
        (self.folder / "up").unlink(missing_ok=True)
        with subprocess.Popen(self.command, stdout=subprocess.DEVNULL, env=self.environment) as driver:
            kind = rng.choice(["starts", "replays", "runs", "runs"])
            wanted = self.computed() + rng.randrange(1, 9) if kind == "runs" else 0
            if kind != "starts":
                assert eventually(lambda: (self.folder / "up").exists())
                assert eventually(lambda: self.computed() >= wanted or driver.poll() is not None)
            time.sleep(rng.uniform(0, 0.1 if kind == "runs" else 0.7))
            assert driver.poll() is None, "the study ended before it was killed often enough"
            driver.send_signal(signal.SIGKILL)

    def read_journal(self) -> None:
        """No trial has ended twice, and none of those that had ended before is lost."""
        ended: list[int] = []
        self.ids = []
        for path in (self.folder / "study").glob("journal-*.bin"):
            for record in records.decode(path.read_bytes()):
                if record[0] == records.ADDED:
                    self.ids.append(record[1])
                elif record[0] == records.ENDED:
                    ended.append(record[1])
        assert len(ended) == len(set(ended))
        assert self.ended <= set(ended)
        self.ended = set(ended)


@pytest.mark.timeout(120 + 10 * KILLS)
def test_a_driver_that_is_killed_again_and_again_ends_the_study_in_the_end(tmp_path: pathlib.Path) -> None:
    trials, rng = 10 * KILLS, random.Random(21)
    study = KilledStudy(tmp_path, trials)
    for _ in range(KILLS):
        noted, before = len(study.log()), {study.ids[number] for number in study.ended}
        study.killed(rng)
        begun = {trial_id for trial_id, what in study.log()[noted:] if what == "begun"}
        assert not begun & before, "a trial that had ended was run again"
        study.read_journal()
    done = subprocess.run(
        study.command, env=study.environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout == f"{trials} {trials} {trials}\n", done.stderr
    study.read_journal()
    assert len(study.ended) == len(set(study.ids)) == trials
    logged = [path.read_text().splitlines() for path in (tmp_path / "study").glob("*/result.json")]
    assert len(logged) == trials
    assert all("square" in json.loads(lines[-1]) for lines in logged)
    print(f"{KILLS} kills: {study.computed() - trials} of {trials} trials were computed again")
