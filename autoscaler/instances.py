"""The life of an instance: a machine the autoscaler tracks, from the wish for it to the proof that it is
gone."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from autoscaler.config import Cause, Deadlines
from autoscaler.provider import Offer
from runtime._core.fsm import Edge, InvalidTransition, Transitions

KEEP_HAPPENINGS = 50
HISTORY = 12
"""Lines of its record that an instance keeps: the first one, why it was wanted, and the last ones."""


class InstanceState(Enum):
    """Where an instance stands."""

    QUEUED = "QUEUED"  # wanted; nothing asked of the platform yet
    REQUESTED = "REQUESTED"  # the platform was asked; whether a machine exists is open
    ALLOCATED = "ALLOCATED"  # a machine exists and boots
    SETTING_UP = "SETTING_UP"  # the machine runs; its node has not joined yet
    RUNNING = "RUNNING"  # its node has joined
    DRAINING = "DRAINING"  # its node takes no new work
    TERMINATING = "TERMINATING"  # the platform is asked to end the machine
    TERMINATED = "TERMINATED"  # the platform lists it no more
    FAILED = "FAILED"  # the platform made no machine
    CANCELLED = "CANCELLED"  # not wanted any more before anything was asked

    # Each member is one object. Enum's own hash is of the name, in Python, and sets of states are asked often.
    __hash__ = object.__hash__


_S = InstanceState
INITIAL = _S.QUEUED

TRANSITIONS: Transitions[InstanceState, InstanceState] = {
    (_S.QUEUED, _S.REQUESTED): Edge(_S.REQUESTED, "create is called"),
    (_S.QUEUED, _S.CANCELLED): Edge(_S.CANCELLED, "not wanted any more, or not asked for by the deadline"),
    (_S.REQUESTED, _S.ALLOCATED): Edge(_S.ALLOCATED, "the platform made the machine"),
    (_S.REQUESTED, _S.FAILED): Edge(_S.FAILED, "refused, or no machine by the deadline"),
    (_S.REQUESTED, _S.TERMINATING): Edge(_S.TERMINATING, "the machine is stopped before it was of use"),
    (_S.ALLOCATED, _S.SETTING_UP): Edge(_S.SETTING_UP, "the machine runs"),
    (_S.ALLOCATED, _S.TERMINATING): Edge(_S.TERMINATING, "surplus, stopped, or not running by the deadline"),
    (_S.ALLOCATED, _S.TERMINATED): Edge(_S.TERMINATED, "the platform lists it no more"),
    (_S.SETTING_UP, _S.RUNNING): Edge(_S.RUNNING, "its node has joined"),
    (_S.SETTING_UP, _S.TERMINATING): Edge(
        _S.TERMINATING, "setup failed, surplus, or not joined by the deadline"
    ),
    (_S.SETTING_UP, _S.TERMINATED): Edge(_S.TERMINATED, "the platform lists it no more"),
    (_S.RUNNING, _S.DRAINING): Edge(_S.DRAINING, "idle, surplus, outdated, or its work fits elsewhere"),
    (_S.RUNNING, _S.TERMINATING): Edge(_S.TERMINATING, "its node died or its machine stopped"),
    (_S.RUNNING, _S.TERMINATED): Edge(_S.TERMINATED, "the platform lists it no more"),
    (_S.DRAINING, _S.RUNNING): Edge(_S.RUNNING, "work arrived: the drain was refused or called off"),
    (_S.DRAINING, _S.TERMINATING): Edge(_S.TERMINATING, "drained, died, or the deadline passed"),
    (_S.DRAINING, _S.TERMINATED): Edge(_S.TERMINATED, "the platform lists it no more"),
    (_S.TERMINATING, _S.TERMINATED): Edge(_S.TERMINATED, "the platform lists it no more"),
}
"""Every allowed change, with why it happens. An instance may also be adopted: tracked from RUNNING (its node
is known) or TERMINATING (nobody knows it) on."""

TERMINAL = frozenset({_S.TERMINATED, _S.FAILED, _S.CANCELLED})
IN_FLIGHT = frozenset({_S.QUEUED, _S.REQUESTED, _S.ALLOCATED, _S.SETTING_UP})
"""Will be capacity if all goes well."""
ACTIVE = IN_FLIGHT | {_S.RUNNING}
"""Counts towards min_workers."""
COUNTED = ACTIVE | {_S.DRAINING}
"""Counts towards max_workers, but for what is given up (`Instance.is_counted`)."""


@dataclass(frozen=True, slots=True)
class Step:
    """One line of an instance's record: from when on it was in a state, and why. A state that lasts has a
    line more for whatever happened in it: a call that failed and is made again."""

    at_s: float
    state: InstanceState
    why: str

    def __str__(self) -> str:
        return f"{self.at_s:.3f} {self.state.name}: {self.why}"


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance. Changed only by `InstanceTable`.

    Attributes:
        since_s: unix time when it entered its state.
        token: shared by the instances of one `create` call.
        allocated_s: when its machine was first seen; 0 before.
        joined_s: when its node first joined; 0 before.
        absent_since_s: start of the first listing without the machine; 0 while listed.
        unjoined_since_s: since when its node is missing from the cluster's view; 0 while known.
        asked_s: when this state's effect (create, drain, terminate) was last asked for; 0 when not yet.
        not_before_s: the effect is not repeated before.
        expires_s: a deadline for the present state other than the usual one; 0: the usual one.
        settled: the state's effect succeeded: setup ended well, the drain was accepted.
        cause: why it is, or was last, drained.
        recalled: its drain was called off, and its node has not been told so yet.
        adopted: it was found, not launched by us as far as we know.
        lasted: its node lived for so long that it counts as sound.
        reason: why it is in its state.
        failure: set when it ended for a fault: what the operator should read.
        step: the setup step that failed.
        setup_log: where the log of its setup is; "" until that begins.
        history: how it came here, oldest first.
    """

    id: str
    node_type: str
    state: InstanceState
    since_s: float
    token: str = ""
    offer: Offer = field(default_factory=Offer)
    config_hash: str = ""
    machine_id: str = ""
    address: str = ""
    node_id: bytes = b""
    allocated_s: float = 0.0
    joined_s: float = 0.0
    absent_since_s: float = 0.0
    unjoined_since_s: float = 0.0
    asked_s: float = 0.0
    not_before_s: float = 0.0
    expires_s: float = 0.0
    settled: bool = False
    cause: Cause = Cause.IDLE
    recalled: bool = False
    adopted: bool = False
    lasted: bool = False
    reason: str = ""
    failure: str = ""
    step: str = ""
    setup_log: str = ""
    history: tuple[Step, ...] = ()

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL

    @property
    def is_counted(self) -> bool:
        """Whether it counts towards max_workers. What terminates or was given up must never block its own
        replacement."""
        is_given_up = self.state is _S.DRAINING and self.cause is Cause.UNWANTED
        return self.state in COUNTED and not is_given_up

    @property
    def only_if_idle(self) -> bool:
        """Whether its drain is refused when the node is busy."""
        return only_if_idle(self.cause)


