"""Results of runs."""

from __future__ import annotations

import pathlib
import pickle
import uuid
from typing import Any

import pytest

from runtime.train import Checkpoint, Result
from runtime.train._run.storage import RunStorage


def result(*metrics: dict[str, Any]) -> Result:
    checkpoints = [(Checkpoint(f"/{index}"), one) for index, one in enumerate(metrics)]
    return Result({"last": 1}, checkpoints[-1][0] if checkpoints else None, None, "/run", checkpoints)


class TestBestCheckpoint:
    def test_by_a_metric(self) -> None:
        one = result({"a": 1, "in": {"b": 3}}, {"a": 2, "in": {"b": 1}}, {"c": 9})
        assert one.get_best_checkpoint("a", "max") == Checkpoint("/1")
        assert one.get_best_checkpoint("a", "min") == Checkpoint("/0")
        assert one.get_best_checkpoint("in/b", "max") == Checkpoint("/0")

    def test_errors_name_what_there_is(self) -> None:
        with pytest.raises(ValueError, match="not 'best'"):
            result({"a": 1}).get_best_checkpoint("a", "best")
        with pytest.raises(RuntimeError, match=r"/run has no checkpoint"):
            result().get_best_checkpoint("a", "max")
        with pytest.raises(RuntimeError, match=r"metric 'x'\. Their metrics are: a, b"):
            result({"a": 1}, {"b": 1}).get_best_checkpoint("x", "max")


def test_metrics_as_a_table() -> None:
    pytest.importorskip("pandas")
    frame = result({"a": 1, "b": 2}, {"a": 3}).metrics_dataframe
    assert frame is not None
    assert frame["a"].tolist() == [1, 3]
    assert result().metrics_dataframe is None


@pytest.mark.parametrize("kind", ["local", "uri", "filesystem"])
def test_from_the_folder_of_a_run(tmp_path: pathlib.Path, kind: str) -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    folder = f"/{uuid.uuid4().hex}"
    path, filesystem = {
        "local": (str(tmp_path), None),
        "uri": (f"memory:/{folder}", None),
        "filesystem": (folder, MemoryFileSystem()),
    }[kind]
    storage = RunStorage(path, "run", filesystem)
    storage.open()
    (tmp_path / "own").mkdir()
    for step in range(3):
        part = storage.upload(Checkpoint(tmp_path / "own"), f"c{step}", 0, lambda: False)
        storage.commit(f"c{step}", [part], {"step": step})
    storage.write("config.json", b'{"lr": 0.1}')
    read = pickle.loads(pickle.dumps(Result.from_path(f"{path}/run/", filesystem)))
    assert read.metrics == {"step": 2}
    assert read.checkpoint == storage.committed()[2].checkpoint
    assert [metrics["step"] for _, metrics in read.best_checkpoints] == [0, 1, 2]
    assert read.path == storage.folder
    assert (read.error, read.config) == (None, {"lr": 0.1})
    assert read.filesystem == storage.storage_filesystem
    again = Result.from_path(read.path, read.filesystem)
    assert again.checkpoint is not None
    assert again.checkpoint.path == read.checkpoint.path


def test_a_run_without_a_checkpoint(tmp_path: pathlib.Path) -> None:
    (tmp_path / "result.json").write_text('{"status": "FINISHED", "metrics": {"a": 1}}')
    read = Result.from_path(tmp_path)
    assert (read.metrics, read.checkpoint, read.best_checkpoints) == (None, None, [])


def test_of_a_folder_that_is_none(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "gone", tmp_path):
        with pytest.raises(RuntimeError, match="There is no run in"):
            Result.from_path(path)
