"""What a run keeps of its checkpoints."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from runtime import cloudpickle
from runtime.train import CheckpointConfig, RunConfig, ValidationConfig, ValidationTaskConfig
from runtime.train._core.plan import Kept
from runtime.train._core.reports import Complete
from runtime.train._core.validations import Outcome
from runtime.train._core.validations import ReportedCheckpointStatus as Status
from runtime.train._run.keeper import RunKeeper
from runtime.train._run.upload import encoded
from runtime.train._run.validation import validate
from tests.runtime.train._run.conftest import folder_of, never


class Run:
    def __init__(self, path: pathlib.Path, validation: Any = None, **kept: Any) -> None:
        self.path = path
        config = RunConfig("run", str(path / "runs"), checkpoint_config=CheckpointConfig(**kept))
        self.keeper = RunKeeper(config, None, validation=validation)
        self.opened = self.keeper.open()

    def report(self, name: str, wanted: Any = False, **metrics: Any) -> Kept:
        part = self.keeper.storage.upload(folder_of(self.path / name), name, 0, never)
        validation = cloudpickle.dumps(wanted) if wanted else b""
        report = Complete(0, [cloudpickle.dumps(metrics)], name, [encoded(part)], validation)
        return self.tidied(self.keeper.keep([report]))

    def tidied(self, kept: Kept) -> Kept:
        self.keeper.tidy([kept.leftovers] if kept.leftovers is not None else [])
        return kept

    def there(self) -> list[str]:
        """Checkpoints whose files are there."""
        return sorted(path.parent.name for path in self.path.glob("runs/run/*/manifest.json"))

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


def test_old_ones_are_removed_after_the_reply(tmp_path: pathlib.Path) -> None:
    run = Run(tmp_path, num_to_keep=1)
    run.report("a")
    part = run.keeper.storage.upload(folder_of(tmp_path / "b"), "b", 0, never)
    kept = run.keeper.keep([Complete(1, [cloudpickle.dumps({})], "b", [encoded(part)])])
    assert run.there() == ["a", "b"]
    assert [one.name for one in run.keeper.storage.committed()] == ["b"]
    run.tidied(kept)
    assert run.there() == ["b"]
    assert not [*tmp_path.glob("runs/run/.unfinished/*")]


def score(checkpoint: Any, factor: int = 1, **more: Any) -> dict[str, Any]:
    return {"factor": factor, "more": more, "name": pathlib.Path(checkpoint.path).name}


class TestValidation:
    config = ValidationConfig(score, ValidationTaskConfig({"factor": 2}, timeout_s=60.0))

    def test_arguments_and_timeout_of_a_report_come_before_those_of_the_run(
        self, tmp_path: pathlib.Path
    ) -> None:
        run = Run(tmp_path, self.config)
        (first,) = run.report("a", wanted=True).pending
        assert (first.name, first.timeout_s) == ("a", 60.0)
        assert validate(*first.arguments) == {"factor": 2, "more": {}, "name": "a"}
        (second,) = run.report("b", wanted=ValidationTaskConfig({"factor": 3, "x": 1})).pending
        assert (second.name, second.timeout_s) == ("b", None)
        assert validate(*second.arguments) == {"factor": 3, "more": {"x": 1}, "name": "b"}
        assert not run.report("c").pending

    def test_one_that_is_pending_is_kept_until_it_has_its_metrics(self, tmp_path: pathlib.Path) -> None:
        run = Run(tmp_path, self.config, num_to_keep=1, checkpoint_score_attribute="score")
        run.report("a", wanted=True)
        run.report("b", wanted=True)
        run.report("c", score=5)
        assert run.there() == ["a", "b", "c"]
        run.tidied(run.keeper.validated(Outcome("b", Status.VALIDATED, {"score": 9})))
        assert run.there() == ["a", "b", "c"]  # the best, the latest, and the one that is pending
        run.tidied(run.keeper.validated(Outcome("a", Status.VALIDATED, {"score": 1})))
        assert run.there() == ["b", "c"]
        assert run.best() == ["b"]

    def test_a_failure_and_a_timeout_are_told_and_the_metrics_stay(
        self, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        run = Run(tmp_path, self.config, checkpoint_score_attribute="score")
        for name in "abc":
            run.report(name, wanted=True, score=1)
        run.keeper.validated(Outcome("a", Status.VALIDATION_FAILED, error=KeyError("nothing there")))
        run.keeper.validated(Outcome("b", Status.VALIDATION_TIMEOUT))
        run.keeper.validated(Outcome("c", Status.VALIDATED, {"score": "good", "other": 1}))
        assert "nothing there" in caplog.text
        assert "checkpoint b has exceeded its timeout_s" in caplog.text
        assert "must be a number" in caplog.text
        found = [(one.metrics, one.status) for one in run.keeper.storage.committed()]
        failed, timeout = Status.VALIDATION_FAILED, Status.VALIDATION_TIMEOUT
        assert found == [({"score": 1}, failed), ({"score": 1}, timeout), ({"score": 1}, failed)]

    def test_the_next_controller_finds_those_that_are_pending(self, tmp_path: pathlib.Path) -> None:
        first = Run(tmp_path, self.config)
        for name in "abc":
            first.report(name, wanted=ValidationTaskConfig({"factor": 7}, 5.0))
        first.keeper.validated(Outcome("b", Status.VALIDATED, {"score": object}))
        later = Run(tmp_path, self.config)
        assert [(one.name, one.timeout_s) for one in later.opened.pending] == [("a", 5.0), ("c", 5.0)]
        assert validate(*later.opened.pending[1].arguments)["factor"] == 7
        assert later.keeper.storage.committed()[1].metrics == {"score": object}
        without = Run(tmp_path, None, num_to_keep=1)
        assert not without.opened.pending
        without.report("d", wanted=True)
        assert without.there() == ["d"]  # nobody validates the others any more

    def test_a_function_must_return_metrics(self, tmp_path: pathlib.Path) -> None:
        run = Run(tmp_path, ValidationConfig(lambda checkpoint: 5))  # type: ignore[arg-type,return-value]
        (pending,) = run.report("a", wanted=True).pending
        with pytest.raises(TypeError, match="dict of metrics, not 5"):
            validate(*pending.arguments)
