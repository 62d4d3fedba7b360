"""Training functions that report, fail, are killed and go on."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pathlib
import signal
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

import runtime
from runtime import train
from runtime.exceptions import ActorDiedError
from runtime.train._api.trainer import DataParallelTrainer
from runtime.train._run import progress
from tests.polling import eventually

pytestmark = pytest.mark.usefixtures("session")


def fit(
    function: Callable[..., Any], folder: pathlib.Path, workers: int = 2, failures: int = 0, **run: Any
) -> Any:
    return DataParallelTrainer(
        function,
        train_loop_config={"folder": str(folder)},
        scaling_config=train.ScalingConfig(num_workers=workers, resources_per_worker={"CPU": 0.5}),
        run_config=train.RunConfig(
            storage_path=str(folder / "runs"),
            failure_config=train.FailureConfig(max_failures=failures),
            **run,
        ),
    ).fit()


def save(folder: str, state: dict[str, Any], **report: Any) -> None:
    place = pathlib.Path(tempfile.mkdtemp(dir=folder))
    (place / "state.json").write_text(json.dumps(state))
    train.report(state, checkpoint=train.Checkpoint.from_directory(str(place)), **report)


def begin() -> int:
    checkpoint = train.get_checkpoint()
    if checkpoint is None:
        return 0
    with checkpoint.as_directory() as folder:
        return int(json.loads(pathlib.Path(folder, "state.json").read_text())["step"]) + 1


class Seen(train.UserCallback):
    def __init__(self, path: pathlib.Path) -> None:
        self._path = path

    def after_report(self, run_context: Any, metrics: list[Any], checkpoint: Any) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps([metrics, checkpoint is not None]) + "\n")


def reports(config: dict[str, Any]) -> str:
    context = train.get_context()
    for step in range(3):
        train.report({"step": step, "rank": context.get_world_rank()})
    if context.get_world_rank() == 0:
        save(config["folder"], {"step": 3})
        assert begin() == 4
    else:
        train.report({"step": 3})
        assert eventually(lambda: train.get_checkpoint() is not None)
    return f"{context.get_world_rank()} of {context.get_world_size()}"


def test_reports_of_all_ranks_come_together(tmp_path: pathlib.Path) -> None:
    result = fit(reports, tmp_path, callbacks=[Seen(tmp_path / "seen")])
    assert result.metrics == {"step": 3}
    assert result.return_value == "0 of 2"
    assert result.error is None
    lines = [json.loads(line) for line in (tmp_path / "seen").read_text().splitlines()]
    assert lines == [
        *([[{"step": step, "rank": 0}, {"step": step, "rank": 1}], False] for step in range(3)),
        [[{"step": 3}, {"step": 3}], True],
    ]
    with result.checkpoint.as_directory() as folder:
        assert json.loads(pathlib.Path(folder, "state.json").read_text()) == {"step": 3}


def is_killed(config: dict[str, Any]) -> list[int]:
    """Rank 1 is killed right after its report of step 3."""
    killed = pathlib.Path(config["folder"], "killed")
    rank = train.get_context().get_world_rank()
    first = begin()
    with pathlib.Path(config["folder"], f"process-{rank}").open("a") as file:
        file.write(f"{os.getpid()} {first}\n")
    for step in range(first, 6):
        if rank == 0:
            save(config["folder"], {"step": step})
        else:
            train.report({"step": step})
            if step == 3 and not killed.exists():
                eventually(lambda: begin() > 3)
                killed.touch()
                os.kill(os.getpid(), signal.SIGKILL)
    return [first, step]


def test_a_killed_worker_is_replaced_and_no_saved_step_is_repeated(tmp_path: pathlib.Path) -> None:
    result = fit(is_killed, tmp_path, failures=1)
    assert result.metrics == {"step": 5}
    assert result.return_value[0] >= 4
    kept, replaced = ((tmp_path / f"process-{rank}").read_text().split() for rank in (0, 1))
    assert kept[0] == kept[2]
    assert replaced[0] != replaced[2]


def raises(config: dict[str, Any]) -> None:
    if train.get_context().get_world_rank() == 1:
        raise ValueError("no")
    while True:
        time.sleep(0.01)


def test_the_error_of_a_rank_is_raised(tmp_path: pathlib.Path) -> None:
    with pytest.raises(train.WorkerGroupError, match="Rank 1: ValueError: no") as caught:
        fit(raises, tmp_path, failures=1)
    assert isinstance(caught.value.worker_failures[1], ValueError)


def takes_time(config: dict[str, Any]) -> None:
    train.report({"step": 7})
    eventually(pathlib.Path(config["folder"], "seen").exists)


def test_a_run_is_shown_while_it_lasts(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "rank 0: step 7" in record.getMessage() and is_counted(metrics()):
                (tmp_path / "seen").touch()

    monkeypatch.setattr(progress, "LINE_S", 0.1)
    caplog.set_level(logging.INFO, progress.log.name)
    shown = Handler()
    progress.log.addHandler(shown)
    try:
        fit(takes_time, tmp_path, name="shown")
    finally:
        progress.log.removeHandler(shown)
    assert "shown: running, attempt 1" in caplog.text
    assert (tmp_path / "seen").exists()


@runtime.remote(num_cpus=3)
class Holder:
    def ready(self) -> None:
        pass


@pytest.mark.parametrize(
    ("cpus", "text"), [(2, "It goes on when tasks, actors or placement groups"), (5, "add nodes")]
)
def test_a_run_without_room_says_what_it_waits_for(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, cpus: int, text: str
) -> None:
    holder = Holder.remote()
    runtime.get(holder.ready.remote())
    told: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage())
            if cpus > 4:
                raise KeyboardInterrupt  # there will never be room
            runtime.kill(holder)

    monkeypatch.setattr(progress, "ROOM_S", 0.1)
    handler = Handler(logging.WARNING)
    progress.log.addHandler(handler)
    trainer = DataParallelTrainer(
        lambda: None,
        scaling_config=train.ScalingConfig(resources_per_worker={"CPU": cpus}),
        run_config=train.RunConfig(storage_path=str(tmp_path)),
    )
    try:
        with contextlib.suppress(KeyboardInterrupt):
            trainer.fit()
    finally:
        progress.log.removeHandler(handler)
        runtime.kill(holder)
    assert f"1 with {{'CPU': {float(cpus)}}} each (PACK). Free in the cluster: CPU: 1 of 4." in told[0]
    assert text in told[0]


def is_counted(text: str) -> bool:
    run = 'ray_train_run_name="shown"'
    lines = [line for line in text.splitlines() if run in line and 'ray_train_worker_world_rank="0"' in line]
    return all(
        any(line.startswith(name) and line.endswith(" 1.0") for line in lines)
        for name in ("ray_train_reports{", "ray_train_report_total{")
    )


def metrics() -> str:
    (node,) = runtime.nodes()
    url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    with urllib.request.urlopen(url, timeout=60) as reply:
        return str(reply.read().decode())


def dies(config: dict[str, Any]) -> None:
    train.report({"step": 0})
    reported = pathlib.Path(config["folder"], "reported")
    if train.get_context().get_world_rank() == 0:
        reported.touch()
    else:
        eventually(reported.exists)
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        time.sleep(0.01)


def test_a_worker_that_died_is_named_with_the_cause(tmp_path: pathlib.Path) -> None:
    with pytest.raises(train.WorkerGroupError, match=r"Rank 1: Its process was killed by signal 9") as caught:
        fit(dies, tmp_path, name="run")
    assert isinstance(caught.value.worker_failures[1], ActorDiedError)
    folder = tmp_path / "runs" / "run"
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [(line["rank"], line["metrics"]) for line in lines] == [(0, {"step": 0}), (1, {"step": 0})]
    assert json.loads((folder / "config.json").read_text())["scaling_config"]["num_workers"] == 2
    result = json.loads((folder / "result.json").read_text())
    assert result["status"] == "ERRORED"
    assert "killed by signal 9" in result["error"]


def lacks_a_module(config: dict[str, Any]) -> None:
    import there_is_no_such_module  # type: ignore[import-not-found]  # noqa: F401


def test_an_import_that_fails_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(train.WorkerGroupError, match="there_is_no_such_module"):
        fit(lacks_a_module, tmp_path)


def returns_early(config: dict[str, Any]) -> None:
    if train.get_context().get_world_rank() == 0:
        save(config["folder"], {"step": 0})


def test_a_rank_that_returns_while_another_waits_for_it_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(train.WorkerGroupError, match="returned on rank 1 after 0 reports"):
        fit(returns_early, tmp_path)


def stops(config: dict[str, Any]) -> None:
    if train.get_context().get_world_rank() == 0:
        save(config["folder"], {"step": 0})
    time.sleep(300)


def test_a_rank_that_reports_nothing_is_shown_with_its_stack(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_TRAIN_COLLECTIVE_TIMEOUT_S", "0.5")
    with pytest.raises(train.WorkerGroupError, match=r"(?s)rank 0 waits for rank 1.*Rank 1:.*in stops"):
        fit(stops, tmp_path)


def test_a_wrong_storage_path_is_an_error(tmp_path: pathlib.Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(train.ControllerError, match="runs"):
        fit(reports, tmp_path)


def uploads_later(config: dict[str, Any]) -> list[int]:
    for step in range(3):
        save(config["folder"], {"step": step}, checkpoint_upload_mode=train.CheckpointUploadMode.ASYNC)
    known = train.get_all_reported_checkpoints()
    train.report({"step": 3})
    return [one.metrics["step"] for one in known]


def test_checkpoints_that_are_uploaded_later_are_all_committed(tmp_path: pathlib.Path) -> None:
    keep = train.CheckpointConfig(num_to_keep=2)
    result = fit(uploads_later, tmp_path, workers=1, checkpoint_config=keep)
    assert result.return_value == [1, 2]
    assert result.metrics == {"step": 2}  # of the latest checkpoint
    assert [metrics["step"] for _, metrics in result.best_checkpoints] == [1, 2]


def goes_on(config: dict[str, Any]) -> None:
    pathlib.Path(config["folder"], "begun").touch()
    while True:
        time.sleep(0.01)
        train.report({"large": "x" * 100_000})


def test_ctrl_c_gives_the_run_up(tmp_path: pathlib.Path) -> None:
    def interrupt() -> None:
        eventually((tmp_path / "begun").exists)
        signal.raise_signal(signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        fit(goes_on, tmp_path)
    thread.join()


def test_functions_of_a_training_function_say_where_they_belong() -> None:
    for call in (train.get_context, train.get_checkpoint, lambda: train.report({})):
        with pytest.raises(RuntimeError, match="in a training function"):
            call()
    with pytest.raises(ValueError, match="takes no argument"):
        DataParallelTrainer(lambda: None, train_loop_config={"a": 1})
