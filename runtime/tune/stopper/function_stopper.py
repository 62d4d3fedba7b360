"""A function as a stopper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .stopper import Stopper


class FunctionStopper(Stopper):
    """Ends the trials that a function says are to end.

    Args:
        function: called as `function(trial_id, result)` with each result; returns whether the trial ends.
    """

    def __init__(self, function: Callable[[str, dict[str, Any]], bool]) -> None:
        self._fn = function

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """What the function says."""
        return self._fn(trial_id, result)

    def stop_all(self) -> bool:
        """False."""
        return False

    @classmethod
    def is_valid_function(cls, fn: object) -> bool:
        """Whether an object can be wrapped: it can be called and is not a stopper.

        Raises:
            ValueError: it has `stop_all`, but is not a subclass of `Stopper`.
        """
        if not callable(fn) or isinstance(fn, Stopper):
            return False
        if hasattr(fn, "stop_all"):
            raise ValueError(
                f"{type(fn).__name__} has stop_all: make it a subclass of tune.Stopper to pass it as stop."
            )
        return True
