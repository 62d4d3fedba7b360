"""The interface of stoppers, and the stoppers that are made of others or of bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.train._core.retention import lookup


class Stopper:
    """Decides from results which trials end, and when the study ends. Subclass it for rules of your own."""

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Whether the trial ends with this result."""
        raise NotImplementedError

    def stop_all(self) -> bool:
        """Whether the study ends: running trials are stopped and no new ones start."""
        raise NotImplementedError


class CombinedStopper(Stopper):
    """Ends trials and the study as soon as one of several stoppers would.

    Args:
        stoppers: each is asked in turn, up to the first that says yes.
    """

    def __init__(self, *stoppers: Stopper) -> None:
        self._stoppers = stoppers

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Whether one of them ends the trial."""
        return any(stopper(trial_id, result) for stopper in self._stoppers)

    def stop_all(self) -> bool:
        """Whether one of them ends the study."""
        return any(stopper.stop_all() for stopper in self._stoppers)


class DictionaryStopper(Stopper):
    """Ends a trial once one of its results reaches its bound: what `stop={"training_iteration": 10}` means.

    Args:
        criteria: smallest value that ends a trial, by result key. Nested keys are joined with "/".

    Raises:
        ValueError: a bound is a dict.
    """

    def __init__(self, criteria: Mapping[str, Any]) -> None:
        for key, bound in criteria.items():
            if isinstance(bound, Mapping):
                nested = ", ".join(repr(f"{key}/{name}") for name in bound)
                raise ValueError(
                    f"stop[{key!r}] must be a number, not a dict: write nested keys as {nested}."
                )
        self._criteria = dict(criteria)

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Whether a bound is reached. Raises ValueError if the result lacks one of the keys."""
        for key, bound in self._criteria.items():
            value = lookup(result, key)
            if value is None:
                raise ValueError(
                    f"stop has the key {key!r}, but a result of trial {trial_id} has only "
                    f"{sorted(map(str, result))}. Report {key!r} with every result, or leave it out of stop."
                )
            if value >= bound:
                return True
        return False

    def stop_all(self) -> bool:
        """False."""
        return False
