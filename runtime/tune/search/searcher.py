"""The base of search algorithms, which users may subclass."""

from __future__ import annotations

import glob
import inspect
import logging
import os
import uuid
from collections.abc import Callable
from typing import Any

logger = logging.getLogger(__name__)


class Searcher:
    """Suggests configurations and learns from their results.

    Override `suggest` and `on_trial_complete`; `save` and `restore` too if there is state that matters to you.
    An experiment that is restored repeats the calls it made, see `replay`.

    Args:
        metric: The name of the value to optimize in results, or several.
        mode: "min" or "max", or one per metric; in lists also "obs" for metrics that are only observed.

    Raises:
        ValueError: The mode is none of these, or there are not as many modes as metrics.
    """

    FINISHED = "FINISHED"
    CKPT_FILE_TMPL = "searcher-state-{}.pkl"

    def __init__(self, metric: str | list[str] | None = None, mode: str | list[str] | None = None) -> None:
        self._metric = metric
        self._mode = mode
        if metric and mode:
            _check_metric_and_mode(metric, mode)

    @property
    def metric(self) -> Any:
        """The metric to optimize, or several."""
        return self._metric

    @property
    def mode(self) -> Any:
        """Whether to minimize or maximize it, or one of these per metric."""
        return self._mode

    def set_search_properties(
        self,
        metric: str | list[str] | None,
        mode: str | list[str] | None,
        config: dict[str, Any],
        **spec: Any,
    ) -> bool:
        """Sets metric, mode and search space, if the searcher has none of its own.

        Args:
            metric: As for the constructor; None leaves it as it is.
            mode: As for the constructor; None leaves it as it is.
            config: The `param_space` of the tuner.
            **spec: More about the experiment.

        Returns:
            Whether they were taken.
        """
        return False

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Returns a configuration for this trial, None to be asked again later, or FINISHED if there are no more."""
        raise NotImplementedError(f"{type(self).__name__} must define suggest(trial_id)")

    def replay(self, trial_id: str, config: dict[str, Any]) -> None:
        """Repeats a `suggest` of an experiment that is being restored.

        By default `suggest` is called and what it says is ignored. Override this if suggestions are expensive, or
        if the searcher must know that the trial has `config`, which it suggested then.
        """
        self.suggest(trial_id)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Called with each result of a running trial; it may lack the metric or have NaN as its value."""

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Called once per trial at its end.

        Args:
            trial_id: The trial's id, as it was given to `suggest`.
            result: The last result; None if there is none or the trial failed.
            error: Whether the trial failed.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define on_trial_complete(trial_id, result, error)"
        )

    def add_evaluated_point(
        self,
        parameters: dict[str, Any],
        value: Any,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: list[float] | None = None,
    ) -> None:
        """Adds a result that was obtained elsewhere.

        Args:
            parameters: The configuration.
            value: The metric's value.
            error: Whether the evaluation failed.
            pruned: Whether it was stopped early.
            intermediate_values: The metric's values before the last.

        Raises:
            NotImplementedError: The search algorithm cannot take such results.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot take results that were obtained elsewhere")

    def add_evaluated_trials(self, trials_or_analysis: Any, metric: str) -> None:
        """Adds results of trials, of an earlier experiment for instance.

        Trials that have no value of the metric are left out. A trial that was stopped early counts as pruned.

        Args:
            trials_or_analysis: A trial, a list of them or an ExperimentAnalysis.
            metric: The name of the value in the trials' last results.

        Raises:
            NotImplementedError: The search algorithm cannot take such results.
            TypeError: `trials_or_analysis` is something else.
        """
        if type(self).add_evaluated_point is Searcher.add_evaluated_point:
            raise NotImplementedError(
                f"{type(self).__name__} cannot take results that were obtained elsewhere"
            )
        if isinstance(trials_or_analysis, (list, tuple)):
            trials = list(trials_or_analysis)
        elif hasattr(trials_or_analysis, "trials"):
            trials = list(trials_or_analysis.trials)
        elif hasattr(trials_or_analysis, "last_result"):
            trials = [trials_or_analysis]
        else:
            raise TypeError(
                f"Expected a trial, a list of trials or an ExperimentAnalysis, got {trials_or_analysis!r}"
            )
        any_done = False
        for trial in trials:
            last_result = trial.last_result or {}
            if metric not in last_result:
                continue
            terminated = trial.status == "TERMINATED"
            done = bool(terminated and last_result.get("done"))
            any_done = any_done or done
            self.add_evaluated_point(
                parameters=trial.config,
                value=last_result[metric],
                error=trial.status == "ERROR",
                pruned=terminated and not done,
            )
        if not any_done:
            logger.warning(
                "None of %d trials completed with the metric '%s': is the name right?", len(trials), metric
            )

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Called by ConcurrencyLimiter. Return True if the searcher limits concurrent trials itself."""
        return False

    def save(self, checkpoint_path: str) -> None:
        """Writes the searcher's state to a file."""
        raise NotImplementedError(f"{type(self).__name__} does not define save(checkpoint_path)")

    def restore(self, checkpoint_path: str) -> None:
        """Reads the searcher's state from a file that `save` wrote."""
        raise NotImplementedError(f"{type(self).__name__} does not define restore(checkpoint_path)")

    def get_state(self) -> dict[str, Any]:
        """Returns the state of a searcher that wraps another, without the other's."""
        raise NotImplementedError(f"{type(self).__name__} does not define get_state()")

    def set_state(self, state: dict[str, Any]) -> None:
        """Sets what `get_state` returned."""
        raise NotImplementedError(f"{type(self).__name__} does not define set_state(state)")

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Writes the state to a file of the directory, atomically. Does nothing if the searcher has no `save`."""
        name = self.CKPT_FILE_TMPL.format(session_str)
        temporary = os.path.join(checkpoint_dir, f".{uuid.uuid4().hex}-{name}")
        try:
            self.save(temporary)
        except NotImplementedError:
            logger.warning(
                "%s has no save(): its state is not written to %s", type(self).__name__, checkpoint_dir
            )
            return
        os.replace(temporary, os.path.join(checkpoint_dir, name))

    def restore_from_dir(self, checkpoint_dir: str) -> None:
        """Reads the newest state that `save_to_dir` wrote to the directory.

        Raises:
            FileNotFoundError: There is none.
        """
        pattern = os.path.join(glob.escape(checkpoint_dir), self.CKPT_FILE_TMPL.format("*"))
        found = glob.glob(pattern)
        if not found:
            raise FileNotFoundError(f"No state of a searcher in {checkpoint_dir}: there is no {pattern}")
        self.restore(max(found, key=os.path.getmtime))


def _check_metric_and_mode(metric: str | list[str], mode: str | list[str]) -> None:
    if isinstance(mode, str) and isinstance(metric, str):
        if mode not in ("min", "max"):
            raise ValueError(f"`mode` must be 'min' or 'max', got {mode!r}")
    elif isinstance(mode, (list, tuple)) and isinstance(metric, (list, tuple)):
        if len(mode) != len(metric):
            raise ValueError(f"There must be one mode per metric, got {list(mode)} for {list(metric)}")
        if not set(mode) <= {"min", "max", "obs"}:
            raise ValueError(f"Each `mode` must be 'min', 'max' or 'obs', got {list(mode)}")
    else:
        raise ValueError(
            f"`metric` and `mode` must both be strings or both be lists, got {metric!r} and {mode!r}"
        )


def pass_search_properties(
    searcher: Searcher,
    metric: str | list[str] | None,
    mode: str | list[str] | None,
    config: dict[str, Any],
    spec: dict[str, Any],
) -> bool:
    """Calls a searcher's `set_search_properties`, which may have been written without `**spec`."""
    method: Callable[..., bool] = searcher.set_search_properties
    try:
        inspect.signature(method).bind(metric, mode, config, **spec)
    except TypeError:
        return method(metric, mode, config)
    return method(metric, mode, config, **spec)
