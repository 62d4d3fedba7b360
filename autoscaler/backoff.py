"""When to try again: later each time, bounded, and spread out so that not all come back at once. Pure: time
and randomness are given."""

from __future__ import annotations

import random

SPREAD = 0.25
"""A pause is up to so much longer than it must be."""
THROTTLE_BASE_S = 2.0
THROTTLE_MOST_S = 120.0


def spread(pause_s: float, rng: random.Random | None) -> float:
    """At least `pause_s`, and a random part of it more; without `rng` exactly that."""
    return pause_s if rng is None else pause_s * (1.0 + rng.uniform(0.0, SPREAD))


def doubled(base_s: float, times: int, most_s: float) -> float:
    """`base_s` the first time, twice as much every further time."""
    return min(most_s, base_s * 2.0 ** min(max(0, times - 1), 32))


class Throttle:
    """The pause that a platform asked for. One call that is told to slow down slows all of them: the account
    has one budget, and calls made meanwhile only use it up.

    Attributes:
        until_s: no call is made before.
        why: what the platform said.
    """

    def __init__(self) -> None:
        self.until_s = 0.0
        self.why = ""
        self._times = 0

    def slow_down(self, retry_after_s: float, why: str, now: float, rng: random.Random | None) -> None:
        """The platform refused a call because there were too many."""
        if now >= self.until_s:
            self._times += 1  # those refused during one pause count once
        pause_s = max(retry_after_s, doubled(THROTTLE_BASE_S, self._times, THROTTLE_MOST_S))
        self.until_s = max(self.until_s, now + spread(pause_s, rng))
        self.why = why

    def went_well(self, began_s: float) -> None:
        """A call that began at `began_s` was answered: if that was after the pause, the past is forgiven."""
        if began_s >= self.until_s:
            self._times = 0

    def is_on(self, now: float) -> bool:
        return now < self.until_s
