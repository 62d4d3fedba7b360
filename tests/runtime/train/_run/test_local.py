"""Local mode: the function runs in the program's own process, without a cluster."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

import runtime
from runtime import train
from runtime.train._api.trainer import DataParallelTrainer

UPLOADS = train.CheckpointUploadMode


class Seen(train.UserCallback):
    def __init__(self) -> None:
        self.reports: list[Any] = []
        self.errors: list[Any] = []

    def after_report(self, run_context: Any, metrics: list[Any], checkpoint: Any) -> None:
        self.reports.append((metrics, checkpoint is not None))

    def after_exception(self, run_context: Any, worker_exceptions: Any) -> None:
        self.errors.append(worker_exceptions)


def fit(
    function: Callable[..., Any], folder: pathlib.Path, validation_config: Any = None, **run: Any
) -> train.Result:
    return DataParallelTrainer(
        function,
        scaling_config=train.ScalingConfig(num_workers=0),
        run_config=train.RunConfig(name="run", storage_path=str(folder / "runs"), **run),
        validation_config=validation_config,
    ).fit()


def save(folder: pathlib.Path, step: int, **report: Any) -> None:
    (folder / "state.json").write_text(json.dumps(step))
    train.report({"step": step}, checkpoint=train.Checkpoint.from_directory(str(folder)), **report)


def state(checkpoint: Any) -> int:
    with checkpoint.as_directory() as folder:
        return int(json.loads(pathlib.Path(folder, "state.json").read_text()))


def test_reports_checkpoints_and_callbacks(tmp_path: pathlib.Path) -> None:
    def function() -> int:
        context = train.get_context()
        assert (context.get_world_rank(), context.get_world_size()) == (0, 1)
        first = train.get_checkpoint()
        train.report({"step": -1})
        save(own, 0 if first is None else state(first) + 1)
        (listed,) = train.get_all_reported_checkpoints()[-1:]
        assert state(listed.checkpoint) == state(train.get_checkpoint())
        return os.getpid()

    own = tmp_path / "own"
    own.mkdir()
    seen = Seen()
    result = fit(function, tmp_path, callbacks=[seen])
    assert result.return_value == os.getpid()
    assert result.metrics == {"step": 0}
    assert seen.reports == [([{"step": -1}], False), ([{"step": 0}], True)]
    assert state(fit(function, tmp_path).checkpoint) == 1  # the second run goes on from the first
    assert not runtime.is_initialized()


def test_uploads_that_go_on_are_waited_for(tmp_path: pathlib.Path) -> None:
    def function() -> None:
        for step in range(3):
            own = tmp_path / f"own-{step}"
            own.mkdir()
            save(own, step, checkpoint_upload_mode=UPLOADS.ASYNC)

    assert state(fit(function, tmp_path).checkpoint) == 2


def test_the_functions_error_is_the_runs(tmp_path: pathlib.Path) -> None:
    def function() -> None:
        train.report({"step": 0})
        raise ValueError("no more")

    seen = Seen()
    with pytest.raises(train.WorkerGroupError, match="ValueError: no more") as caught:
        fit(function, tmp_path, callbacks=[seen])
    assert [*caught.value.worker_failures] == [0]
    assert len(seen.errors) == 1
    with pytest.raises(RuntimeError, match="training function"):
        train.get_context()


def test_failures_are_forgiven_and_the_function_goes_on_from_its_checkpoint(tmp_path: pathlib.Path) -> None:
    begun = []

    def function() -> int:
        first = train.get_checkpoint()
        begun.append(0 if first is None else state(first) + 1)
        for step in range(begun[-1], 5):
            save(own, step)
            if step == 1 or (step == 3 and len(begun) == 2):
                raise ValueError(f"step {step}")
        return begun[-1]

    own = tmp_path / "own"
    own.mkdir()
    seen = Seen()
    failures = train.FailureConfig(max_failures=2)
    assert fit(function, tmp_path, failure_config=failures, callbacks=[seen]).return_value == 4
    assert begun == [0, 2, 4]
    assert [str(error[0]) for error in seen.errors] == ["step 1", "step 3"]
    assert [metrics["step"] for (metrics,), _ in seen.reports] == [0, 1, 2, 3, 4]


def test_checkpoints_are_validated_here(tmp_path: pathlib.Path) -> None:
    def validate(checkpoint: Any, offset: int = 0) -> dict[str, Any]:
        if state(checkpoint) == 1:
            raise ValueError("bad")
        return {"score": state(checkpoint) + offset, "pid": os.getpid()}

    def function() -> list[Any]:
        save(own, 0, validation=True)
        save(own, 1, validation=train.ValidationTaskConfig({"offset": 2}))
        save(own, 2, validation=train.ValidationTaskConfig({"offset": 3}))
        found = train.get_all_reported_checkpoints()
        return [(one.status.name, one.metrics.get("score"), one.metrics.get("pid")) for one in found]

    own = tmp_path / "own"
    own.mkdir()
    result = fit(function, tmp_path, validation_config=train.ValidationConfig(validate))
    own_pid = os.getpid()
    assert result.return_value == [
        ("VALIDATED", 0, own_pid),
        ("VALIDATION_FAILED", None, None),
        ("VALIDATED", 5, own_pid),
    ]
    with pytest.raises(train.WorkerGroupError, match="needs a validation function"):
        fit(lambda: save(own, 0, validation=True), tmp_path)


def test_a_callback_that_fails_ends_the_run(tmp_path: pathlib.Path) -> None:
    class Fails(train.UserCallback):
        def after_report(self, run_context: Any, metrics: list[Any], checkpoint: Any) -> None:
            raise KeyError("callback")

    def function() -> None:
        while True:
            train.report({})

    with pytest.raises(train.ControllerError, match="callback"):
        fit(function, tmp_path, callbacks=[Fails()])
