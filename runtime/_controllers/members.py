"""Groups of actors, one machine for each member. Pure: a controller that has a group passes the group's events on to it
and returns the effects.

What is done about a death, or about too few or too many members, is a `policies.Policy`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Final

import msgspec

from runtime._core.fsm import Edge, Machine
from runtime.exceptions import ActorDiedError, RayTaskError

from .controller import (
    ActorDied,
    ActorLost,
    ActorUp,
    Begin,
    Call,
    CreateActor,
    CreateGang,
    Done,
    Effect,
    Event,
    Failed,
    Key,
    Kill,
    TimerFired,
    Wait,
)
from .policies import Plan, Policy, Standing


class MemberState(Enum):
    STARTING = "STARTING"
    READY = "READY"
    BUSY = "BUSY"
    DRAINING = "DRAINING"
    DEAD = "DEAD"


class MemberEvent(Enum):
    UP = "constructor returned"
    CALLED = "called"
    IDLE = "last call ended"
    RESTARTS = "process lost, actor restarts"
    DRAIN = "not needed any more"
    DIED = "died"


_S, _R, _B = MemberState.STARTING, MemberState.READY, MemberState.BUSY
_G, _D = MemberState.DRAINING, MemberState.DEAD

TRANSITIONS: Final[Mapping[tuple[MemberState, MemberEvent], Edge[MemberState]]] = {
    (_S, MemberEvent.UP): Edge(_R, "its constructor returned"),
    (_S, MemberEvent.RESTARTS): Edge(_S, "its process ended before that, and the actor restarts"),
    (_S, MemberEvent.DRAIN): Edge(_G, "it is not needed any more"),
    (_S, MemberEvent.DIED): Edge(_D, "it died before it was ready, or was killed"),
    (_R, MemberEvent.CALLED): Edge(_B, "it was called"),
    (_R, MemberEvent.RESTARTS): Edge(_S, "its process ended, and the actor restarts"),
    (_R, MemberEvent.DRAIN): Edge(_G, "it is not needed any more"),
    (_R, MemberEvent.DIED): Edge(_D, "it died, or was killed"),
    (_B, MemberEvent.CALLED): Edge(_B, "it was called once more"),
    (_B, MemberEvent.IDLE): Edge(_R, "its last call ended"),
    (_B, MemberEvent.RESTARTS): Edge(_S, "its process ended, and the actor restarts"),
    (_B, MemberEvent.DRAIN): Edge(_G, "it is not needed after its calls"),
    (_B, MemberEvent.DIED): Edge(_D, "it died, or was killed"),
    (_G, MemberEvent.UP): Edge(_G, "its constructor returned too late"),
    (_G, MemberEvent.IDLE): Edge(_G, "its last call ended, and it is killed"),
    (_G, MemberEvent.RESTARTS): Edge(_G, "its process ended, and it is killed"),
    (_G, MemberEvent.DIED): Edge(_D, "it was killed, or died"),
}

CALLABLE = (MemberState.READY, MemberState.BUSY)


class Member:
    """One actor of a group.

    That its process has ended is told by a call that fails or by the actor, whichever comes first. A call tells it of
    the process that the member had when it was called, so it never hides a later one.

    Attributes:
        calls: the keys of those that have not ended, with the restarts before them.
        restarts: how often its process is known to have been replaced.
        ended: how many of its processes have ended, as calls have told.
    """

    __slots__ = ("calls", "ended", "key", "machine", "node_id", "restarts", "since_s")

    def __init__(self, group: str, key: Key, now: float) -> None:
        self.key = key
        self.machine: Machine[MemberState, MemberEvent] = Machine(
            f"member {key!r} of {group}", MemberState.STARTING, TRANSITIONS
        )
        self.calls: dict[Key, int] = {}
        self.restarts = 0
        self.ended = 0
        self.node_id = ""
        self.since_s = now

    @property
    def state(self) -> MemberState:
        return self.machine.state

    @property
    def is_gone(self) -> bool:
        """Whether its process has ended, and the actor has not told so yet."""
        return self.machine.state in CALLABLE and self.restarts < self.ended

    @property
    def is_callable(self) -> bool:
        """Whether it takes calls."""
        return self.machine.state in CALLABLE and not self.is_gone

    def move(self, event: MemberEvent, now: float) -> None:
        """Takes an edge of the table."""
        before = self.machine.state
        if self.machine.step(event, now) is not before:
            self.since_s = now


class GangSpec(msgspec.Struct, frozen=True):
    """The placement group of members that are created together, with a bundle of these resources for each.

    `selectors`: labels of the nodes, the same for all members, or in a list for the n-th of them.
    """

    bundle: Mapping[str, float]
    strategy: str = "PACK"
    selectors: Mapping[str, str] | Sequence[Mapping[str, str]] = ()


class GroupSpec(msgspec.Struct, frozen=True):
    """What the members of a group are.

    `options_of`: the options of the n-th actor that is created. `most_calls`: of one member at a time. `start_limit_s`:
    after so long the start of a member is `Overdue`. `failed_starts`: after so many members in a row that died before
    they were ready, the group is given up, whatever its policy forgives: the next would fail as well. `gang`: members
    that are created at one time are a gang, for `policies.AllOrNone`.
    """

    name: str
    cls: Any
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = msgspec.field(default_factory=dict)
    options_of: Callable[[int], Mapping[str, Any]] = lambda _number: {}
    most_calls: int = 1
    start_limit_s: float | None = None
    failed_starts: int = 10
    gang: GangSpec | None = None


class Group:
    """The members of one group; their keys are (name, number)."""

    def __init__(self, spec: GroupSpec, policy: Policy) -> None:
        self.spec = spec
        self.members: dict[Key, Member] = {}
        """Those that are not dead."""
        self.failure = ""
        """Why the group is given up; no member is created any more."""
        self._policy = policy
        self._numbers = itertools.count()
        self._owner: dict[Key, Member] = {}  # by call
        self._deaths: list[str] = []  # since the policy was asked last
        self._failed_starts = 0  # in a row

    # ------------------------------------------------------------ what goes in

    def step(self, event: Event, now: float, waiting: int = 0) -> list[Effect]:
        """Takes an event: `Begin` creates the first members, and a timer has the policy look again. Events of other
        actors and calls change nothing.

        Args:
            waiting: how many calls wait for a member, for policies that grow.
        """
        effects: list[Effect] = []
        match event:
            case ActorUp(key, node_id, restarts):
                member = self.members.get(key)
                if member is not None:
                    if member.state in CALLABLE:  # the end and the start of its processes were told as one
                        member.move(MemberEvent.RESTARTS, now)
                    member.node_id, member.restarts = node_id, restarts
                    member.move(MemberEvent.UP, now)
                    self._failed_starts = 0
                    if member.calls and member.state is MemberState.READY:  # they have survived a restart
                        member.move(MemberEvent.CALLED, now)
            case ActorLost(key):
                member = self.members.get(key)
                if member is not None:
                    member.move(MemberEvent.RESTARTS, now)
            case ActorDied(key, reason):
                member = self.members.pop(key, None)
                if member is not None:
                    before = member.state
                    member.move(MemberEvent.DIED, now)
                    self._failed_starts += before is MemberState.STARTING
                    if before is not MemberState.DRAINING:
                        self._deaths.append(reason)
            case Done(key):
                effects += self._ended(key, now)
            case Failed(key, error):
                if isinstance(error, ActorDiedError) and not isinstance(error, RayTaskError):
                    self._process_ended(key)
                effects += self._ended(key, now)
            case Begin() | TimerFired():
                pass
            case _:
                return []
        return [*effects, *self.adjust(waiting, now)]

    def adjust(self, waiting: int, now: float) -> list[Effect]:
        """Has the policy decide, and carries that out."""
        if self.failure:
            return []
        deaths, self._deaths = self._deaths, []
        if deaths and self._failed_starts >= self.spec.failed_starts:
            plan = Plan(
                failure=f"{self._failed_starts} members in a row died before they were ready: {deaths[-1]}"
            )
        else:
            plan = self._policy.decide(self._standing(waiting, deaths), now)
        effects: list[Effect] = []
        for key in [*self.members] if plan.failure else plan.end:
            effects += self.drain(key, now, at_once=True)
        for key in plan.drain:
            effects += self.drain(key, now)
        self.failure = plan.failure
        if not plan.failure:
            effects += self._create(plan.create, now)
        return effects

    def call(
        self, key: Key, method: str, args: Sequence[Any], now: float, member: Key = None, fetch: bool = False
    ) -> list[Effect]:
        """Calls a member: that one, or the one with the fewest calls. Nothing if none has room: `free` tells before."""
        chosen = self.members.get(member) if member is not None else self._least_loaded()
        if chosen is None or not chosen.is_callable:
            return []
        chosen.move(MemberEvent.CALLED, now)
        chosen.calls[key] = chosen.restarts
        self._owner[key] = chosen
        return [Call(key, chosen.key, method, args, fetch=fetch)]

    def drain(self, key: Key, now: float, at_once: bool = False) -> list[Effect]:
        """Ends a member after its calls, or at once."""
        member = self.members.get(key)
        if member is None:
            return []
        if member.state is not MemberState.DRAINING:
            member.move(MemberEvent.DRAIN, now)
        elif not at_once:
            return []
        return [Kill(key)] if at_once or not member.calls else []

    def end(self, now: float) -> list[Effect]:
        """Ends the whole group at once."""
        self.failure = self.failure or "it is not needed any more"
        return [effect for key in [*self.members] for effect in self.drain(key, now, at_once=True)]

    # ------------------------------------------------------------ what comes out

    def in_state(self, *states: MemberState) -> list[Member]:
        """The members in these states."""
        return [member for member in self.members.values() if member.state in states]

    @property
    def free(self) -> int:
        """How many more calls the members take now."""
        able = [member for member in self.members.values() if member.is_callable]
        return sum(self.spec.most_calls - len(member.calls) for member in able)

    def waiting_for(self) -> list[Wait]:
        """Starts, calls and ends of members."""
        name, waits = self.spec.name, []
        for member in self.members.values():
            if member.state is MemberState.STARTING:
                what = f"{name}: actor {member.key!r} starts"
                waits.append(Wait(member.key, what, member.since_s, self.spec.start_limit_s))
            elif member.state is MemberState.DRAINING:
                what = f"{name}: actor {member.key!r} ends, with {len(member.calls)} calls left"
                waits.append(Wait(member.key, what, member.since_s))
            elif member.is_gone:
                what = f"{name}: actor {member.key!r} to be dead or to restart, since a call has failed by its end"
                waits.append(Wait(member.key, what, member.since_s))
            elif member.calls:
                what = f"{name}: actor {member.key!r} has {len(member.calls)} calls"
                waits.append(Wait(member.key, what, member.since_s))
        return waits

    # ------------------------------------------------------------ inside

    def _create(self, count: int, now: float) -> list[CreateActor] | list[CreateGang]:
        spec, actors = self.spec, []
        for number in itertools.islice(self._numbers, count):
            key = (spec.name, number)
            self.members[key] = Member(spec.name, key, now)
            actors.append(CreateActor(key, spec.cls, spec.args, spec.kwargs, spec.options_of(number)))
        if spec.gang is None or not actors:
            return actors
        gang, size = spec.gang, len(actors)
        selectors = [gang.selectors] * size if isinstance(gang.selectors, Mapping) else gang.selectors
        return [CreateGang(actors, [gang.bundle] * size, gang.strategy, selectors)]

    def _ended(self, key: Key, now: float) -> list[Effect]:
        member = self._owner.pop(key, None)
        if member is None:
            return []
        member.calls.pop(key, None)
        if member.calls or member.state is MemberState.DEAD:
            return []
        if member.machine.can(MemberEvent.IDLE):
            member.move(MemberEvent.IDLE, now)
        return [Kill(member.key)] if member.state is MemberState.DRAINING else []

    def _process_ended(self, key: Key) -> None:
        """A call has failed since the process is gone that its member had."""
        member = self._owner.get(key)
        if member is not None:
            member.ended = max(member.ended, member.calls[key] + 1)

    def _least_loaded(self) -> Member | None:
        able = [m for m in self.members.values() if m.is_callable and len(m.calls) < self.spec.most_calls]
        return min(able, key=lambda member: len(member.calls), default=None)

    def _standing(self, waiting: int, deaths: Sequence[str]) -> Standing:
        return Standing(
            starting=tuple(member.key for member in self.in_state(MemberState.STARTING)),
            idle=tuple((member.key, member.since_s) for member in self.in_state(MemberState.READY)),
            busy=tuple(member.key for member in self.in_state(MemberState.BUSY)),
            draining=len(self.in_state(MemberState.DRAINING)),
            room=self.free,
            waiting=waiting,
            deaths=tuple(deaths),
        )
