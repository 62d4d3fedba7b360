"""One consistent, immutable picture of everything a plan depends on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from autoscaler.config import AutoscalerConfig
from autoscaler.demand import Demand
from autoscaler.instances import IN_FLIGHT, Instance, InstanceState
from autoscaler.loads import Load
from autoscaler.offerings import Market
from autoscaler.packing import NodeClass, Origin, Pool
from autoscaler.provider import NodeType, Offer, machine_labels
from runtime._core.placement import is_group_resource
from runtime._core.resources import Resources, to_units
from runtime._wire.messages.base import NodeInfo

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Profile:
    """What a node of a type will bring, as the scheduler will see it. Amounts in 1/10 000 units."""

    kind: NodeType
    resources: Mapping[str, int]

    @property
    def node_type(self) -> str:
        return self.kind.name

    def labels_from(self, zone: str, market: str) -> dict[str, str]:
        """The labels of its node on a machine from there."""
        return machine_labels(self.kind, zone, market)


def observed(nodes: Iterable[NodeInfo]) -> Resources | None:
    """What every one of some nodes brings at least; None when there are none."""
    seen: Resources | None = None
    for node in nodes:
        total = node.total
        if seen is None:
            seen = {
                name: amount
                for name, amount in total.items()
                if not is_group_resource(name) and not name.startswith("node:")
            }
        else:
            seen = {name: min(amount, total[name]) for name, amount in seen.items() if name in total}
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
        return Profile(kind, declared)
    resources = {name: min(amount, seen.get(name, 0)) for name, amount in declared.items()}
    resources.update({name: amount for name, amount in seen.items() if name not in declared})
    return Profile(kind, {name: amount for name, amount in resources.items() if amount})


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything `plan` looks at.

    Attributes:
        nodes: the cluster's nodes, dead ones too.
        instances: all that is tracked.
        markets: per type, the offers that may be taken now.
        profiles: per type, what a new node brings.
        held: types whose machines failed their setup lately -> why they rest.
        loads: what runs on the busy nodes.
        spare_since_s: instances whose work has room elsewhere -> since when.
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
    loads: Mapping[bytes, Load] = field(default_factory=dict)
    spare_since_s: Mapping[str, float] = field(default_factory=dict)


def pool_of(
    snapshot: Snapshot,
    leaving: frozenset[str],
    *,
    back: Collection[str] = (),
    spare: Collection[str] = (),
    whole: bool = False,
) -> Pool:
    """All capacity that is or will be there without this plan.

    Among equal nodes those that work go first, and those idle longest go last, so that these can be removed.

    Args:
        snapshot: the picture.
        leaving: instances that the plan has already decided to remove.
        back: draining instances that go back to work.
        spare: draining instances that would, if they were of use.
        whole: look at nodes as if they were idle.
    """
    names = asked_names(snapshot.demand)
    keys = snapshot.demand.label_keys
    by_node = {instance.node_id: instance for instance in snapshot.instances if instance.node_id}
    shared = _Labels(keys)
    merged: dict[object, NodeClass] = {}
    ordered = sorted(
        (node for node in snapshot.nodes if node.state != "DEAD"),
        key=lambda node: (node.idle_since_s > 0, -node.idle_since_s, node.node_id),
    )
    known_ids: set[bytes] = set()
    for node in ordered:
        owner = by_node.get(node.node_id)
        origin = _origin(node, owner, back, spare)
        if origin is Origin.EXISTING:
            known_ids.add(node.node_id)
        if origin is None or (owner is not None and owner.id in leaving):
            continue
        amounts = node.total if whole else node.available
        kind = owner.node_type if owner is not None else node.node_type
        labels = shared.of(node.labels)
        # Most nodes are like one seen before, so that what makes them so is compared before anything is made.
        key = (
            origin,
            kind,
            id(labels),
            *[amounts.get(name) for name in names],
            *[node.total.get(name) for name in names],
        )
        known = merged.get(key)
        if known is not None:
            known.members.append(node.node_id.hex())
            continue
        total = only(node.total, names)
        available = dict(total) if whole else only(node.available, names)
        merged[key] = NodeClass(origin, kind, available, total, labels, [node.node_id.hex()])
    entries = list(merged.values())
    by_kind: dict[tuple[Origin, str, str, str], list[str]] = {}
    for instance in snapshot.instances:
        coming = instance.state in IN_FLIGHT or (
            instance.state is InstanceState.RUNNING and instance.node_id not in known_ids
        )
        if not coming or instance.id in leaving or instance.node_type not in snapshot.profiles:
            continue
        origin = Origin.QUEUED if instance.state is InstanceState.QUEUED else Origin.COMING
        offer = instance.offer
        by_kind.setdefault((origin, instance.node_type, offer.zone, offer.market), []).append(instance.id)
    for (origin, node_type, zone, market), members in by_kind.items():
        profile = snapshot.profiles[node_type]
        labels = shared.of(profile.labels_from(zone, market))
        entries.append(new_class(profile, origin, sorted(members), names, labels))
    return Pool.of(entries)


def _origin(
    node: NodeInfo, owner: Instance | None, back: Collection[str], spare: Collection[str]
) -> Origin | None:
    """What a node is to a plan; None: nothing."""
    if owner is not None and owner.state is InstanceState.DRAINING and node.state != "DEAD":
        if owner.id in back:
            return Origin.EXISTING
        return Origin.DRAINING if owner.id in spare else None
    works = node.state == "ALIVE" or (node.state == "DRAINING" and owner is not None and owner.recalled)
    if not works or (owner is not None and owner.state is not InstanceState.RUNNING):
        return None
    return Origin.EXISTING


def asked_names(demand: Demand) -> tuple[str, ...]:
    """The resources that a plan looks at."""
    return tuple(sorted(demand.names | {"CPU", "GPU"}))


class _Labels:
    """Labels reduced to the keys that are asked about; equal ones are one object."""

    def __init__(self, keys: frozenset[str]) -> None:
        self._keys = sorted(keys)
        self._known: dict[tuple[str | None, ...], dict[str, str]] = {}

    def of(self, labels: Mapping[str, str]) -> dict[str, str]:
        values = tuple([labels.get(key) for key in self._keys])
        known = self._known.get(values)
        if known is None:
            known = self._known[values] = only(labels, self._keys)
        return known


def new_class(
    profile: Profile, origin: Origin, members: list[str], names: Iterable[str], labels: Mapping[str, str]
) -> NodeClass:
    """Idle nodes of a type, reduced to what the demand asks about."""
    total = only(profile.resources, names)
    return NodeClass(origin, profile.node_type, dict(total), total, labels, members)


def only(items: Mapping[str, T], names: Iterable[str]) -> dict[str, T]:
    """Some of the items."""
    return {name: items[name] for name in names if name in items}
