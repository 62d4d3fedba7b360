"""Runs whose storage is remote, fails or is full."""

from __future__ import annotations

import os
import pathlib
import signal
import tempfile
from typing import Any

import pytest

from runtime import train
from runtime.train._api.trainer import DataParallelTrainer
from tests.runtime.train._run.conftest import content, small_disk
from tests.runtime.train.flaky import storage_in

pytestmark = pytest.mark.usefixtures("session")


def trains(config: dict[str, Any]) -> None:
    """Eight steps, each with a checkpoint of two ranks; rank 1 is killed once."""
    rank, step = train.get_context().get_world_rank(), 0
    total = 0.0
    if checkpoint := train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            step, total = map(float, pathlib.Path(folder, f"rank_{rank}").read_text().split())
    for number in range(int(step), 8):
        total += (rank + 1) * number
        own = pathlib.Path(tempfile.mkdtemp(dir=config["folder"]))
        (own / f"rank_{rank}").write_text(f"{number + 1} {total}")
        mode = train.CheckpointUploadMode.ASYNC if number % 2 else train.CheckpointUploadMode.SYNC
        train.report(
            {"step": number, "score": -abs(number - 3)},
            checkpoint=train.Checkpoint.from_directory(own),
            checkpoint_upload_mode=mode,
            delete_local_checkpoint_after_upload=True,
        )
        killed = pathlib.Path(config["folder"], "killed")
        if rank == 1 and number == 4 and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def fit(function: Any, folder: pathlib.Path, failures: int = 0, **run: Any) -> train.Result:
    return DataParallelTrainer(
        function,
        train_loop_config={"folder": str(folder)},
        scaling_config=train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
        run_config=train.RunConfig(
            name="run", failure_config=train.FailureConfig(max_failures=failures), **run
        ),
    ).fit()


def test_a_remote_one_that_fails_and_a_worker_that_dies_lose_nothing(tmp_path: pathlib.Path) -> None:
    (tmp_path / "own").mkdir()
    storage = storage_in(tmp_path / "remote")
    kept = train.CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="score")
    result = fit(
        trains, tmp_path / "own", 1, storage_path="runs", storage_filesystem=storage, checkpoint_config=kept
    )
    assert result.path == "runs/run"
    assert result.metrics == {"step": 7, "score": -4}
    assert result.checkpoint is not None
    assert content(result.checkpoint) == {"rank_0": b"8 28.0", "rank_1": b"8 56.0"}
    assert result.get_best_checkpoint("score", "max") == result.best_checkpoints[-1][0]
    assert [metrics["step"] for _, metrics in result.best_checkpoints][-1] == 3
    there = [path for path in (tmp_path / "remote/runs/run").iterdir() if path.name.startswith("checkpoint")]
    assert len(there) == 3  # the best two, and the latest
    again = train.Result.from_path("runs/run", storage)
    assert again.checkpoint == result.checkpoint


def fills(config: dict[str, Any]) -> None:
    if train.get_context().get_world_rank() == 0:
        train.report({})
        return
    own = pathlib.Path(config["folder"])
    (own / "model").write_bytes(b"x" * 2_000_000)
    checkpoint = train.Checkpoint.from_directory(own)
    train.report({}, checkpoint=checkpoint, checkpoint_upload_mode=train.CheckpointUploadMode.ASYNC)


def test_a_full_disk_is_an_error_that_names_the_rank(tmp_path: pathlib.Path) -> None:
    (tmp_path / "own").mkdir()
    with small_disk(tmp_path / "disk") as disk:
        expected = r"Rank 1: StorageError: .*disk/run/check.*: No space left on device\. Free space"
        with pytest.raises(train.WorkerGroupError, match=expected):
            fit(fills, tmp_path / "own", storage_path=str(disk))
