"""Which instances go: more than the maximum allows, wishes nobody has any more, idle nodes, outdated
machines."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from autoscaler.budgets import count_by_type, disruptions_left
from autoscaler.instances import ACTIVE, Instance, InstanceState
from autoscaler.snapshot import Snapshot
from runtime._wire.messages.base import NodeInfo


class Way(Enum):
    """How an instance is removed."""

    CANCEL = "cancel"  # nothing was asked of the platform yet
    TERMINATE = "terminate"  # it holds no work
    DRAIN = "drain"  # its node stops taking work first


@dataclass(frozen=True, slots=True)
class Removal:
    """One instance to remove. `only_if_idle`: not when its node turns out to be busy."""

    instance_id: str
    way: Way
    reason: str
    only_if_idle: bool = True


def surplus(snapshot: Snapshot) -> list[Removal]:
    """What exceeds the maximum of a type or of the cluster: what is furthest from being of use goes first.

    A machine that was just asked for cannot be taken back before it is there; it is counted as going and
    removed then.
    """
    left = disruptions_left(snapshot.config, snapshot.instances)
    removals: list[Removal] = []
    gone: set[str] = set()
    active = [instance for instance in snapshot.instances if instance.state in ACTIVE]
    counts = count_by_type(active, ACTIVE)
    kinds = {kind.name: kind for kind in snapshot.config.node_types}
    for name, count in counts.items():
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
    excess = len(rest) - snapshot.config.max_workers
    if excess > 0:
        minimum = {name: kind.min_workers for name, kind in kinds.items()}
        spare = dict(count_by_type(rest, ACTIVE))
        ordered = _least_useful(rest, snapshot)
        # Machines above their type's minimum go before the others.
        above: list[Instance] = []
        for instance in ordered:
            if spare[instance.node_type] > minimum.get(instance.node_type, 0):
                spare[instance.node_type] -= 1
                above.append(instance)
        chosen = (above + [instance for instance in ordered if instance not in above])[:excess]
        for instance in chosen:
            _remove(instance, f"more than the cluster's max_workers {snapshot.config.max_workers}", removals)
    allowed: list[Removal] = []
    for removal in removals:
        if removal.way is Way.DRAIN and not removal.only_if_idle:
            if left <= 0:
                continue
            left -= 1
        allowed.append(removal)
    return allowed


def _remove(instance: Instance, reason: str, removals: list[Removal]) -> None:
    state = instance.state
    if state is InstanceState.QUEUED:
        removals.append(Removal(instance.id, Way.CANCEL, reason))
    elif state in (InstanceState.ALLOCATED, InstanceState.SETTING_UP):
        removals.append(Removal(instance.id, Way.TERMINATE, reason))
    elif state is InstanceState.RUNNING:
        removals.append(Removal(instance.id, Way.DRAIN, reason, only_if_idle=False))


_DISTANCE = {
    InstanceState.QUEUED: 0,
    InstanceState.REQUESTED: 1,
    InstanceState.ALLOCATED: 2,
    InstanceState.SETTING_UP: 3,
    InstanceState.RUNNING: 4,
}


def _least_useful(instances: list[Instance], snapshot: Snapshot) -> list[Instance]:
    nodes = {node.node_id: node for node in snapshot.nodes}

    def key(instance: Instance) -> tuple[int, bool, float]:
        node = nodes.get(instance.node_id)
        idle = node is not None and node.idle_since_s > 0
        return _DISTANCE[instance.state], not idle, -instance.since_s

    return sorted(instances, key=key)


def unwanted(snapshot: Snapshot, used: Collection[str], leaving: Collection[str]) -> list[Removal]:
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


def idle(snapshot: Snapshot, used: Collection[str], leaving: Collection[str]) -> Idle:
    """Nodes idle beyond their timeout, and idle nodes of an old configuration. Never below the minimum, never
    a node that demand would use in a moment. Longest idle first."""
    nodes = {node.node_id: node for node in snapshot.nodes if node.state == "ALIVE"}
    counts = dict(count_by_type((i for i in snapshot.instances if i.id not in leaving), ACTIVE))
    minimum = {kind.name: kind.min_workers for kind in snapshot.config.node_types}
    left = disruptions_left(snapshot.config, snapshot.instances)
    found: list[tuple[float, Instance, NodeInfo]] = []
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
            found.append((node.idle_since_s, instance, node))
    found.sort(key=lambda entry: (entry[0], entry[1].id))
    removals: list[Removal] = []
    times: list[float] = []
    for since_s, instance, _ in found:
        timeout_s = snapshot.config.idle_timeout_of(instance.node_type)
        due_s = max(since_s + timeout_s, instance.not_before_s)
        if counts[instance.node_type] > minimum.get(instance.node_type, 0):
            if due_s <= snapshot.now:
                counts[instance.node_type] -= 1
                removals.append(Removal(instance.id, Way.DRAIN, f"idle for {snapshot.now - since_s:.0f} s"))
            else:
                times.append(due_s)
        elif is_outdated(instance, snapshot) and left > 0 and instance.not_before_s <= snapshot.now:
            left -= 1
            removals.append(Removal(instance.id, Way.DRAIN, "its configuration is outdated"))
    return Idle(tuple(removals), min(times, default=None))


def is_outdated(instance: Instance, snapshot: Snapshot) -> bool:
    """Whether the machine was made from another configuration than today's."""
    wanted = snapshot.config.config_hashes.get(instance.node_type, "")
    return bool(wanted and instance.config_hash) and instance.config_hash != wanted
