"""The stopper that stops nothing."""

from __future__ import annotations

from typing import Any

from .stopper import Stopper


class NoopStopper(Stopper):
    """Stops nothing."""

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """False."""
        return False

    def stop_all(self) -> bool:
        """False."""
        return False
