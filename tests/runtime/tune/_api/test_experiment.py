"""`tune.run`, `tune.run_experiments` and what they return."""

from __future__ import annotations

import pathlib
import pickle
import tempfile
from typing import Any

import pytest

from runtime import tune
from runtime.tune.analysis import ExperimentAnalysis

pytestmark = pytest.mark.usefixtures("session")
SPACE = {"x": tune.grid_search([3, 1, 2]), "scale": {"by": 10}}


def descend(config: dict[str, Any]) -> None:
    """Three results: x * by, and less by one each time."""
    for step in range(3):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "step").write_text(str(step))
            checkpoint = tune.Checkpoint.from_directory(folder)
            tune.report({"loss": config["x"] * config["scale"]["by"] - step}, checkpoint=checkpoint)


def fails_once(config: dict[str, Any]) -> None:
    marker = pathlib.Path(config["marker"])
    if config["x"] == 2 and not marker.exists():
        marker.touch()
        raise ValueError("not yet")
    tune.report({"loss": config["x"]})


@pytest.fixture(scope="module")
def analysis(session: None, tmp_path_factory: Any) -> ExperimentAnalysis:
    return tune.run(
        descend,
        name="descent",
        metric="loss",
        mode="min",
        config=SPACE,
        storage_path=str(tmp_path_factory.mktemp("results")),
        verbose=0,
    )


def check_analysis(analysis: ExperimentAnalysis) -> None:
    assert analysis.best_config == {"x": 1, "scale": {"by": 10}}
    assert analysis.best_result["loss"] == 8
    assert [trial.config["x"] for trial in analysis.trials] == [3, 1, 2]
    assert list(analysis.best_dataframe["loss"]) == [10, 9, 8]
    assert list(analysis.results_df["loss"]) == [28, 8, 18]
    assert analysis.best_result_df.index[0] == analysis.best_trial.trial_id
    assert {key: value["loss"] for key, value in analysis.results.items()} == dict(
        analysis.results_df["loss"]
    )
    assert sorted(analysis.dataframe("loss", "max")["loss"]) == [10, 20, 30]
    assert sorted(analysis.dataframe()["config/scale/by"]) == [10, 10, 10]
    configs = analysis.get_all_configs(prefix=True)
    assert [config["config/x"] for config in configs.values()] == [3, 1, 2]
    best = analysis.best_checkpoint
    assert best is not None
    assert pathlib.Path(best.path, "step").read_text() == "2"
    worst = analysis.get_best_checkpoint(analysis.best_trial, "loss", "max")
    assert worst is not None
    assert pathlib.Path(worst.path, "step").read_text() == "0"
    last = analysis.get_last_checkpoint(analysis.trials[0])
    assert last is not None
    assert pathlib.Path(last.path, "step").read_text() == "2"
    assert analysis.get_best_config("loss", "max", scope="avg") == {"x": 3, "scale": {"by": 10}}


def test_the_analysis_compares_the_trials(analysis: ExperimentAnalysis) -> None:
    check_analysis(analysis)


def test_an_analysis_is_read_from_the_folder(analysis: ExperimentAnalysis) -> None:
    check_analysis(ExperimentAnalysis(analysis.experiment_path, default_metric="loss", default_mode="min"))


def test_an_analysis_can_be_pickled(analysis: ExperimentAnalysis) -> None:
    check_analysis(pickle.loads(pickle.dumps(analysis)))


def test_no_trial_is_best_by_a_metric_that_none_has(analysis: ExperimentAnalysis) -> None:
    assert analysis.get_best_trial("accuracy", "max") is None
    assert analysis.get_best_checkpoint(analysis.trials[0], "accuracy", "max") is None
    with pytest.raises(ValueError, match="scope must be one of"):
        analysis.get_best_trial(scope="first")
    with pytest.raises(ValueError, match="No metric"):
        ExperimentAnalysis(analysis.experiment_path).get_best_trial()
    with pytest.raises(tune.TuneError, match="no experiment"):
        ExperimentAnalysis(analysis.experiment_path + "-other")


