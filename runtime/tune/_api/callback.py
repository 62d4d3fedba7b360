"""What a program can have called while an experiment runs, in the process that waits for it."""

from __future__ import annotations

from typing import Any


class Callback:
    """Called by the experiment, one call at a time. What a method raises ends the experiment.

    `iteration` is the number of results of all trials so far, `trials` are all trials.
    """

    def setup(
        self,
        stop: Any = None,
        num_samples: int | None = None,
        total_num_samples: int | None = None,
        **info: Any,
    ) -> None:
        """The experiment begins."""

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Something is about to be decided."""

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Something was decided."""

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A runner has the trial."""

    def on_trial_restore(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """The trial goes on from a checkpoint."""

    def on_trial_save(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A checkpoint of the trial was saved."""

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        """The trial has given a result."""

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """The trial has ended."""

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """The trial has failed, and is tried again."""

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """The trial has failed for good."""

    def on_checkpoint(
        self, iteration: int, trials: list[Any], trial: Any, checkpoint: Any, **info: Any
    ) -> None:
        """A checkpoint of the trial is in the storage."""

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        """All trials have ended."""

    def get_state(self) -> dict[str, Any] | None:
        """What `set_state` needs to go on after a restore; None: nothing."""
        return None

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores what `get_state` gave."""


class LoggerCallback(Callback):
    """A callback that writes down what trials report. Subclasses define `log_trial_*`."""

    def log_trial_start(self, trial: Any) -> None:
        """A trial begins, or goes on."""

    def log_trial_restore(self, trial: Any) -> None:
        """A trial goes on from a checkpoint."""

    def log_trial_save(self, trial: Any) -> None:
        """A trial has a checkpoint."""

    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
        """A trial has given a result."""

    def log_trial_end(self, trial: Any, failed: bool = False) -> None:
        """A trial has ended."""

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.log_trial_start(trial)

    def on_trial_restore(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.log_trial_restore(trial)

    def on_trial_save(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.log_trial_save(trial)

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        self.log_trial_result(iteration, trial, result)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.log_trial_end(trial)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.log_trial_end(trial, failed=True)
