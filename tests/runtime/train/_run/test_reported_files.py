"""What becomes of the files that a training function reports, without a cluster."""

from __future__ import annotations

import contextlib
import pathlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from runtime.train import Checkpoint, CheckpointUploadMode, StorageError
from runtime.train._api.context import TrainContext
from runtime.train._core.ranks import placed
from runtime.train._core.records import Committed, Record, Reported, Uploaded
from runtime.train._run import files
from runtime.train._run.session import Left, Session
from runtime.train._run.storage import RunStorage
from tests.polling import eventually
from tests.runtime.train._run.conftest import folder_of

ASYNC, SYNC = CheckpointUploadMode.ASYNC, CheckpointUploadMode.SYNC


class Worker:
    """Takes the records of a session, and commits each report."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        storage = RunStorage(str(path / "runs"), "run")
        storage.open()
        [place] = placed(["node"])
        self.session = Session(TrainContext(place, "run", storage))
        self.records: list[Record] = []
        self._thread = threading.Thread(target=self._carry)
        self._thread.start()

    def _carry(self) -> None:
        while True:
            batch = self.session.take()
            if None in batch:
                return
            self.session.have_left(len(batch))
            self.records += batch
            done = sum(isinstance(one, Reported) for one in self.records)
            self.session.tell(Committed(done, b""))

    def end(self) -> None:
        self.session._outbox.put(None)  # type: ignore[arg-type]
        self._thread.join(60)

    def report(self, name: str, mode: CheckpointUploadMode, **options: Any) -> pathlib.Path:
        checkpoint = folder_of(self.path / name, model=name)
        deletes, upload = options.get("deletes"), options.get("upload")
        self.session.report_checkpoint({}, checkpoint, name, mode, deletes, upload)
        return self.path / name

    def uploads(self) -> int:
        return sum(isinstance(one, Uploaded) for one in self.records)


@pytest.fixture
def worker(tmp_path: pathlib.Path) -> Iterator[Worker]:
    worker = Worker(tmp_path)
    yield worker
    worker.end()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Uploads go on when it is set."""
    event, copy = threading.Event(), files.copy

    def waits(*arguments: Any, **options: Any) -> Any:
        while not event.wait(0.01):
            arguments[-1]()  # the beat
        return copy(*arguments, **options)

    monkeypatch.setattr(files, "copy", waits)
    yield event
    event.set()


def test_files_are_removed_only_as_the_mode_says(worker: Worker) -> None:
    assert worker.report("a", SYNC).exists()
    assert not worker.report("b", SYNC, deletes=True).exists()
    assert worker.report("c", ASYNC, deletes=False).exists()
    later = worker.report("d", ASYNC)
    worker.session.drain(60)
    assert not later.exists()
    assert eventually(lambda: worker.uploads() == 4)  # the records are carried by another thread


def test_a_later_report_raises_the_error_of_an_upload_and_the_files_stay(worker: Worker) -> None:
    def fails(checkpoint: Checkpoint, name: str) -> Checkpoint:
        raise StorageError("write", "/there", "no")

    own = worker.report("a", ASYNC, upload=fails)
    with pytest.raises(StorageError, match="Cannot write /there"):
        eventually(lambda: worker.session.report({}) < 0)
    assert own.exists()
    assert worker.uploads() == 0
    worker.session.report({})  # it is raised once


def test_an_upload_that_does_not_end_is_an_error(worker: Worker, gate: threading.Event) -> None:
    worker.report("a", ASYNC)
    with pytest.raises(TimeoutError, match=r"Rank 0 still uploads a checkpoint to .*/runs.* 0\.05 s after"):
        worker.session.drain(0.05)


def test_an_upload_function_returns_where_the_files_are(worker: Worker) -> None:
    with pytest.raises(TypeError, match=r"must return a Checkpoint.* not None"):
        worker.report("a", SYNC, upload=lambda checkpoint, name: None)
    worker.report("b", SYNC, upload=lambda checkpoint, name: checkpoint)
    assert worker.uploads() == 1


def test_who_is_to_leave_does_not_wait_for_an_upload(worker: Worker, gate: threading.Event) -> None:
    threading.Timer(0.05, worker.session.leave).start()
    with pytest.raises(Left):
        worker.report("a", SYNC)
    assert worker.uploads() == 0


def test_uploads_are_given_up_by_who_is_to_leave(worker: Worker, gate: threading.Event) -> None:
    folders = [worker.report(name, ASYNC) for name in "ab"]
    worker.session.leave()
    assert eventually(lambda: not any(folder.exists() for folder in folders))
    assert worker.uploads() == 0


def test_an_upload_that_is_nearly_done_is_finished_by_who_is_to_leave(
    worker: Worker, gate: threading.Event
) -> None:
    """The others may have given this report: its checkpoint counts, and no step is repeated."""

    def leave() -> None:
        worker.session.leave()
        gate.set()

    threading.Timer(0.05, leave).start()
    with contextlib.suppress(Left):
        worker.report("a", SYNC)
    assert eventually(lambda: any(isinstance(one, Reported) for one in worker.records))
    assert worker.uploads() == 1
    with pytest.raises(Left):
        worker.session.report({})
