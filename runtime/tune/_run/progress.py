"""Shows an experiment in the program that waits for it: a table on a terminal, lines in the log elsewhere."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from runtime._controllers.loop import Ended, Loop
from runtime._extension import terminal
from runtime.tune._core import experiment, table
from runtime.tune._core.study import Study

log = logging.getLogger(__name__)
TABLE_S = 1.0
LINE_S = 30.0
LOOK_S = 5.0
"""How long the experiment may take to answer; then nothing is shown this time."""


def view_of(study: Study) -> table.View:
    """What is shown of a study now."""
    return table.view_of(study)


class Progress:
    """Looks at an experiment now and then, in a thread of its own.

    Args:
        loop: of the experiment.
        name: of the experiment.
        metric: whose best value is shown; None: there is none.
        is_quiet: whether nothing is shown.
    """

    def __init__(self, loop: Loop, name: str, metric: Any, is_quiet: bool) -> None:
        self._loop = loop
        self._metric = metric
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress of an experiment", daemon=True)
        self._since = time.monotonic()
        self._key = f"experiment {name}"
        self._is_quiet = is_quiet

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
        passed_s = time.monotonic() - self._since
        view = view_of(study)
        if terminal.is_shown():
            terminal.remove(self._key, table.lines(view, self._metric, passed_s))
        else:
            log.info("%s", table.line(view, self._metric, passed_s))
        for trial in [trial for trial in study.trials if trial.status == "ERROR"][: table.ROWS]:
            log.warning("%s failed: %s. See %s/error.txt", trial, table.first_line(trial.error), trial.path)

    def _run(self) -> None:
        metric = self._metric
        is_shown = terminal.is_shown()
        while not self._end.wait(TABLE_S if is_shown else LINE_S):
            try:
                view: Any = self._loop.request(experiment.LOOK).result(LOOK_S)
            except (Ended, TimeoutError):
                continue
            passed_s = time.monotonic() - self._since
            if is_shown:
                terminal.show(self._key, table.lines(view, metric, passed_s))
            else:
                log.info("%s", table.line(view, metric, passed_s))
