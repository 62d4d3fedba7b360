"""How many workers of a node may run tasks of one scheduling class, those included that wait in `get`. Pure.

A task that waits lends its CPUs, so CPUs alone do not bound the workers: each new task could wait as well. So a class
gets as many workers as the node has CPUs for it, and one more whenever CPUs have been free for it, though it was held
back, for a delay that grows with each. The delay cannot be infinite, for the tasks that run may wait for the one that
is held back.

Tasks that a task starts are a class of their own, by their depth: what a waiting task waits for is never held back by
its equals.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

FIRST_DELAY_S = 1.0
LONGEST_DELAY_S = 10.0
_MOMENT_S = 0.001
"""Less is not worth a timer, and may be no more than the rounding of the times."""
_NO_LIMIT = 1 << 60


class SchedulingClass(NamedTuple):
    """Tasks that count together.

    Attributes:
        origin: the job, or the actor, that started the first task of the chain.
        depth: how many tasks follow each other from there to these.
        key: their function, resources and options.
    """

    origin: bytes
    depth: int
    key: bytes


class _Clock(msgspec.Struct):
    """How long a class was held back while there was room for it."""

    spent_s: float = 0.0
    since_s: float | None = None  # unless it stands still

    def elapsed(self, now: float) -> float:
        return self.spent_s + (0.0 if self.since_s is None else now - self.since_s)


class WorkerCap:
    """The leases of one node by class.

    Args:
        total: the node's resources, live.
    """

    def __init__(self, total: Mapping[str, int]) -> None:
        self._total = total
        self._counts: dict[SchedulingClass, int] = {}
        self._clocks: dict[SchedulingClass, _Clock] = {}

    @property
    def holds_any(self) -> bool:
        """Whether a class is, or was lately, held back."""
        return bool(self._clocks)

    def take(self, which: SchedulingClass) -> None:
        """A worker is given to the class. The next one above the limit has the whole delay before it."""
        self._counts[which] = self._counts.get(which, 0) + 1
        self._clocks.pop(which, None)

    def release(self, which: SchedulingClass) -> None:
        """A lease of the class is over."""
        count = self._counts[which] - 1
        if count:
            self._counts[which] = count
        else:
            del self._counts[which]
            self._clocks.pop(which, None)

    def left_s(self, which: SchedulingClass, request: Mapping[str, int], now: float) -> float:
        """How long the class must still be held back; 0 when it may have a worker."""
        count = self._counts.get(which)
        if count is None:
            return 0.0
        excess = count - self._limit(request)
        if excess < 0:
            return 0.0
        delay_s = min(FIRST_DELAY_S * 2.0 ** min(excess, 30), LONGEST_DELAY_S)
        clock = self._clocks.get(which)
        left_s = delay_s - (clock.elapsed(now) if clock is not None else 0.0)
        return left_s if left_s > _MOMENT_S else 0.0

    def hold(self, which: SchedulingClass, now: float) -> None:
        """There is room for the class, and it is held back: its time runs."""
        clock = self._clocks.setdefault(which, _Clock())
        if clock.since_s is None:
            clock.since_s = now

    def pause(self, which: SchedulingClass, now: float) -> None:
        """There is no room for the class anyway: its time stands still."""
        clock = self._clocks.get(which)
        if clock is not None and clock.since_s is not None:
            clock.spent_s = clock.elapsed(now)
            clock.since_s = None

    def _limit(self, request: Mapping[str, int]) -> int:
        """How many of these the node has CPUs for. Tasks without CPUs are not limited, as in Ray."""
        limits = [self._total.get(name, 0) // amount for name, amount in request.items() if is_lent(name)]
        return max(1, min(limits, default=_NO_LIMIT))


def is_lent(name: str) -> bool:
    """Whether tasks lend this resource while they wait."""
    return name == "CPU" or name.startswith("CPU_group_")
