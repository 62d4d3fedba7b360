"""What `up` has to do, decided from facts alone. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum


class Health(Enum):
    """How the head's API answers."""

    ANSWERS = "answers"
    SILENT = "silent"  # nobody answers, which proves nothing
    DEAD = "dead"  # its machine proves that its daemon has ended, or the provider that the machine is gone or stopped
    CUT_OFF = "cut off"  # the API does not answer, and the head lives or may live
    SLOW = "slow"  # somebody listens and does not answer
    DENIED = "denied"  # it does not know our secret
    UNKNOWN = "unknown"  # there is no address to ask


class Change(Enum):
    """What of the head the spec wants otherwise than it was made."""

    NOTHING = "nothing"
    SETUP = "setup"  # its files or its setup commands
    RESTART = "restart"  # what its daemons are started with
    MACHINE = "machine"  # its machine


class Restart(Enum):
    """What the operator says about restarts of a running head."""

    IF_NEEDED = "if needed"
    NEVER = "never"  # --no-restart
    ONLY = "only"  # --restart-only: a restart, and no setup


@dataclass(frozen=True, slots=True)
class Facts:
    """What `up` finds.

    Attributes:
        record_state: STARTING | UP | STOPPED, or "" when nothing is remembered.
        trouble: why the head is cut off, or may be.
        head_id: the head's machine, by the provider's listing.
        head_stopped: it exists and is stopped.
        machines: all machines of the cluster, by the provider's listing.
        live: those of `machines` whose node runs or may run.
        strangers: machines of an earlier life, found by tags only.
        spec_changed: the spec differs from the one that is remembered.
        change: what that means for the head.
        lacks_workers: fewer have joined than min_workers say.
    """

    record_state: str
    health: Health
    trouble: str = ""
    head_id: str = ""
    head_stopped: bool = False
    machines: tuple[str, ...] = ()
    live: tuple[str, ...] = ()
    strangers: tuple[str, ...] = ()
    spec_changed: bool = False
    change: Change = Change.NOTHING
    lacks_workers: bool = False


UNSEEN = Facts(record_state="", health=Health.UNKNOWN)
"""Where nobody could be asked: as if nothing were there."""


class Action(Enum):
    """One step of a plan, in words."""

    END_MACHINES = "end machines"
    CREATE_HEAD = "create the head's machine"
    BOOT_HEAD = "start the head's machine"
    SET_UP_HEAD = "set up the head and start its daemons"
    UPDATE_HEAD = "bring the head's files up to date and run its setup commands"
    STOP_DAEMONS = "stop the head's daemons"
    END_WORKERS = "give the workers back, whose programs have ended"
    START_DAEMONS = "start the head's daemons"
    PUSH_SPEC = "give the autoscaler the new limits and node types"
    AWAIT_WORKERS = "wait for min_workers"
    MAKE_WORKERS = "make, set up or end workers until there are min_workers"  # where no autoscaler does


_BUYING = frozenset({Action.CREATE_HEAD, Action.BOOT_HEAD, Action.PUSH_SPEC, Action.MAKE_WORKERS})


