"""Trials that train with `runtime.train`."""

from __future__ import annotations

import os
from typing import Any

import runtime
from runtime.train._api.callbacks import TrainRunContext, UserCallback
from runtime.train._api.checkpoint import Checkpoint
from runtime.tune._run.session import Session, current_or_none

CHECKPOINT_PATH_KEY = "checkpoint_path"
"""The metric that has the path of the run's checkpoint."""


class TuneReportCallback(UserCallback):
    """Reports what a run of `runtime.train` reports to the trial that started it.

    Made in the trial's function, for the trainer's `RunConfig(callbacks=[TuneReportCallback()])`. The trial gets the
    metrics of rank 0, and the path of a checkpoint as the metric "checkpoint_path". The checkpoint becomes the trial's
    without a copy: when the run or the trial removes it, it is gone for both. The run waits while the trial's result is
    decided on; a trial that is stopped or paused ends its run.

    Raises:
        RuntimeError: This is not the function of a trial.
    """

    def __init__(self) -> None:
        session = current_or_none()
        if not isinstance(session, Session):
            raise RuntimeError(
                "TuneReportCallback must be made in a trial's function, while a Tuner runs it. Classes of "
                "tune.Trainable return their metrics from step() instead."
            )
        self._process = os.getpid()
        self._runner = session.context.run(lambda: runtime.get_runtime_context().current_actor)

    def after_report(
        self, run_context: TrainRunContext, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        """Called by the run.

        Raises:
            TuneError: The trial was stopped or paused.
        """
        own = dict(metrics[0])
        if checkpoint is not None:
            own[CHECKPOINT_PATH_KEY] = checkpoint.path
        session = current_or_none()
        if isinstance(session, Session) and os.getpid() == self._process:  # num_workers=0
            session.relay(own, checkpoint)
        else:
            # No timeout: the answer comes when the experiment wants the next result, or the trial's process ends.
            runtime.get(self._runner.relay.remote(own, checkpoint))
