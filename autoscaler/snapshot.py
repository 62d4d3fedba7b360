"""One consistent, immutable picture of everything a plan depends on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from autoscaler.config import AutoscalerConfig
from autoscaler.demand import Demand
from autoscaler.instances import IN_FLIGHT, Instance, InstanceState
from autoscaler.offerings import Market
from autoscaler.packing import NodeClass, Origin, Pool
from autoscaler.provider import NodeType, Offer
from runtime._core.placement import is_group_resource
from runtime._core.resources import Resources, to_units
from runtime._wire.messages.base import NodeInfo


@dataclass(frozen=True, slots=True)
class Profile:
    """What a node of a type will bring, as the scheduler will see it. Amounts in 1/10 000 units."""

    node_type: str
    resources: Mapping[str, int]
    labels: Mapping[str, str]


def observed(nodes: Iterable[NodeInfo]) -> Resources | None:
    """What every one of some nodes brings at least; None when there are none."""
    seen: Resources | None = None
    for node in nodes:
        own = {
            name: amount
            for name, amount in node.total.items()
            if not is_group_resource(name) and not name.startswith("node:")
        }
        seen = own if seen is None else {name: min(seen[name], own[name]) for name in seen if name in own}
    return seen


def profile_of(kind: NodeType, offers: Sequence[Offer], seen: Mapping[str, int] | None = None) -> Profile:
    """What to expect of a new node of a type.

    What its nodes have shown wins over what was declared, downwards: a machine that turns out smaller than
    its type says must not be launched again and again for work it cannot hold. What nodes bring beyond the
    declaration (memory) is learnt from them.

    Args:
        seen: what nodes of this type and configuration brought, see `observed`.
    """
    declared = to_units(kind.resources)
    if not declared and offers:
        declared = to_units(offers[0].resources)
    if seen is None:
        return Profile(kind.name, declared, dict(kind.labels))
    resources = {name: min(amount, seen.get(name, 0)) for name, amount in declared.items()}
    resources.update({name: amount for name, amount in seen.items() if name not in declared})
    return Profile(kind.name, {name: amount for name, amount in resources.items() if amount}, kind.labels)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything `plan` looks at.

    Attributes:
        nodes: the cluster's nodes, dead ones too.
        instances: all that is tracked.
        markets: per type, the offers that may be taken now.
        profiles: per type, what a new node brings.
        held: types whose machines failed their setup lately -> why they rest.
        allowance: the most machines to launch now, while most setups fail; None: no such limit.
    """

    now: float
    config: AutoscalerConfig
    demand: Demand
    nodes: tuple[NodeInfo, ...]
    instances: tuple[Instance, ...]
    markets: Mapping[str, Market]
    profiles: Mapping[str, Profile]
    held: Mapping[str, str] = field(default_factory=dict)
    allowance: int | None = None


def pool_of(snapshot: Snapshot, leaving: frozenset[str], *, whole: bool = False) -> Pool:
    """All capacity that is or will be there without this plan.

    Args:
        snapshot: the picture.
        leaving: instances that the plan has already decided to remove.
        whole: look at nodes as if they were idle.
    """
    names = snapshot.demand.names | {"CPU", "GPU"}
    keys = snapshot.demand.label_keys
    by_node = {instance.node_id: instance for instance in snapshot.instances if instance.node_id}
    entries: list[NodeClass] = []
    for node in snapshot.nodes:
        owner = by_node.get(node.node_id)
        if node.state != "ALIVE" or (
            owner is not None and (owner.state is not InstanceState.RUNNING or owner.id in leaving)
        ):
            continue
        total = _only(node.total, names)
        available = total if whole else _only(node.available, names)
        kind = owner.node_type if owner is not None else node.node_type
        labels = {key: value for key, value in node.labels.items() if key in keys}
        entries.append(NodeClass(Origin.EXISTING, kind, dict(available), total, labels, [node.node_id.hex()]))
    known = {node.node_id for node in snapshot.nodes if node.state == "ALIVE"}
    for instance in snapshot.instances:
        coming = instance.state in IN_FLIGHT or (
            instance.state is InstanceState.RUNNING and instance.node_id not in known
        )
        if not coming or instance.id in leaving or instance.node_type not in snapshot.profiles:
            continue
        origin = Origin.QUEUED if instance.state is InstanceState.QUEUED else Origin.COMING
        entries.append(new_class(snapshot.profiles[instance.node_type], origin, [instance.id], names, keys))
    return Pool.of(entries)


def new_class(
    profile: Profile, origin: Origin, members: list[str], names: frozenset[str], keys: frozenset[str]
) -> NodeClass:
    """Idle nodes of a type, reduced to what the demand asks about."""
    total = _only(profile.resources, names)
    labels = {key: value for key, value in profile.labels.items() if key in keys}
    return NodeClass(origin, profile.node_type, dict(total), total, labels, members)


def _only(amounts: Mapping[str, int], names: frozenset[str]) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if name in names}
