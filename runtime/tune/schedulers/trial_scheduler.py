"""The interface of trial schedulers, and the scheduler that runs trials in the order they come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from runtime import cloudpickle

from ._controller import Controller, Trial

DEFAULT_METRIC = "_metric"
"""The metric of a trainable that returns a bare number."""


class TrialScheduler:
    """Decides which trials run, pause and stop. Subclass it for a scheduler of your own.

    A scheduler is called by one thread, the study's. It reads no clock: times come with results. It must decide the
    same if the same calls are repeated, because restoring a study repeats them; random numbers come from a generator
    that is part of the scheduler.

    Before each `choose_trial_to_run` the controller asks the searcher for new trials, so that an empty
    `controller.next_pending()` means that no new trial is to be had at the moment.
    """

    CONTINUE = "CONTINUE"
    """The trial goes on."""
    PAUSE = "PAUSE"
    """The trial is saved and gives up its resources until `choose_trial_to_run` returns it."""
    STOP = "STOP"
    """The trial ends."""
    NOOP = "NOOP"
    """The scheduler has dealt with the trial through the controller."""

    _metric: str | None = None
    _supports_buffered_results = False

    @property
    def metric(self) -> str | None:
        """The result key that decisions are based on."""
        return self._metric

    @property
    def supports_buffered_results(self) -> bool:
        """Whether results may arrive in batches, because the scheduler does not act on single ones."""
        return self._supports_buffered_results

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Takes the metric and mode of `TuneConfig`.

        Args:
            metric: the result key to optimize.
            mode: "min" or "max".
            spec: further facts about the study, for subclasses.

        Returns:
            False if the scheduler has a metric of its own and another one is given.
        """
        if self._metric and metric:
            return False
        self._metric = metric or self._metric or DEFAULT_METRIC
        return True

    def on_trial_add(self, controller: Controller, trial: Any) -> None:
        """A trial has been created, is retried after an error, or comes back with a restored study."""
        raise NotImplementedError

    def on_trial_error(self, controller: Controller, trial: Any) -> None:
        """A running trial has failed."""
        raise NotImplementedError

    def on_trial_result(self, controller: Controller, trial: Any, result: dict[str, Any]) -> str:
        """A running trial has reported. Returns CONTINUE, PAUSE, STOP or NOOP."""
        raise NotImplementedError

    def on_trial_complete(self, controller: Controller, trial: Any, result: dict[str, Any]) -> None:
        """A running trial has ended by itself or by a stopping criterion. `result` is its last."""
        raise NotImplementedError

    def on_trial_remove(self, controller: Controller, trial: Any) -> None:
        """A paused or pending trial has been ended."""
        raise NotImplementedError

    def choose_trial_to_run(self, controller: Controller) -> Any | None:
        """A pending or paused trial to run next, or None. Asked twice, it answers the same."""
        raise NotImplementedError

    def debug_string(self) -> str:
        """The scheduler's state in a line or a few."""
        raise NotImplementedError

    def save(self, checkpoint_path: str) -> None:
        """Writes the scheduler's state to a file."""
        with open(checkpoint_path, "wb") as file:
            file.write(cloudpickle.dumps(self.__dict__))

    def restore(self, checkpoint_path: str) -> None:
        """Reads what `save` wrote. Trials must then be added again: those known by their id keep their state."""
        with open(checkpoint_path, "rb") as file:
            self.__dict__.update(cloudpickle.loads(file.read()))


class FIFOScheduler(TrialScheduler):
    """Runs trials in the order they come, each to its end. Paused trials run after the pending ones."""

    @property
    def supports_buffered_results(self) -> bool:
        """True unless a subclass looks at results."""
        return self._supports_buffered_results or type(self).on_trial_result is FIFOScheduler.on_trial_result

    def on_trial_add(self, controller: Controller, trial: Any) -> None:
        """Nothing to do: the controller keeps the order."""

    def on_trial_error(self, controller: Controller, trial: Any) -> None:
        """Nothing to do."""

    def on_trial_result(self, controller: Controller, trial: Any, result: dict[str, Any]) -> str:
        """CONTINUE."""
        return TrialScheduler.CONTINUE

    def on_trial_complete(self, controller: Controller, trial: Any, result: dict[str, Any]) -> None:
        """Nothing to do."""

    def on_trial_remove(self, controller: Controller, trial: Any) -> None:
        """Nothing to do."""

    def choose_trial_to_run(self, controller: Controller) -> Any | None:
        """The oldest pending trial, or the one that has been paused longest."""
        pending = controller.next_pending()
        return pending if pending is not None else controller.next_paused()

    def debug_string(self) -> str:
        """The scheduler's name."""
        return "Using FIFO scheduling algorithm."


def missing_key_message(
    scheduler: object, trial: Trial, key: str, role: str, result: Mapping[str, Any]
) -> str:
    """Says that a result lacks a key, and which keys it has."""
    return (
        f"{type(scheduler).__name__} needs the {role} {key!r} in the results of trial {trial.trial_id}, but this one "
        f"has only {sorted(map(str, result))}. Report {key!r} with every result, or pass another {role}."
    )


def as_number(value: object, key: str, trial: Trial) -> float:
    """A result's value as a float. Raises TypeError with the key and the trial if it is not a number."""
    try:
        return float(cast(float, value))
    except (TypeError, ValueError):
        raise TypeError(
            f"Result {key!r} of trial {trial.trial_id} must be a number, not {type(value).__name__}."
        ) from None