def only_if_idle(cause: Cause) -> bool:
    """Whether nodes that got work meanwhile are spared."""
    return cause in (Cause.IDLE, Cause.OUTDATED)


@dataclass(frozen=True, slots=True)
class Transition:
    """One step of one instance; fields that are None stay as they are."""

    instance_id: str
    target: InstanceState
    reason: str
    machine_id: str | None = None
    address: str | None = None
    node_id: bytes | None = None
    failure: str | None = None
    step: str | None = None
    cause: Cause | None = None
    recalled: bool = False


def deadline_of(instance: Instance, deadlines: Deadlines) -> float | None:
    """Unix time by which the instance should have left its state; None: it may stay."""
    allowed: Mapping[InstanceState, float] = {
        _S.QUEUED: deadlines.queued_s,
        _S.REQUESTED: deadlines.requested_s,
        _S.ALLOCATED: deadlines.allocated_s,
        _S.SETTING_UP: deadlines.setting_up_s,
        _S.DRAINING: deadlines.draining_s,
        _S.TERMINATING: deadlines.terminating_s,
    }
    if instance.expires_s:
        return instance.expires_s
    if instance.state is _S.DRAINING and instance.cause is Cause.BY_HAND:
        return None  # whoever drains it did not say until when: what runs there is finished
    span = allowed.get(instance.state)
    return None if span is None else instance.since_s + span


