"""What is shown of an experiment."""

from __future__ import annotations

from runtime import tune
from runtime.tune._core import table
from tests.sim.tune.world import Book, study_of


def test_an_experiment_of_many_trials_stays_readable() -> None:
    study = study_of({"x": tune.uniform(0, 1)}, metric="loss", mode="min", num_samples=200)
    study.replay((), Book())
    chosen = [study.choose(200) for _ in range(100)]
    for number, trial in enumerate(chosen):
        assert trial is not None
        study.started(trial)
        study.result(trial, {"training_iteration": 1, "loss": float(abs(number - 50))})
    view = table.view_of(study)
    assert len(view.rows) == table.ROWS
    assert view.counts == {"RUNNING": 100}
    assert (view.best, view.best_value) == (str(chosen[50]), 0.0)
    lines = table.lines(view, "loss", 12.3)
    assert lines[0] == f"After 12 s: 100 RUNNING. Best loss: 0 ({chosen[50]})."
    assert lines[1].split() == ["trial", "status", "iter", "total", "s", "x", "loss"]
    assert lines[-1] == "and 80 more"
    assert table.line(table.View({}, []), None, 0.0) == "After 0 s: no trials yet."
