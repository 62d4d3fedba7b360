"""What `up` has to do, decided from facts alone. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Health(Enum):
    """How the head's API answers."""

    ANSWERS = "answers"
    SILENT = "silent"  # nobody listens: the head is dead
    SLOW = "slow"  # somebody listens and does not answer
    DENIED = "denied"  # it does not know our secret
    UNKNOWN = "unknown"  # there is no address to ask


@dataclass(frozen=True, slots=True)
class Facts:
    """What `up` finds.

    Attributes:
        record_state: STARTING | UP | STOPPED, or "" when nothing is remembered.
        head_stopped: the head's machine exists and is stopped.
        machines: all machines of the cluster, by the provider's listing.
        strangers: machines of an earlier life, found by tags only.
        spec_changed: the spec differs from the one that is up.
        head_changed: it differs in what makes the head.
    """

    record_state: str
    health: Health
    head_id: str = ""
    head_stopped: bool = False
    machines: tuple[str, ...] = ()
    strangers: tuple[str, ...] = ()
    spec_changed: bool = False
    head_changed: bool = False


class Action(Enum):
    """One step of a plan, in words."""

    END_MACHINES = "end machines"
    CREATE_HEAD = "create the head's machine"
    BOOT_HEAD = "start the head's machine"
    SET_UP_HEAD = "set up the head and start its daemons"
    PUSH_SPEC = "give the autoscaler the new limits and node types"
    AWAIT_WORKERS = "wait for min_workers"


@dataclass(frozen=True, slots=True)
class Step:
    action: Action
    machines: tuple[str, ...] = ()

    def describe(self) -> str:
        return f"{self.action.value}: {', '.join(self.machines)}" if self.machines else self.action.value


@dataclass(frozen=True, slots=True)
class Plan:
    """`steps` empty and `refusal` empty: there is nothing to do. `is_new`: the cluster starts from nothing,
    and is removed again when bringing it up is interrupted. `asks`: what the operator has to agree to
    first."""

    steps: tuple[Step, ...] = ()
    is_new: bool = False
    refusal: str = ""
    advice: str = ""
    asks: str = ""

    @property
    def may_buy(self) -> bool:
        """Whether it makes or starts machines, or tells the autoscaler to."""
        return any(step.action in _BUYING for step in self.steps)


_BUYING = frozenset({Action.CREATE_HEAD, Action.BOOT_HEAD, Action.PUSH_SPEC})


def plan(facts: Facts) -> Plan:
    """Decides."""
    if facts.health is Health.ANSWERS:
        return _plan_running(facts)
    if facts.health is Health.SLOW:
        return Plan(
            refusal="the cluster's head is there but does not answer in time",
            advice="Try again; if it stays so, run `clusterctl down` first.",
        )
    if facts.health is Health.DENIED:
        return Plan(
            refusal="the cluster's head refuses our secret",
            advice="Run `clusterctl down` with the cluster's YAML, then `clusterctl up` again.",
        )
    strangers = _end(facts.strangers)
    if facts.record_state == "STOPPED" and facts.head_stopped and not facts.head_changed:
        others = tuple(id for id in facts.machines if id != facts.head_id)
        steps = (*strangers, *_end(others), Step(Action.BOOT_HEAD), *_head())
        return Plan(steps)
    asks = ""
    if facts.strangers and not facts.record_state:
        asks = (
            f"{len(facts.strangers)} machines of a cluster of this name run that nobody remembers here; "
            "they would be ended."
        )
    steps = (*_end((*facts.strangers, *facts.machines)), Step(Action.CREATE_HEAD), *_head())
    return Plan(steps, is_new=True, asks=asks)


def _plan_running(facts: Facts) -> Plan:
    if facts.spec_changed and facts.head_changed:
        return Plan(
            refusal="the new spec changes the head, which cannot be done while the cluster runs",
            advice="Run `clusterctl down`, then `clusterctl up` with the new spec.",
        )
    if facts.spec_changed:
        return Plan((Step(Action.PUSH_SPEC), Step(Action.AWAIT_WORKERS)))
    if facts.record_state != "UP":
        return Plan((Step(Action.AWAIT_WORKERS),))
    return Plan()


def _end(machines: tuple[str, ...]) -> tuple[Step, ...]:
    return (Step(Action.END_MACHINES, machines),) if machines else ()


def _head() -> tuple[Step, ...]:
    return Step(Action.SET_UP_HEAD), Step(Action.AWAIT_WORKERS)