def advance(instance: Instance, step: Transition, now: float) -> Instance:
    """The instance after `step`.

    Raises:
        InvalidTransition: the table lists no such step.
    """
    if (instance.state, step.target) not in TRANSITIONS:
        record = tuple(str(line) for line in instance.history)
        raise InvalidTransition(f"instance {instance.id}", instance.state, step.target, record)
    allocated_s = instance.allocated_s
    if step.machine_id and not allocated_s:
        allocated_s = now
    moved = replace(
        instance,
        state=step.target,
        since_s=now,
        reason=step.reason,
        asked_s=0.0,
        not_before_s=0.0,
        expires_s=0.0,
        settled=False,
        unjoined_since_s=0.0,
        allocated_s=allocated_s,
        joined_s=instance.joined_s or (now if step.target is _S.RUNNING else 0.0),
        machine_id=instance.machine_id if step.machine_id is None else step.machine_id,
        address=instance.address if step.address is None else step.address,
        node_id=instance.node_id if step.node_id is None else step.node_id,
        failure=instance.failure if step.failure is None else step.failure,
        step=instance.step if step.step is None else step.step,
        cause=instance.cause if step.cause is None else step.cause,
        recalled=step.recalled,
    )
    return recorded(moved, now)


def recorded(instance: Instance, now: float) -> Instance:
    """The instance with a line for its state and reason, unless that is its last line already. Of a long
    record the first line stays, and the last ones."""
    last = instance.history[-1] if instance.history else None
    if last is not None and (last.state, last.why) == (instance.state, instance.reason):
        return instance
    lines = (*instance.history, Step(now, instance.state, instance.reason))
    if len(lines) > HISTORY:
        lines = (lines[0], *lines[len(lines) - HISTORY + 1 :])
    return replace(instance, history=lines)


@dataclass(frozen=True, slots=True)
class Happening:
    """One line of the log."""

    at_s: float
    text: str


class InstanceTable:
    """All instances the autoscaler knows; belongs to the reconciler.

    Attributes:
        version: grows with every change.
        log: the last things that happened, for the operator.
    """

    def __init__(self, instances: Mapping[str, Instance] | None = None) -> None:
        self._instances: dict[str, Instance] = dict(instances or {})
        self.version = 0
        self.log: deque[Happening] = deque(maxlen=KEEP_HAPPENINGS)

    def __iter__(self) -> Iterator[Instance]:
        return iter(self._instances.values())

    def __len__(self) -> int:
        return len(self._instances)

    def __getitem__(self, instance_id: str) -> Instance:
        return self._instances[instance_id]

    def get(self, instance_id: str) -> Instance | None:
        return self._instances.get(instance_id)

    def in_state(self, *states: InstanceState) -> list[Instance]:
        """The instances in any of `states`, oldest first."""
        return [instance for instance in self._instances.values() if instance.state in states]

    def add(self, instance: Instance) -> None:
        """Starts to track an instance: a new wish, or an adopted machine. An entry that has ended is
        replaced.

        Raises:
            ValueError: an instance of that id lives.
        """
        known = self._instances.get(instance.id)
        if known is not None and not known.is_terminal:
            raise ValueError(f"instance {instance.id} is known already, as {known.state.name}")
        self._instances[instance.id] = recorded(instance, instance.since_s)
        self.version += 1

    def apply(self, step: Transition, now: float) -> Instance:
        """Takes one step of the table's edges, logs it and returns the instance as it is now.

        Raises:
            KeyError: no such instance.
            InvalidTransition: no such edge.
        """
        changed = advance(self._instances[step.instance_id], step, now)
        self._instances[step.instance_id] = changed
        self.version += 1
        self.tell(now, f"{changed.id} ({changed.node_type}) {changed.state.name}: {step.reason}")
        return changed

    def tell(self, now: float, text: str) -> None:
        """Logs what is not a step of one instance."""
        self.log.append(Happening(now, text))

    def note(self, instance: Instance, now: float) -> None:
        """Stores an instance whose bookkeeping changed (not its state). A new reason is recorded."""
        known = self._instances[instance.id]
        if known.state is not instance.state:
            raise ValueError(f"instance {instance.id}: a note must not change the state")
        if known != instance:
            self._instances[instance.id] = (
                instance if known.reason == instance.reason else recorded(instance, now)
            )
            self.version += 1

    def prune(self, now: float, keep_s: float, keep: int) -> None:
        """Forgets instances that ended longer than `keep_s` ago, and all but the `keep` last that ended."""
        ended = sorted((i for i in self if i.is_terminal), key=lambda i: i.since_s, reverse=True)
        for position, instance in enumerate(ended):
            if position >= keep or now - instance.since_s > keep_s:
                del self._instances[instance.id]
