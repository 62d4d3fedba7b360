"""What is done when workers of a run fail. Pure."""

from __future__ import annotations

from enum import Enum


class Decision(Enum):
    WARM = "the survivors go on from the last checkpoint in their processes"
    COLD = "all workers are started anew"
    GIVE_UP = "the run ends with an error"


class FailurePolicy:
    """Counts the failures of a run.

    Args:
        max_failures: how many are forgiven; -1: all.
        failures: those of the run so far, which a restarted controller has read.
        max_preemptions: how many failures of machines that are taken away are no failures; -1: all.
    """

    def __init__(self, max_failures: int, failures: int = 0, max_preemptions: int = -1) -> None:
        self.failures = failures
        self._max_failures = max_failures
        self._max_preemptions = max_preemptions
        self._preemptions = 0

    def preempted(self) -> Decision:
        """Counts a failure that was announced: its machine is taken away."""
        self._preemptions += 1
        return Decision.GIVE_UP if 0 <= self._max_preemptions < self._preemptions else Decision.WARM

    def failed(self, has_joined: bool, has_progressed: bool) -> Decision:
        """Counts a failure.

        Args:
            has_joined: all ranks were connected. A group that is not complete leaves traces in its processes.
            has_progressed: the attempt has completed a report before it failed.
        """
        self.failures += 1
        if 0 <= self._max_failures < self.failures:
            return Decision.GIVE_UP
        # What makes a process fail again at once may be in the process.
        is_warm = has_joined and (has_progressed or self.failures == 1)
        return Decision.WARM if is_warm else Decision.COLD
