"""What the autoscaler tells the operator: one JSON document, replaced after every tick that changed
something."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from autoscaler.config import AutoscalerConfig, Budgets, Cause
from autoscaler.demand import Demand, ExplicitRequest
from autoscaler.disruption import Disruptions
from autoscaler.instances import IN_FLIGHT, Happening, Instance, InstanceState
from autoscaler.offerings import Penalty
from autoscaler.plan import REQUESTED, Note, Plan


@dataclass(frozen=True, slots=True)
class TypeStatus:
    """One node type: its limits, and how many instances of it stand where. `state` names every state that is
    held."""

    name: str
    min_workers: int
    max_workers: int
    running: int
    pending: int
    states: dict[str, int]


@dataclass(frozen=True, slots=True)
class StepStatus:
    """One line of an instance's record: from when on it was in a state, and why."""

    at_s: float
    state: str
    why: str


@dataclass(frozen=True, slots=True)
class InstanceStatus:
    """One instance. `failure`: what went wrong, "" when nothing did. `history`: how it came to its state,
    oldest first; empty for those that have not changed for long where there are very many."""

    id: str
    node_type: str
    state: str
    since_s: float
    reason: str
    machine_id: str = ""
    address: str = ""
    node_id: str = ""
    zone: str = ""
    market: str = ""
    setup_log: str = ""
    failure: str = ""
    history: tuple[StepStatus, ...] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """One instance that ended for a fault. `step` is the setup step, "" when it failed elsewhere."""

    instance_id: str
    node_type: str
    at_s: float
    reason: str
    step: str = ""
    setup_log: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A demand that is not served, and why. `infeasible`: no node that may exist could ever hold it."""

    demand: str
    count: int
    why: str
    infeasible: bool


@dataclass(frozen=True, slots=True)
class Requested:
    """What one owner requested explicitly.

    Attributes:
        job_id: the program that it ends with, "" when it outlives its program.
        expires_s: unix time, 0 when it has no end of its own.
        wanted: what, and how many of it.
        state: "met", "coming" (machines are on their way), "waits" or "infeasible".
        why: what it waits for.
    """

    owner: str
    job_id: str
    expires_s: float
    wanted: tuple[tuple[str, int], ...]
    state: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Resting:
    """Something that is left alone after it failed."""

    what: str
    why: str
    until_s: float


@dataclass(frozen=True, slots=True)
class BudgetStatus:
    """One budget and what is used of it. `most`: None for no limit; `is_set`: it is not what it always is."""

    what: str
    used: float
    most: float | None
    is_set: bool


@dataclass(frozen=True, slots=True)
class Report:
    """The whole picture. `problems` are standing faults: the platform does not answer, its credentials
    expired. `instances` have not ended, `ended` did so lately, the newest first."""

    at_s: float
    cluster_name: str
    max_workers: int
    types: tuple[TypeStatus, ...] = ()
    instances: tuple[InstanceStatus, ...] = ()
    failures: tuple[Failure, ...] = ()
    demands: tuple[tuple[str, int], ...] = ()
    waiting: tuple[Waiting, ...] = ()
    resting: tuple[Resting, ...] = ()
    events: tuple[Happening, ...] = ()
    problems: tuple[str, ...] = ()
    plan_s: float = field(default=0.0)
    requested: tuple[Requested, ...] = ()
    ended: tuple[InstanceStatus, ...] = ()
    budgets: tuple[BudgetStatus, ...] = ()

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, text: bytes) -> Report:
        """Reads what `to_json` wrote.

        Raises:
            ValueError: it is no such report.
        """
        return msgspec.json.decode(text, type=cls)


MOST_FAILURES = 20
MOST_ENDED = 100
MOST_HISTORIES = 1000


def report_of(
    config: AutoscalerConfig,
    instances: Sequence[Instance],
    demand: Demand,
    plan: Plan,
    penalties: Iterable[Penalty],
    resting: Iterable[Resting],
    events: Iterable[Happening],
    problems: Sequence[str],
    now: float,
    plan_s: float = 0.0,
) -> Report:
    """Puts the report together."""
    names = [kind.name for kind in config.node_types]
    names += sorted({i.node_type for i in instances if not i.is_terminal} - set(names))
    lately = sorted((i.since_s for i in instances), reverse=True)[:MOST_HISTORIES]
    told_s = lately[-1] if lately else 0.0
    ended = sorted((i for i in instances if i.is_terminal), key=lambda i: -i.since_s)[:MOST_ENDED]
    return Report(
        at_s=now,
        cluster_name=config.cluster_name,
        max_workers=config.max_workers,
        types=tuple(_type_status(config, name, instances) for name in names),
        instances=tuple(_instance_status(i, told_s) for i in instances if not i.is_terminal),
        failures=failures_of(instances),
        demands=_demands(demand),
        waiting=tuple(
            [Waiting(n.demand, n.count, n.why, True) for n in plan.infeasible]
            + [Waiting(n.demand, n.count, n.why, False) for n in plan.waiting]
        ),
        resting=tuple(
            [
                Resting(
                    " ".join(part for part in (p.node_type, p.zone, p.market) if part != "*"),
                    p.reason,
                    p.until_s,
                )
                for p in penalties
            ]
            + list(resting)
        ),
        events=tuple(events),
        problems=tuple(problems),
        plan_s=plan_s,
        requested=tuple(_requested(request, plan) for request in demand.requests),
        ended=tuple(_instance_status(i, told_s) for i in ended),
        budgets=budgets_of(config.budgets, instances),
    )


def budgets_of(budgets: Budgets, instances: Iterable[Instance]) -> tuple[BudgetStatus, ...]:
    """The price of all workers, and how many are drained now."""
    counted = [instance for instance in instances if instance.is_counted]
    price = sum(instance.offer.price for instance in counted)
    most = budgets.max_hourly_price
    disruptions = Disruptions.of(budgets, counted)
    found = [
        BudgetStatus("price per hour", price, most, most is not None),
        BudgetStatus(
            "drained at once",
            disruptions.in_all,
            budgets.max_disrupted,
            budgets.max_disrupted != Budgets().max_disrupted,
        ),
    ]
    for cause in Cause:
        own = budgets.max_disrupted_by.get(cause)
        used = disruptions.draining.get(cause, 0)
        if used or own is not None:
            found.append(BudgetStatus(f"{cause.value}", used, own, own is not None))
    return tuple(found)


def failures_of(instances: Iterable[Instance]) -> tuple[Failure, ...]:
    """The last instances that ended, or are ending, for a fault; newest first."""
    failed = [i for i in instances if i.failure and (i.is_terminal or i.state is InstanceState.TERMINATING)]
    failed.sort(key=lambda instance: -instance.since_s)
    return tuple(
        Failure(i.id, i.node_type, i.since_s, i.failure, i.step, i.setup_log) for i in failed[:MOST_FAILURES]
    )


def demand_notes(plan: Plan) -> list[tuple[str, str]]:
    """What the drivers of waiting tasks and actors are told: infeasible or not, why no machine comes."""
    return _joined((note.demand, note.why) for note in (*plan.infeasible, *plan.waiting) if not note.group)


def group_notes(plan: Plan) -> list[tuple[bytes, str]]:
    """What the drivers of waiting placement groups are told, by the groups' ids."""
    return _joined((note.group, note.why) for note in (*plan.infeasible, *plan.waiting) if note.group)


