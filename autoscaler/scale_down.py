"""Which instances go: more than a maximum or the price budget allows, wishes nobody has any more, idle nodes, outdated
machines, and those whose drain has come to its end."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from autoscaler.budgets import count_by_type
from autoscaler.config import Cause, hash_rule
from autoscaler.disruption import Disruptions
from autoscaler.drain import is_done
from autoscaler.instances import ACTIVE, IN_FLIGHT, Instance, InstanceState, only_if_idle
from autoscaler.snapshot import Snapshot


class Way(Enum):
    """How an instance is removed."""

    CANCEL = "cancel"  # nothing was asked of the platform yet
    TERMINATE = "terminate"  # it holds no work
    DRAIN = "drain"  # its node stops taking work first


@dataclass(frozen=True, slots=True)
class Removal:
    """One instance to remove. `cause`: of a drain."""

    instance_id: str
    way: Way
    reason: str
    cause: Cause | None = None

    @property
    def only_if_idle(self) -> bool:
        """Not when its node turns out to be busy."""
        return self.cause is not None and only_if_idle(self.cause)


def surplus(snapshot: Snapshot, disruptions: Disruptions) -> list[Removal]:
    """What exceeds the maximum of a type or of the cluster, or the price budget: what is furthest from being of use
    goes first.

    A machine that was just asked for cannot be taken back before it is there; it is counted as going and
    removed then.
    """
    removals: list[Removal] = []
    gone: set[str] = set()
    active = [instance for instance in snapshot.instances if instance.state in ACTIVE]
    counts = count_by_type(active, ACTIVE)
    kinds = {kind.name: kind for kind in snapshot.config.node_types}
    for name, count in sorted(counts.items()):
        most = kinds[name].max_workers if name in kinds else 0
        if count > most:
            reason = (
                f"more than max_workers {most} of {name!r}" if name in kinds else f"{name!r} is no node type"
            )
            mine = [instance for instance in active if instance.node_type == name]
            for instance in _least_useful(mine, snapshot)[: count - most]:
                gone.add(instance.id)
                _remove(instance, reason, removals)
    rest = [instance for instance in active if instance.id not in gone]
    ordered = _spare_first(rest, snapshot)
    excess = max(0, len(rest) - snapshot.config.max_workers)
    for instance in ordered[:excess]:
        _remove(instance, f"more than the cluster's max_workers {snapshot.config.max_workers}", removals)
    for instance in _too_dear(ordered[excess:], snapshot.config.budgets.max_hourly_price):
        _remove(instance, "the workers cost more than max_hourly_price", removals)
    return [removal for removal in removals if removal.cause is None or disruptions.take(removal.cause)]


def _spare_first(instances: list[Instance], snapshot: Snapshot) -> list[Instance]:
    """The least useful first, but those above their type's minimum before the others."""
    minimum = {kind.name: kind.min_workers for kind in snapshot.config.node_types}
    spare = dict(count_by_type(instances, ACTIVE))
    above: list[Instance] = []
    needed: list[Instance] = []
    for instance in _least_useful(instances, snapshot):
        is_above = spare[instance.node_type] > minimum.get(instance.node_type, 0)
        spare[instance.node_type] -= is_above
        (above if is_above else needed).append(instance)
    return above + needed


def _too_dear(instances: list[Instance], most: float | None) -> list[Instance]:
    """Those to give up, of the first ones, so that the price of the rest is allowed."""
    price = sum(instance.offer.price for instance in instances)
    gone: list[Instance] = []
    for instance in instances:
        if most is None or price <= most + 1e-9:
            break
        if instance.offer.price > 0:
            price -= instance.offer.price
            gone.append(instance)
    return gone


def _remove(instance: Instance, reason: str, removals: list[Removal]) -> None:
    state = instance.state
    if state is InstanceState.QUEUED:
        removals.append(Removal(instance.id, Way.CANCEL, reason))
    elif state in (InstanceState.ALLOCATED, InstanceState.SETTING_UP):
        removals.append(Removal(instance.id, Way.TERMINATE, reason))
    elif state is InstanceState.RUNNING:
        removals.append(Removal(instance.id, Way.DRAIN, reason, Cause.SURPLUS))


_DISTANCE = {
    InstanceState.QUEUED: 0,
    InstanceState.REQUESTED: 1,
    InstanceState.ALLOCATED: 2,
    InstanceState.SETTING_UP: 3,
    InstanceState.RUNNING: 4,
}


def _least_useful(instances: list[Instance], snapshot: Snapshot) -> list[Instance]:
    nodes = {node.node_id: node for node in snapshot.nodes}

    def key(instance: Instance) -> tuple[int, bool, float, str]:
        node = nodes.get(instance.node_id)
        idle = node is not None and node.idle_since_s > 0
        return _DISTANCE[instance.state], not idle, -instance.since_s, instance.id

    return sorted(instances, key=key)


