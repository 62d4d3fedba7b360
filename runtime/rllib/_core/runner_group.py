"""Which environment runners are up, and who samples how much. Pure: the group of actors carries it out.

A runner that dies is replaced at once, while the others go on. A round is one request for so many steps or episodes. It
is shared out evenly, and shared out again when a runner dies or is much slower than the others. What a slow runner
gives after the round is over counts for the next one.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Collection, Mapping
from enum import Enum
from typing import Final

from runtime._core.fsm import Edge, Machine

SLOW_FACTOR: Final = 3.0
"""A runner is slow when it takes so many times as long per step as others have taken, or all in rounds before."""
SLOW_GRACE_S: Final = 0.25
"""And so many seconds longer."""
SAMPLING_SHARE: Final = 0.9
"""The part of the time to the timeout in which runners sample."""
FAILED_STARTS: Final = 3
"""After so many starts in a row that failed, a runner is given up: the next would fail as well."""


FAILED_CALLS: Final = 3
"""The same for runners that come up, but raise an error each time they sample."""


class RunnerState(Enum):
    STARTING = "STARTING"
    READY = "READY"
    LOST = "LOST"
    REMOVED = "REMOVED"


class RunnerEvent(Enum):
    UP = "its constructor returned"
    DIED = "its process ended"
    REPLACED = "a new actor was created"
    GIVEN_UP = "it is not replaced"


_S, _R, _L, _X = RunnerState.STARTING, RunnerState.READY, RunnerState.LOST, RunnerState.REMOVED

TRANSITIONS: Final[Mapping[tuple[RunnerState, RunnerEvent], Edge[RunnerState]]] = {
    (_S, RunnerEvent.UP): Edge(_R, "its constructor returned"),
    (_S, RunnerEvent.DIED): Edge(_L, "it died before it was up"),
    (_S, RunnerEvent.GIVEN_UP): Edge(_X, "it is not needed any more"),
    (_R, RunnerEvent.DIED): Edge(_L, "it died, or failed and was killed"),
    (_R, RunnerEvent.GIVEN_UP): Edge(_X, "it is not needed any more"),
    (_L, RunnerEvent.REPLACED): Edge(_S, "a new actor takes its place"),
    (_L, RunnerEvent.GIVEN_UP): Edge(_X, "it was restarted too often, or is not to be"),
}


class Verdict(Enum):
    """What to do about a death."""

    NOTHING = "the runner was replaced before"
    REPLACE = "create a new actor"
    DROP = "go on without it"
    FAIL = "the group has failed"


@dataclasses.dataclass(slots=True)
class Runner:
    """One place in the group, and the actor that has it.

    Attributes:
        attempt: how many actors had the place before. Calls carry it, so that an old one tells nothing of a new actor.
        failed_starts: in a row.
        failed_calls: in a row, of all actors that had the place.
    """

    number: int
    machine: Machine[RunnerState, RunnerEvent]
    attempt: int = 0
    failed_starts: int = 0
    failed_calls: int = 0
    was_up: bool = False

    @property
    def state(self) -> RunnerState:
        return self.machine.state


class Runners:
    """The runners 1 to n."""

    def __init__(self, *, restart: bool, ignore_failures: bool, most_restarts: int) -> None:
        """
        Args:
            restart: whether runners that died are replaced.
            ignore_failures: whether the group goes on without those that are not.
            most_restarts: of all runners together.
        """
        self.members: dict[int, Runner] = {}
        self.restarts = 0
        self.removed = 0
        self._restart, self._ignore, self._most_restarts = restart, ignore_failures, most_restarts
        self._next = 1

    def add(self, count: int) -> list[int]:
        """Places for more runners: their numbers. An actor is to be created for each."""
        numbers = [*range(self._next, self._next + count)]
        self._next += count
        for number in numbers:
            machine: Machine[RunnerState, RunnerEvent] = Machine(
                f"environment runner {number}", RunnerState.STARTING, TRANSITIONS
            )
            self.members[number] = Runner(number, machine)
        return numbers

    def remove(self, number: int, now: float) -> None:
        """The runner is not needed any more."""
        runner = self.members[number]
        if runner.state in (RunnerState.STARTING, RunnerState.READY):
            runner.machine.step(RunnerEvent.GIVEN_UP, now)

    def up(self, number: int, attempt: int, now: float) -> bool:
        """An actor's constructor has returned. False if the actor is not the runner's any more."""
        runner = self.members[number]
        if attempt != runner.attempt or runner.state is not RunnerState.STARTING:
            return False
        runner.machine.step(RunnerEvent.UP, now)
        runner.failed_starts, runner.was_up = 0, True
        return True

    def worked(self, number: int) -> None:
        """The runner has sampled."""
        self.members[number].failed_calls = 0

    def died(self, number: int, attempt: int, now: float, *, by_error: bool = False) -> Verdict:
        """An actor has died. After `REPLACE`, one with the next attempt is to be created.

        Args:
            by_error: whether it raised an error when it sampled, and was killed.
        """
        runner = self.members[number]
        if attempt != runner.attempt or runner.state not in (RunnerState.STARTING, RunnerState.READY):
            return Verdict.NOTHING
        if runner.state is RunnerState.STARTING:
            runner.failed_starts += 1
        runner.failed_calls += by_error
        runner.machine.step(RunnerEvent.DIED, now)
        # A runner that was never up would most likely fail again: an environment that cannot be made.
        hopeless = (
            not runner.was_up or runner.failed_starts >= FAILED_STARTS or runner.failed_calls >= FAILED_CALLS
        )
        if self._restart and not hopeless and self.restarts < self._most_restarts:
            runner.machine.step(RunnerEvent.REPLACED, now)
            runner.attempt += 1
            self.restarts += 1
            return Verdict.REPLACE
        runner.machine.step(RunnerEvent.GIVEN_UP, now)
        self.removed += 1
        return Verdict.DROP if self._ignore and self.some_left() else Verdict.FAIL

    def some_left(self) -> bool:
        """Whether a runner is up or starts."""
        return any(runner.state is not RunnerState.REMOVED for runner in self.members.values())

    def in_state(self, state: RunnerState) -> list[int]:
        """The numbers of the runners in this state."""
        return [number for number, runner in self.members.items() if runner.state is state]

    @property
    def ready(self) -> list[int]:
        return self.in_state(RunnerState.READY)


class Round:
    """One request for steps, or for episodes: the unit does not matter here."""

    def __init__(self, wanted: int, now: float, timeout_s: float | None, pace: float | None = None) -> None:
        """
        Args:
            wanted: steps, or episodes.
            timeout_s: when to end with what there is.
            pace: what runners took in rounds before, in seconds per step or episode.
        """
        self.missing = wanted
        self._pace = pace
        self._deadline = None if timeout_s is None else now + timeout_s
        self._running: dict[int, tuple[int, float]] = {}  # amount and start, by runner
        self._paces: list[float] = []  # seconds per unit

    def calls(self, free: Collection[int], now: float) -> list[tuple[int, int]]:
        """Runners to call, and how much each is to sample.

        Args:
            free: runners that are up and not called.
        """
        promised = sum(
            amount for number, (amount, _) in self._running.items() if not self._is_slow(number, now)
        )
        rest = self.missing - promised
        if rest <= 0 or not free:
            return []
        share = -(-rest // len(free))
        given = []
        for number in sorted(free):
            amount = min(share, rest)
            if amount <= 0:
                break
            rest -= amount
            self._running[number] = (amount, now)
            given.append((number, amount))
        return given

    def took(self, number: int, amount: int, now: float) -> None:
        """A runner gave this much; also one that was called before the round."""
        self.missing -= amount
        asked = self._running.pop(number, None)
        if asked is not None and amount > 0:
            self._paces.append((now - asked[1]) / amount)

    def lost(self, number: int) -> None:
        """A runner will give nothing: its share is open again."""
        self._running.pop(number, None)

    @property
    def pace(self) -> float | None:
        """Seconds per step or episode that runners take, in this round or before; None if that is not known."""
        return statistics.median(self._paces) if self._paces else self._pace

    def is_over(self, now: float) -> bool:
        """Whether there is enough, or the time is up."""
        return self.missing <= 0 or (self._deadline is not None and now >= self._deadline)

    def time_to_sample(self, now: float) -> float | None:
        """Seconds after which a runner is to return what it has, so that it arrives before the timeout; None: never."""
        return None if self._deadline is None else max(0.0, self._deadline - now) * SAMPLING_SHARE

    def look_in(self, now: float) -> float | None:
        """Seconds until there is something to decide though nothing happens: a runner is slow, or the time is up."""
        times = [] if self._deadline is None else [self._deadline]
        if self.pace is not None:
            times += [self._slow_at(number) for number in self._running if not self._is_slow(number, now)]
        return max(0.0, min(times) - now) if times else None

    def _is_slow(self, number: int, now: float) -> bool:
        return self.pace is not None and now >= self._slow_at(number)

    def _slow_at(self, number: int) -> float:
        amount, began = self._running[number]
        return began + SLOW_FACTOR * amount * (self.pace or 0.0) + SLOW_GRACE_S