_Key = TypeVar("_Key", str, bytes)


def _joined(notes: Iterable[tuple[_Key, str]]) -> list[tuple[_Key, str]]:
    """One entry for each: parts of a demand may wait for different things."""
    reasons: dict[_Key, list[str]] = {}
    for key, why in notes:
        reasons.setdefault(key, []).append(why)
    return [(key, "; ".join(dict.fromkeys(whys))) for key, whys in reasons.items()]


def _type_status(config: AutoscalerConfig, name: str, instances: Iterable[Instance]) -> TypeStatus:
    kind = config.node_type(name)
    mine = [i for i in instances if i.node_type == name and not i.is_terminal]
    states: dict[str, int] = {}
    for instance in mine:
        states[instance.state.name] = states.get(instance.state.name, 0) + 1
    return TypeStatus(
        name,
        kind.min_workers if kind else 0,
        kind.max_workers if kind else 0,
        states.get(InstanceState.RUNNING.name, 0),
        sum(1 for i in mine if i.state in IN_FLIGHT),
        states,
    )


def _instance_status(instance: Instance, told_s: float) -> InstanceStatus:
    return InstanceStatus(
        instance.id,
        instance.node_type,
        instance.state.name,
        instance.since_s,
        instance.reason,
        instance.machine_id,
        instance.address,
        instance.node_id.hex(),
        instance.offer.zone,
        instance.offer.market,
        instance.setup_log,
        instance.failure,
        tuple(StepStatus(step.at_s, step.state.name, step.why) for step in instance.history)
        if instance.since_s >= told_s
        else (),
    )


def _requested(request: ExplicitRequest, plan: Plan) -> Requested:
    short = {f"{REQUESTED}{shape}" for shape, _ in plan.short} & {
        f"{REQUESTED}{shape}" for shape, _ in request.wanted
    }
    hopeless = [note.why for note in plan.infeasible if note.demand in short]
    limits = [note.why for note in plan.waiting if note.demand in short]
    state = "infeasible" if hopeless else "waits" if limits else "coming" if short else "met"
    return Requested(
        request.owner,
        request.job_id.hex(),
        request.expires_s,
        tuple((str(shape), count) for shape, count in request.wanted),
        state,
        "; ".join(dict.fromkeys(hopeless + limits)),
    )


def _demands(demand: Demand) -> tuple[tuple[str, int], ...]:
    lines = [(str(shape), count) for shape, count in demand.shapes]
    lines += [(f"{REQUESTED}{shape}", count) for shape, count in demand.explicit]
    groups: dict[str, int] = {}
    for gang in demand.gangs:
        groups[str(gang)] = groups.get(str(gang), 0) + 1
    return tuple(lines + list(groups.items()))


__all__ = [
    "Failure",
    "InstanceStatus",
    "Note",
    "Report",
    "Requested",
    "Resting",
    "StepStatus",
    "TypeStatus",
    "Waiting",
    "demand_notes",
    "failures_of",
    "group_notes",
    "report_of",
]