def cancellations(snapshot: Snapshot, used: Collection[str], leaving: Collection[str]) -> list[Removal]:
    """Wishes not yet sent to the platform that neither demand nor a minimum needs any more."""
    counts = dict(count_by_type((i for i in snapshot.instances if i.id not in leaving), ACTIVE))
    minimum = {kind.name: kind.min_workers for kind in snapshot.config.node_types}
    removals = []
    for instance in snapshot.instances:
        if instance.state is not InstanceState.QUEUED or instance.id in used or instance.id in leaving:
            continue
        if counts[instance.node_type] > minimum.get(instance.node_type, 0):
            counts[instance.node_type] -= 1
            removals.append(Removal(instance.id, Way.CANCEL, "nothing needs it any more"))
    return removals


@dataclass(frozen=True, slots=True)
class Idle:
    """What idleness leads to: `removals` now, and when to look again (None: nothing is idle)."""

    removals: tuple[Removal, ...] = ()
    next_s: float | None = None


def idle(
    snapshot: Snapshot, used: Collection[str], leaving: Collection[str], disruptions: Disruptions
) -> Idle:
    """Nodes idle beyond their timeout, and idle nodes of an old configuration at once. Never below the minimum
    (but to replace an outdated one), never a node that demand would use in a moment. Longest idle first."""
    nodes = {node.node_id: node for node in snapshot.nodes if node.state == "ALIVE"}
    counts = dict(count_by_type((i for i in snapshot.instances if i.id not in leaving), ACTIVE))
    flying = count_by_type(snapshot.instances, IN_FLIGHT)
    minimum = {kind.name: kind.min_workers for kind in snapshot.config.node_types}
    found: list[tuple[float, Instance]] = []
    for instance in snapshot.instances:
        node = nodes.get(instance.node_id)
        if (
            instance.state is InstanceState.RUNNING
            and node is not None
            and node.idle_since_s > 0
            and instance.id not in leaving
            and node.node_id.hex() not in used
            and node.node_id not in snapshot.demand.pinned
        ):
            found.append((node.idle_since_s, instance))
    found.sort(key=lambda entry: (entry[0], entry[1].id))
    removals: list[Removal] = []
    times: list[float] = []
    for since_s, instance in found:
        name = instance.node_type
        due_s = max(since_s + snapshot.config.idle_timeout_of(name), instance.not_before_s)
        is_above = counts[name] > minimum.get(name, 0)
        if is_above and due_s <= snapshot.now and disruptions.take(Cause.IDLE):
            reason = f"idle for {snapshot.now - since_s:.0f} s"
            removals.append(Removal(instance.id, Way.DRAIN, reason, Cause.IDLE))
        elif (
            is_outdated(instance, snapshot)
            and instance.not_before_s <= snapshot.now
            and _may_replace(disruptions, flying.get(name, 0))
        ):
            removals.append(Removal(instance.id, Way.DRAIN, "its configuration is outdated", Cause.OUTDATED))
        else:
            if is_above and due_s > snapshot.now:
                times.append(due_s)
            continue
        counts[name] -= 1
    return Idle(tuple(removals), min(times, default=None))


def _may_replace(disruptions: Disruptions, flying: int) -> bool:
    """One more outdated node may go: those that come in the place of others count until they run."""
    left = disruptions.left(Cause.OUTDATED)
    return (left is None or left > flying) and disruptions.take(Cause.OUTDATED)


def called_back(snapshot: Snapshot, spare: Collection[str], used: Collection[str]) -> dict[str, str]:
    """Draining instances whose nodes the plan has put waiting work on, with the reason."""
    return {
        instance.id: "waiting work will use it"
        for instance in snapshot.instances
        if instance.id in spare and instance.node_id.hex() in used
    }


def drained(snapshot: Snapshot, staying: Collection[str]) -> list[Removal]:
    """Instances whose nodes are empty and take no work: they end, now that nothing has called them back."""
    nodes = {node.node_id: node for node in snapshot.nodes}
    return [
        Removal(instance.id, Way.TERMINATE, f"drained: {instance.reason}")
        for instance in snapshot.instances
        if instance.id not in staying and is_done(instance, nodes.get(instance.node_id))
    ]


def is_outdated(instance: Instance, snapshot: Snapshot) -> bool:
    """Whether the machine was made from another configuration than today's. Hashes that were made by different
    rules cannot be compared."""
    wanted, has = snapshot.config.config_hashes.get(instance.node_type, ""), instance.config_hash
    return bool(wanted and has) and has != wanted and hash_rule(has) == hash_rule(wanted)