def test_a_failed_trial_raises_and_resume_runs_it_again(tmp_path: pathlib.Path) -> None:
    given: dict[str, Any] = {
        "name": "failing",
        "config": {"x": tune.grid_search([1, 2]), "marker": str(tmp_path / "marker")},
        "storage_path": str(tmp_path),
        "verbose": 0,
        "metric": "loss",
        "mode": "max",
    }
    with pytest.raises(tune.TuneError, match="1 of 2 trials failed") as raised:
        tune.run(fails_once, **given)
    assert isinstance(raised.value.__cause__, ValueError)
    analysis = tune.run(fails_once, resume="AUTO+ERRORED", **given)
    assert [trial.status for trial in analysis.trials] == ["TERMINATED", "TERMINATED"]
    assert analysis.best_config["x"] == 2


def test_failed_trials_are_returned_if_they_may_fail(tmp_path: pathlib.Path) -> None:
    analysis = tune.run(
        fails_once,
        config={"x": 2, "marker": str(tmp_path / "marker")},
        storage_path=str(tmp_path),
        verbose=0,
        raise_on_failed_trial=False,
        resources_per_trial={"cpu": 2},
    )
    assert [trial.status for trial in analysis.trials] == ["ERROR"]
    assert analysis.trials[0].placement_group_factory.bundles == [{"CPU": 2}]


def test_experiments_run_one_after_the_other(tmp_path: pathlib.Path) -> None:
    first = tune.Experiment("first", descend, config={"x": 1, "scale": {"by": 1}}, storage_path=str(tmp_path))
    second = {"run": descend, "config": {"x": 2, "scale": {"by": 1}}, "storage_path": str(tmp_path)}
    trials = tune.run_experiments([first, {"second": second}], verbose=0)
    assert [trial.last_result["loss"] for trial in trials] == [-1, 0]
    assert [pathlib.Path(trial.path).parent.name for trial in trials] == ["first", "second"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"restore": "/checkpoint"}, ValueError, "restore=... is not supported"),
        ({"export_formats": ["model"]}, ValueError, "export_formats is not supported"),
        ({"keep_checkpoints_num": 1}, TypeError, "num_to_keep"),
        ({"local_dir": "/results"}, TypeError, "storage_path"),
        ({"colour": "red"}, TypeError, "no argument 'colour'"),
        ({"resume": "PROMPT", "name": "one"}, ValueError, "resume must be"),
        ({"resume": "AUTO+ALL", "name": "one"}, ValueError, "RESTART_ERRORED"),
        ({"resume": True}, ValueError, "needs the name"),
        ({"config": [1]}, TypeError, "config must be a dict"),
        ({"progress_reporter": print, "name": "one"}, ValueError, "progress_reporter must be"),
    ],
)
def test_what_cannot_be_meant_raises(
    arguments: dict[str, Any], error: type[Exception], message: str, tmp_path: pathlib.Path
) -> None:
    with pytest.raises(error, match=message):
        tune.run(
            descend,
            **{"storage_path": str(tmp_path), **arguments} if "local_dir" not in arguments else arguments,
        )


def test_an_experiment_has_its_own_arguments() -> None:
    experiment = tune.Experiment("own", descend, config={"x": 1})
    with pytest.raises(ValueError, match="its own num_samples"):
        tune.run(experiment, num_samples=2)
    with pytest.raises(ValueError, match="no trainable"):
        tune.run_experiments({"empty": {}})
    with pytest.raises(TypeError, match="run_experiments"):
        tune.run([experiment])


def counts(config: dict[str, Any]) -> None:
    for step in range(3):
        tune.report({"loss": config["x"] - step})


def test_an_analysis_reads_a_remote_storage() -> None:
    analysis = tune.run(
        counts,
        name="remote",
        config={"x": tune.grid_search([1, 2])},
        storage_path="memory://tests/analysis",
        metric="loss",
        mode="min",
        verbose=0,
    )
    again = ExperimentAnalysis("memory://tests/analysis/remote", default_metric="loss", default_mode="min")
    for each in (analysis, again):
        assert each.best_config == {"x": 1}
        assert each.get_best_config("loss", "max", scope="avg") == {"x": 2}
        assert list(each.best_dataframe["loss"]) == [1, 0, -1]
