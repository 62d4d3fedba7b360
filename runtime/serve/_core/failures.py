"""How replicas of a deployment have failed: when it is given up, and when the next one is started. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable

from runtime.serve._core.replica import Replica
from runtime.serve._core.rollout import retry_delay_s

EARLY_S = 2.0
"""A replica that dies this soon after it was ready may do so again and again."""


class Failures:
    """Of one version of a deployment.

    Attributes:
        starts: how many starts failed before all replicas ran.
        retry_s: no replica is started before that time.
    """

    def __init__(self) -> None:
        self.starts = 0
        self.retry_s = 0.0
        self._streak = 0  # starts in a row that failed
        self._deaths = 0  # early deaths in a row
        self._died_s = -math.inf  # the last of them

    def started(self) -> None:
        """A start was successful."""
        self._streak = 0

    def start_failed(self, now: float, wanted: int) -> float:
        """A start failed. Returns how long the next one is to wait, in seconds."""
        self._streak += 1
        return self._delay(self._streak, now, wanted)

    def died(self, replica: Replica, others: Iterable[Replica], now: float, wanted: int) -> float:
        """A replica died that was ready. It is replaced at once, unless more than `wanted` did so in a row within
        EARLY_S: none of those that were ready since the first of them has lived for longer.

        Args:
            others: the replicas that serve.

        Returns:
            How long the next start is to wait, in seconds.
        """
        survived = any(self._died_s < each.ready_s <= now - EARLY_S for each in others)
        is_early = now - replica.ready_s < EARLY_S
        self._deaths = is_early + (self._deaths if is_early and not survived else 0)
        if not is_early:
            return 0.0
        self._died_s = now
        return self._delay(self._deaths, now, wanted) if self._deaths > max(1, wanted) else 0.0

    def _delay(self, count: int, now: float, wanted: int) -> float:
        delay_s = retry_delay_s(count, wanted)
        self.retry_s = now + delay_s
        return delay_s
