"""Reporters of a program, alone and in an experiment."""

from __future__ import annotations

import pathlib
import re
from types import SimpleNamespace
from typing import Any

import pytest

from runtime import tune
from runtime.tune.progress_reporter import TuneReporterBase


def trial(number: int, status: str = "TERMINATED", **result: Any) -> Any:
    class Named(SimpleNamespace):
        def __str__(self) -> str:
            return f"train_{number:02d}"

    return Named(
        status=status,
        config={"lr": 0.1 * number, "model": {"layers": number}},
        evaluated_params={"lr": 0.1 * number},
        last_result=result,
        num_failures=int(status == "ERROR"),
        local_path=f"/results/{number}",
    )


def printed(reporter: Any, trials: list[Any], capsys: Any, done: bool = False) -> str:
    reporter.report(trials, done, "Using FIFO.")
    text: str = capsys.readouterr().out
    return text


def test_the_table_shows_parameters_and_metrics(capsys: Any) -> None:
    reporter = tune.CLIReporter(metric="loss", mode="min")
    reporter.set_total_samples(9)
    trials = [
        trial(1, loss=0.25, training_iteration=4, done=True, pid=77),
        trial(2, "RUNNING", loss=0.125, training_iteration=3),
        trial(3, "ERROR"),
    ]
    text = printed(reporter, trials, capsys)
    assert "Number of trials: 3/9 (1 RUNNING, 1 TERMINATED, 1 ERROR)" in text
    assert "Current best trial: train_02 with loss=0.125 and parameters={'lr': 0.2}" in text
    assert "Using FIFO." in text
    assert re.search(r"^Trial name +status +lr +iter +loss$", text, re.MULTILINE)
    assert re.search(r"^train_02 +RUNNING +0\.2 +3 +0\.125$", text, re.MULTILINE)
    assert re.search(r"^train_03 +1 +/results/3/error\.txt$", text, re.MULTILINE)
    assert "77" not in text


def test_columns_are_chosen_and_cut(capsys: Any) -> None:
    reporter = tune.CLIReporter(
        metric_columns={"eval/loss": "validation loss of the model"},
        parameter_columns=["model/layers"],
        max_column_length=10,
    )
    reporter.add_metric_column("training_iteration", "n")
    reporter.add_parameter_column("lr")
    text = printed(reporter, [trial(1, eval={"loss": 0.5}, training_iteration=2, other=9)], capsys)
    assert re.search(r"^Trial name +status +model/l\.\.\. +lr +validat\.\.\. +n$", text, re.MULTILINE)
    assert re.search(r"^train_01 +TERMINATED +1 +0\.1 +0\.5 +2$", text, re.MULTILINE)
    with pytest.raises(ValueError, match="'lr' is shown already"):
        reporter.add_parameter_column("lr")


def test_many_trials_stay_readable(capsys: Any) -> None:
    trials = [trial(number, loss=number) for number in range(40)] + [trial(99, "RUNNING")]
    reporter = tune.CLIReporter(max_progress_rows=5, metric="loss", mode="max", sort_by_metric=True)
    text = printed(reporter, trials, capsys)
    assert re.findall(r"^train_\d+", text, re.MULTILINE) == [f"train_{n}" for n in (99, 39, 38, 37, 36)]
    assert "... 36 more trials not shown" in text


def test_tables_may_wait_for_the_end(capsys: Any) -> None:
    reporter = tune.CLIReporter(print_intermediate_tables=False)
    assert "train_01" not in printed(reporter, [trial(1)], capsys)
    assert "train_01" in printed(reporter, [trial(1)], capsys, done=True)


def test_reports_are_some_time_apart() -> None:
    reporter = tune.CLIReporter(max_report_frequency=1000)
    assert [
        reporter.should_report([]),
        reporter.should_report([]),
        reporter.should_report([], done=True),
    ] == [
        True,
        False,
        True,
    ]


def test_metric_and_mode_are_given_once() -> None:
    reporter = TuneReporterBase(metric="loss", mode="min")
    assert reporter.set_search_properties(None, None)
    assert reporter.set_search_properties("loss", "min")
    with pytest.raises(ValueError, match="the metric 'loss', and the experiment 'accuracy'"):
        reporter.set_search_properties("accuracy", None)
    with pytest.raises(ValueError, match="mode must be"):
        TuneReporterBase(mode="best")


def test_a_notebook_has_a_table_of_html(capsys: Any) -> None:
    reporter = tune.JupyterNotebookReporter(overwrite=True)
    shown = trial(1, note="<b>")
    text = reporter._html([shown], False, ["a < b"])
    assert "<td>train_01</td>" in text
    assert "a &lt; b" in text
    assert "<td>train_01</td>" in reporter._html([shown], True, [])
    assert re.search(r"^train_01 ", printed(reporter, [shown], capsys), re.MULTILINE)  # this is no notebook


class Ends(tune.ProgressReporter):
    """Counts reports, and writes down what it is told."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.ended = 0

    def setup(self, start_time: Any = None, total_samples: Any = None, **kwargs: Any) -> None:
        self._write(f"setup {total_samples} {kwargs['metric']} {kwargs['mode']}")

    def should_report(self, trials: list[Any], done: bool = False) -> bool:
        ended = sum(each.is_finished() for each in trials)
        return done or ended > self.ended

    def report(self, trials: list[Any], done: bool, *sys_info: str) -> None:
        self.ended = sum(each.is_finished() for each in trials)
        self._write(f"{self.ended} ended{', done' if done else ''}")

    def _write(self, line: str) -> None:
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(line + "\n")


def square(config: dict[str, Any]) -> dict[str, Any]:
    return {"loss": config["x"] ** 2}


@pytest.mark.usefixtures("session")
def test_an_experiment_is_shown_by_its_reporter(tmp_path: pathlib.Path) -> None:
    tune.Tuner(
        square,
        param_space={"x": tune.grid_search([1, 2, 3])},
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=tune.RunConfig(
            storage_path=str(tmp_path), progress_reporter=Ends(str(tmp_path / "lines"))
        ),
    ).fit()
    lines = (tmp_path / "lines").read_text().splitlines()
    assert lines[0] == "setup 3 loss min"
    assert lines[-1] == "3 ended, done"
    counts = [int(line.split()[0]) for line in lines[1:]]
    assert counts == sorted(counts)
    assert {1, 2, 3} <= set(counts)


@pytest.mark.usefixtures("session")
def test_the_command_line_reporter_prints_the_end(tmp_path: pathlib.Path, capsys: Any) -> None:
    tune.run(square, config={"x": 2}, storage_path=str(tmp_path), progress_reporter=tune.CLIReporter())
    last = capsys.readouterr().out.split("== Status ==")[-1]
    assert "Number of trials: 1/1 (1 TERMINATED)" in last
    tune.run(
        square, config={"x": 2}, storage_path=str(tmp_path / "quiet"), progress_reporter=Raises(), verbose=0
    )


class Raises(tune.ProgressReporter):
    """Must not be called."""

    def setup(self, *args: Any, **kwargs: Any) -> None:
        raise AssertionError("nothing is shown with verbose=0")
