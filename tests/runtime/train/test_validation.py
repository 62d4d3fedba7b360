"""Checkpoints are validated by tasks beside the training, or after it."""

from __future__ import annotations

import contextlib
import json
import pathlib
import tempfile
import threading
import time
from typing import Any

import psutil
import pytest

from runtime import train
from runtime.train import CheckpointConsistencyMode, ReportedCheckpointStatus, ValidationTaskConfig
from runtime.train._api.trainer import DataParallelTrainer
from tests.polling import eventually
from tests.runtime.train.test_chaos import controllers

pytestmark = [pytest.mark.usefixtures("session"), pytest.mark.timeout(60)]

Status = ReportedCheckpointStatus


def save(step: int, **report: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "state.json").write_text(json.dumps(step))
        train.report({"step": step}, checkpoint=train.Checkpoint.from_directory(folder), **report)


def step_of(checkpoint: train.Checkpoint) -> int:
    with checkpoint.as_directory() as folder:
        return int(pathlib.Path(folder, "state.json").read_text())


def judged(checkpoint: train.Checkpoint, factor: int = 1, does: str = "") -> Any:
    step = step_of(checkpoint)
    if does == "fails":
        raise ValueError(f"step {step} is bad")
    while does == "hangs":
        time.sleep(0.01)
    return {"score": factor * step, "step": step}


def reports(config: dict[str, Any]) -> Any:
    if train.get_context().get_world_rank():
        for _ in range(5):
            train.report({})
        return None
    with pytest.raises(ValueError, match="needs a checkpoint"):
        train.report({}, validation=True)
    save(1, validation=True)
    (first,) = train.get_all_reported_checkpoints(CheckpointConsistencyMode.COMMITTED)
    save(2, validation=ValidationTaskConfig({"factor": -10}))
    save(3, validation=ValidationTaskConfig({"does": "fails"}))
    save(4, validation=ValidationTaskConfig({"does": "hangs"}, timeout_s=0.5))
    early = train.get_all_reported_checkpoints(timeout_s=0.01)
    save(5)
    late = train.get_all_reported_checkpoints()
    return first.status, early[-1].status, [(one.metrics, one.status) for one in late]


def test_outcomes_are_merged_and_failures_are_told_and_not_fatal(tmp_path: pathlib.Path) -> None:
    result = DataParallelTrainer(
        reports,
        train_loop_config={},
        scaling_config=train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
        run_config=train.RunConfig(name="run", storage_path=str(tmp_path)),
        validation_config=train.ValidationConfig(judged, ValidationTaskConfig({"factor": 10})),
    ).fit()
    first, early, late = result.return_value
    assert first in (Status.PENDING_VALIDATION, Status.VALIDATED)
    assert early is Status.PENDING_VALIDATION
    assert late == [
        ({"step": 1, "score": 10}, Status.VALIDATED),
        ({"step": 2, "score": -20}, Status.VALIDATED),
        ({"step": 3}, Status.VALIDATION_FAILED),
        ({"step": 4}, Status.VALIDATION_TIMEOUT),
        ({"step": 5}, Status.COMMITTED),
    ]
    assert result.metrics == {"step": 5}
    read = train.Result.from_path(tmp_path / "run")
    assert [metrics.get("score") for _, metrics in read.best_checkpoints] == [10, -20, None, None, None]
    assert step_of(read.get_best_checkpoint("score", "min")) == 2


def waits(checkpoint: train.Checkpoint, folder: str) -> Any:
    step = step_of(checkpoint)
    with open(f"{folder}/begun", "a") as file:
        file.write(f"{step}\n")
    while not pathlib.Path(folder, "go").exists():
        time.sleep(0.01)
    return {"score": step}


def saves(config: dict[str, Any]) -> None:
    for step in range(2):
        save(step, validation=True)


def test_one_that_waits_for_the_workers_resources_outlives_the_controller(tmp_path: pathlib.Path) -> None:
    begun = tmp_path / "begun"

    def kill() -> None:
        eventually(begun.exists, 30)
        for process in controllers():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        eventually(lambda: len(begun.read_text().split()) > 1, 30)
        (tmp_path / "go").touch()

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        result = DataParallelTrainer(
            saves,
            train_loop_config={},
            scaling_config=train.ScalingConfig(num_workers=1, resources_per_worker={"CPU": 4}),
            run_config=train.RunConfig(
                name="run",
                storage_path=str(tmp_path),
                checkpoint_config=train.CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="score"),
            ),
            validation_config=train.ValidationConfig(
                waits, ValidationTaskConfig({"folder": str(tmp_path)}), {"num_cpus": 4}
            ),
        ).fit()
    finally:
        (tmp_path / "go").touch()
        killer.join()
    assert result.metrics["score"] == result.metrics["step"]
    (kept,) = result.best_checkpoints
    assert kept[1]["score"] == result.metrics["score"]
    assert len(begun.read_text().split()) >= 3, "the validation was not started again"