@dataclass(frozen=True, slots=True)
class Step:
    action: Action
    machines: tuple[str, ...] = ()

    def describe(self) -> str:
        return f"{self.action.value}: {', '.join(self.machines)}" if self.machines else self.action.value


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do, in order.

    Attributes:
        steps: empty without a `refusal`: there is nothing to do.
        is_new: there was no head that ever worked. What was made is removed again when bringing it up is
            interrupted or fails.
        keeps_id: the cluster stays the one that is remembered, so that a creation whose answer was lost is found
            again; otherwise one that begins with `CREATE_HEAD` gets an id and a secret of its own.
        asks: what the operator has to agree to first.
    """

    steps: tuple[Step, ...] = ()
    is_new: bool = False
    keeps_id: bool = True
    refusal: str = ""
    advice: str = ""
    asks: str = ""

    @property
    def may_buy(self) -> bool:
        """Whether it makes or starts machines, or tells the autoscaler to."""
        return any(step.action in _BUYING for step in self.steps)


def plan(facts: Facts, restart: Restart = Restart.IF_NEEDED) -> Plan:
    """Decides."""
    if facts.health is Health.ANSWERS:
        return _running(facts, restart)
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
    if facts.health in (Health.CUT_OFF, Health.SILENT):
        return Plan(
            refusal=f"the head on machine {facts.head_id} does not answer and may be alive: {facts.trouble}",
            advice="Programs may still run there, so nothing was touched. Run this again when the cause is mended; if "
            "the machine is broken, `clusterctl down` and then `clusterctl up` start over.",
        )
    if facts.head_id and facts.record_state and facts.change is not Change.MACHINE:
        return _go_on(facts, restart)
    return _anew(facts)


def without_autoscaler(plan: Plan) -> Plan:
    """The same for a cluster in which nothing makes workers but `up` itself."""
    kept = (step for step in plan.steps if step.action is not Action.PUSH_SPEC)
    make = Step(Action.MAKE_WORKERS)
    return replace(plan, steps=tuple(make if step.action is Action.AWAIT_WORKERS else step for step in kept))


def _running(facts: Facts, restart: Restart) -> Plan:
    if facts.change is Change.MACHINE:
        return Plan(
            refusal="the new spec wants another machine for the head, which cannot be exchanged while the cluster runs",
            advice="Run `clusterctl down`, then `clusterctl up` with the new spec.",
        )
    if restart is Restart.NEVER and facts.change is Change.RESTART:
        return Plan(
            refusal="the new spec changes what the head's daemons are started with (ports, resources, labels or start "
            "commands), and --no-restart forbids to start them again",
            advice="Run it without --no-restart when the programs on the cluster may end.",
        )
    if restart is Restart.ONLY and facts.change is not Change.NOTHING:
        return Plan(
            refusal="the new spec changes the head's files, setup commands or start, which --restart-only leaves "
            "as they are",
            advice="Run it without --restart-only, or with the YAML as it was.",
        )
    if restart is Restart.ONLY or facts.change is Change.RESTART:
        last = Action.START_DAEMONS if restart is Restart.ONLY else Action.SET_UP_HEAD
        actions = (Action.STOP_DAEMONS, Action.END_WORKERS, last, Action.AWAIT_WORKERS)
        return Plan(
            tuple(Step(action) for action in actions),
            asks="All programs on the cluster end: its daemons are started again.",
        )
    steps: tuple[Step, ...] = ()
    if facts.change is Change.SETUP:
        steps += (Step(Action.UPDATE_HEAD),)
    if facts.spec_changed:
        steps += (Step(Action.PUSH_SPEC),)
    if steps or facts.record_state != "UP" or facts.lacks_workers:
        steps += (Step(Action.AWAIT_WORKERS),)
    return Plan(steps)


def _go_on(facts: Facts, restart: Restart) -> Plan:
    """With the machine of the head that is there: one that was stopped, whose daemons died, or that an `up` which was
    interrupted had made."""
    has_been_up = facts.record_state != "STARTING"
    others = tuple(id for id in facts.machines if id != facts.head_id)
    steps = _end(facts.strangers)
    if has_been_up:  # workers without their head are of no use; a young head may have some already
        steps += _end(others)
    if facts.head_stopped:
        steps += (Step(Action.BOOT_HEAD),)
    is_set_up = has_been_up and facts.change is Change.NOTHING
    only_start = is_set_up and restart is Restart.ONLY
    steps += (Step(Action.START_DAEMONS if only_start else Action.SET_UP_HEAD),)
    if not has_been_up and facts.spec_changed:  # daemons that run already have the spec of before
        steps += (Step(Action.PUSH_SPEC),)
    return Plan((*steps, Step(Action.AWAIT_WORKERS)), is_new=not has_been_up, asks=_question(facts, steps))


def _anew(facts: Facts) -> Plan:
    ends = _end((*facts.strangers, *facts.machines))
    asks = [_question(facts, ends)]
    if facts.strangers and not facts.record_state:
        asks.append(
            f"{len(facts.strangers)} machines of a cluster of this name run that nobody remembers here; "
            "they would be ended."
        )
    elif facts.head_id and facts.record_state != "STARTING":
        asks.append(
            f"The spec wants another machine for the head: {facts.head_id} would be ended, and the history of its jobs "
            "with it."
        )
    return Plan(
        (
            *ends,
            Step(Action.CREATE_HEAD),
            Step(Action.SET_UP_HEAD),
            Step(Action.AWAIT_WORKERS),
        ),
        is_new=True,
        keeps_id=facts.record_state == "STARTING" and facts.change is not Change.MACHINE,
        asks=" ".join(filter(None, asks)),
    )


def _question(facts: Facts, steps: tuple[Step, ...]) -> str:
    """What to ask before machines end whose nodes may run."""
    ending = {machine for step in steps if step.action is Action.END_MACHINES for machine in step.machines}
    # Of an earlier life nobody has asked: another computer with the same credentials may have brought it up.
    strangers = facts.strangers if facts.record_state else ()
    live = [machine for machine in (*facts.live, *strangers) if machine in ending]
    if not live:
        return ""
    return f"These machines would be ended, and their nodes run or may still run: {', '.join(live)}."


def _end(machines: tuple[str, ...]) -> tuple[Step, ...]:
    return (Step(Action.END_MACHINES, machines),) if machines else ()
