"""What a run keeps of its checkpoints."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from runtime import cloudpickle
from runtime.train import CheckpointConfig, RunConfig
from runtime.train._core.reports import Complete
from runtime.train._run.keeper import RunKeeper
from runtime.train._run.upload import encoded
from tests.runtime.train._run.conftest import folder_of, never


class Run:
    def __init__(self, path: pathlib.Path, **kept: Any) -> None:
        self.path = path
        config = RunConfig("run", str(path / "runs"), checkpoint_config=CheckpointConfig(**kept))
        self.keeper = RunKeeper(config, None)
        self.keeper.open()

    def report(self, name: str, **metrics: Any) -> None:
        part = self.keeper.storage.upload(folder_of(self.path / name), name, 0, never)
        self.keeper.keep([Complete(0, [cloudpickle.dumps(metrics)], name, [encoded(part)])])

    def best(self) -> list[str]:
        result = self.keeper.close(None, b"")
        return [pathlib.Path(checkpoint.path).name for checkpoint, _ in result.best_checkpoints]


def test_the_best_are_kept_and_the_latest(tmp_path: pathlib.Path) -> None:
    run = Run(tmp_path, num_to_keep=2, checkpoint_score_attribute="in/x", checkpoint_score_order="min")
    for name, value in (("a", 2), ("b", 1), ("c", 3), ("d", 4)):
        run.report(name, **{"in": {"x": value}})
    assert run.best() == ["a", "b"]
    assert [one.name for one in run.keeper.storage.committed()] == ["a", "b", "d"]


def test_a_missing_metric_is_named(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    run = Run(tmp_path, num_to_keep=1, checkpoint_score_attribute="x")
    run.report("a", y=1, z=2)
    assert "metrics lack checkpoint_score_attribute 'x'; they have y, z" in caplog.text
    assert run.best() == ["a"]


@pytest.mark.parametrize("count", [None, 1])
def test_a_metric_that_is_no_number_ends_the_run(tmp_path: pathlib.Path, count: int | None) -> None:
    run = Run(tmp_path, num_to_keep=count, checkpoint_score_attribute="x")
    with pytest.raises(ValueError, match=r"'x', which must be a number.*'good'"):
        run.report("a", x="good")
    assert run.best() == ["a"]
