"""Metrics of runs for Prometheus, with Ray's names where Ray has them. They go with the controller's process."""

from __future__ import annotations

import threading
from collections.abc import Callable

from runtime.train._core.states import State
from runtime.train._core.table import RunView
from runtime.util.metrics import Gauge

EVERY_S = 2.0
_RUN = "ray_train_run_name"
_STATE = "ray_train_controller_state"
_RANK = "ray_train_worker_world_rank"


class RunMetrics:
    """Sets them for one run.

    Args:
        name: of the run.
        look: gives its view; None: there is none now.
    """

    def __init__(self, name: str, look: Callable[[], RunView | None]) -> None:
        self._name = name
        self._look = look
        self._end = threading.Event()
        self._state = Gauge(
            "train_controller_state", "1 for the state of the run's controller", (_RUN, _STATE)
        )
        self._starting = Gauge(
            "train_worker_group_start_total_time_s", "seconds in which workers were started", (_RUN,)
        )
        self._ending = Gauge(
            "train_worker_group_shutdown_total_time_s", "seconds in which workers were ended", (_RUN,)
        )
        self._failures = Gauge("train_failures", "failures of the training function", (_RUN,))
        self._reports = Gauge("train_reports", "reports of a rank in this attempt", (_RUN, _RANK))
        self._thread = threading.Thread(target=self._run, name="metrics of the run", daemon=True)

    def start(self) -> None:
        """Sets them every `EVERY_S` seconds."""
        self._thread.start()

    def stop(self) -> None:
        """Ends that."""
        self._end.set()

    def show(self, view: RunView) -> None:
        """Sets them."""
        run = {_RUN: self._name}
        for state in State:
            self._state.set(float(state.value == view.state), {**run, _STATE: state.value})
        self._starting.set(view.starting_s, run)
        self._ending.set(view.ending_s, run)
        self._failures.set(float(view.failures), run)
        for each in view.ranks:
            self._reports.set(float(each.reports), {**run, _RANK: str(each.rank)})

    def _run(self) -> None:
        while True:
            view = self._look()
            if view is not None:
                self.show(view)
            if self._end.wait(EVERY_S):
                return
