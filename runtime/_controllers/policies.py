"""What a group of actors does about deaths, about too few and too many members. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from .controller import Key


class Standing(msgspec.Struct, frozen=True):
    """How a group stands.

    `idle`: with the time since when each is. `room`: the calls that members can take now. `waiting`: the calls that
    wait for a member. `deaths`: the reasons of those since the last decision; of members that were to end none.
    """

    starting: Sequence[Key]
    idle: Sequence[tuple[Key, float]]
    busy: Sequence[Key]
    draining: int
    room: int
    waiting: int
    deaths: Sequence[str]

    @property
    def size(self) -> int:
        """Without those that drain."""
        return len(self.starting) + len(self.idle) + len(self.busy)

    @property
    def all_keys(self) -> list[Key]:
        """Without those that drain."""
        return [*self.starting, *(key for key, _ in self.idle), *self.busy]


class Plan(msgspec.Struct, frozen=True):
    """`create`: how many. `drain`: these end after their calls. `end`: these at once. `failure`: the group is given up,
    with all its members."""

    create: int = 0
    drain: Sequence[Key] = ()
    end: Sequence[Key] = ()
    failure: str = ""


class Policy(Protocol):
    """Decides for one group. It is asked after each event of the group."""

    def decide(self, standing: Standing, now: float) -> Plan:
        """What to do."""


class _Budget(msgspec.Struct):
    """How many deaths are forgiven; -1: all."""

    left: int

    def take(self, deaths: Sequence[str]) -> str:
        """Why the group is given up; "" if the deaths are forgiven."""
        if self.left < 0:
            return ""
        self.left -= len(deaths)
        if self.left >= 0:
            return ""
        self.left = 0
        return f"a member has died: {deaths[-1]}"


class AllOrNone:
    """All members or none: one death ends the others, and the whole group is created again.

    Args:
        size: of the group.
        failures: how many such deaths are forgiven; -1: all.
    """

    def __init__(self, size: int, failures: int = 0) -> None:
        self._size = size
        self._budget = _Budget(failures)
        self._is_ending = True

    def decide(self, standing: Standing, now: float) -> Plan:
        if standing.deaths:
            failure = self._budget.take(standing.deaths[-1:])  # the others died of the first
            if failure:
                return Plan(failure=failure)
            self._is_ending = True
            if standing.size:
                return Plan(end=standing.all_keys)
        if self._is_ending and not standing.size and not standing.draining:
            self._is_ending = False
            return Plan(create=self._size)
        return Plan()


class OneByOne:
    """A fixed number of members; each that dies is replaced.

    Args: see `AllOrNone`.
    """

    def __init__(self, size: int, failures: int = -1) -> None:
        self._size = size
        self._budget = _Budget(failures)

    def decide(self, standing: Standing, now: float) -> Plan:
        failure = self._budget.take(standing.deaths)
        if failure:
            return Plan(failure=failure)
        missing = self._size - standing.size
        if missing >= 0:
            return Plan(create=missing)
        surplus = [*(key for key, _ in standing.idle), *standing.starting, *standing.busy][:-missing]
        return Plan(drain=surplus)

    def resize(self, size: int) -> None:
        """The group is to have so many members from now on. `Group.adjust` must follow."""
        self._size = size


class Elastic:
    """As many members as there is work for.

    Args:
        least, most: the limits of its size.
        idle_s: after so long an idle member ends; `Group.adjust` must be called now and then.
        failures: how many deaths are forgiven; -1: all.
    """

    def __init__(self, least: int, most: int, idle_s: float, failures: int = -1) -> None:
        self._least = least
        self._most = most
        self._idle_s = idle_s
        self._budget = _Budget(failures)

    def decide(self, standing: Standing, now: float) -> Plan:
        failure = self._budget.take(standing.deaths)
        if failure:
            return Plan(failure=failure)
        wanted = standing.waiting - standing.room - len(standing.starting)
        create = max(self._least - standing.size, min(wanted, self._most - standing.size), 0)
        if create or standing.waiting:
            return Plan(create=create)
        spare = standing.size - self._least
        expired = [key for key, since_s in standing.idle if now - since_s >= self._idle_s]
        return Plan(drain=expired[: max(0, spare)])


class Reused:
    """Members are created when there is work, and kept for later work: at most `most`, of which `kept` may be idle.

    Args: see `AllOrNone`.
    """

    def __init__(self, most: int, kept: int, failures: int = -1) -> None:
        self._most = most
        self._kept = kept
        self._budget = _Budget(failures)

    def decide(self, standing: Standing, now: float) -> Plan:
        failure = self._budget.take(standing.deaths)
        if failure:
            return Plan(failure=failure)
        wanted = standing.waiting - standing.room - len(standing.starting)
        create = max(0, min(wanted, self._most - standing.size))
        surplus = len(standing.idle) - self._kept if not standing.waiting else 0
        oldest = sorted(standing.idle, key=lambda idle: idle[1])
        return Plan(create=create, drain=[key for key, _ in oldest[: max(0, surplus)]])
