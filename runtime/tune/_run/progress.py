"""Shows an experiment in the program that waits for it: a table on a terminal, lines in the log elsewhere."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from runtime._controllers.loop import Ended, Loop
from runtime._extension import terminal
from runtime.tune._api.callback import Callback
from runtime.tune._api.config import RunConfig, TuneConfig
from runtime.tune._core import experiment, table
from runtime.tune._core.study import Study
from runtime.tune.progress_reporter import ProgressReporter

log = logging.getLogger(__name__)
TABLE_S = 1.0
LINE_S = 30.0
LOOK_S = 5.0
"""How long the experiment may take to answer; then nothing is shown this time."""


def view_of(study: Study) -> table.View:
    """What is shown of a study now."""
    return table.view_of(study)


def reported(reports: Reports) -> Callable[[Study], None]:
    """A look at a study that has the program's reporter show it."""
    return lambda _study: reports.look()


class Reports(Callback):
    """Has a program's reporter show the experiment. Belongs to the thread of the experiment.

    Args:
        reporter: of the program.
        study: what it shows.
    """

    def __init__(self, reporter: ProgressReporter, study: Study) -> None:
        self._reporter = reporter
        self._study = study

    def begin(self, tune: TuneConfig) -> None:
        """Tells the reporter what is optimized."""
        searcher = self._study.rules.searcher
        samples = tune.num_samples if tune.num_samples > 0 else None
        self._reporter.setup(
            start_time=time.time(),
            total_samples=getattr(searcher, "total", samples),
            metric=tune.metric if isinstance(tune.metric, str) else None,
            mode=tune.mode if isinstance(tune.mode, str) else None,
        )

    def look(self, done: bool = False) -> None:
        """Reports, if the reporter wants to."""
        trials = list(self._study.trials)
        if self._reporter.should_report(trials, done=done):
            self._reporter.report(trials, done, self._study.rules.scheduler.debug_string())

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.look()

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        self.look()

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.look()

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.look()


def check(reporter: Any) -> None:
    """Checks a program's reporter.

    Raises:
        ValueError: it is none.
    """
    if reporter is not None and not isinstance(reporter, ProgressReporter):
        raise ValueError(f"progress_reporter must be a tune.ProgressReporter, not {reporter!r}.")


def reports_of(run: RunConfig, tune: TuneConfig, study: Study) -> Reports | None:
    """The program's reporter. None: it has none, or nothing is to be shown.

    Raises:
        ValueError: it has another metric.
    """
    reporter = run.progress_reporter
    if reporter is None or run.verbose == 0:
        return None
    reports = Reports(reporter, study)
    reports.begin(tune)
    return reports


class Progress:
    """Looks at an experiment now and then, in a thread of its own.

    Args:
        loop: of the experiment.
        run, metric: of the experiment.
        folder: where it is.
        reports: of the program; they take the place of what is shown here.
    """

    def __init__(
        self, loop: Loop, run: RunConfig, metric: Any, folder: str, reports: Reports | None = None
    ) -> None:
        self._loop = loop
        self._metric = metric
        self._folder = folder
        self._reports = reports
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress of an experiment", daemon=True)
        self._since = time.monotonic()
        self._key = f"experiment {run.name}"
        self._is_quiet = run.verbose == 0

    def start(self) -> None:
        """Begins."""
        if not self._is_quiet:
            self._thread.start()

    def stop(self, study: Study) -> None:
        """Shows the end."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(LOOK_S)
        if self._is_quiet:
            return
        if self._reports is not None:
            self._reports.look(done=True)
            return
        passed_s = time.monotonic() - self._since
        view = view_of(study)
        if terminal.is_shown():
            terminal.remove(self._key, table.lines(view, self._metric, passed_s))
        else:
            log.info("%s", table.line(view, self._metric, passed_s))
        for trial in [trial for trial in study.trials if trial.status == "ERROR"][: table.ROWS]:
            log.warning("%s failed: %s. See %s/error.txt", trial, table.first_line(trial.error), trial.path)

    def _run(self) -> None:
        is_shown = terminal.is_shown()
        while not self._end.wait(TABLE_S if is_shown or self._reports is not None else LINE_S):
            try:
                view: Any = self._loop.request(experiment.LOOK).result(LOOK_S)
            except (Ended, TimeoutError):
                continue
            if self._reports is not None:
                continue  # looking has had them report
            passed_s = time.monotonic() - self._since
            if is_shown:
                terminal.show(self._key, table.lines(view, self._metric, passed_s))
            else:
                log.info("%s", table.line(view, self._metric, passed_s))
