"""What the cluster asks for, brought into counted shapes: equal requests are one entry with a number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from runtime._core.labels import matches
from runtime._core.placement import is_group_resource
from runtime._core.resources import UNIT, describe, fits
from runtime._wire.messages.base import Demand as Waiting
from runtime._wire.messages.base import NodeInfo
from runtime._wire.messages.control import ClusterState, PendingGroup, Requester


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """What one request needs of a node: resources in 1/10 000 units and a label selector, both sorted; with
    `fallbacks`, a node that one of these selectors accepts will do as well, the earlier the better.
    """

    resources: tuple[tuple[str, int], ...]
    selector: tuple[tuple[str, str], ...] = ()
    fallbacks: tuple[tuple[tuple[str, str], ...], ...] = ()

    @classmethod
    def of(
        cls,
        resources: Mapping[str, int],
        selector: Mapping[str, str] | None = None,
        fallbacks: Iterable[Mapping[str, str]] = (),
    ) -> Shape:
        amounts = tuple(sorted((name, amount) for name, amount in resources.items() if amount > 0))
        others = tuple(tuple(sorted(fallback.items())) for fallback in fallbacks)
        return cls(amounts, tuple(sorted((selector or {}).items())), others)

    def __str__(self) -> str:
        return describe(dict(self.resources), dict(self.selector), map(dict, self.fallbacks))

    def rank(self, labels: Mapping[str, str]) -> int | None:
        """Which of its selectors is the first to accept a node with `labels`: 0 for the wanted one, more for
        fallbacks; None: it may not go there. A selector that does not parse accepts none.
        """
        if not self.selector:
            return 0
        for position, selector in enumerate((self.selector, *self.fallbacks)):
            try:
                if matches(dict(selector), labels):
                    return position
            except ValueError:
                continue
        return None

    def accepts(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with `labels` may hold it."""
        return self.rank(labels) is not None

    def fits(self, resources: Mapping[str, int], labels: Mapping[str, str]) -> bool:
        """Whether an idle node with `resources` and `labels` could hold one."""
        return fits(dict(self.resources), resources) and self.accepts(labels)


@dataclass(frozen=True, slots=True)
class Gang:
    """A placement group that waits: all bundles or none.

    Attributes:
        placed: node id per bundle that has one already (some nodes of the group were lost); b"" for the
            others.
        domain: a label's key: all bundles go to nodes that have the same value of it.
    """

    id: bytes
    strategy: str
    bundles: tuple[Shape, ...]
    placed: tuple[bytes, ...] = ()
    domain: str = ""

    def __str__(self) -> str:
        counts: dict[Shape, int] = {}
        for bundle in self.bundles:
            counts[bundle] = counts.get(bundle, 0) + 1
        parts = ", ".join(f"{count} x {shape}" for shape, count in counts.items())
        within = f" within one {self.domain}" if self.domain else ""
        return f"placement group {self.strategy} [{parts}]{within}"

    @property
    def strictness(self) -> int:
        """Smaller is harder to place."""
        order = ("STRICT_PACK", "STRICT_SPREAD", "PACK", "SPREAD")
        return order.index(self.strategy) if self.strategy in order else len(order)

    @property
    def rest(self) -> Shape:
        """All bundles that have no node yet, as one."""
        amounts: dict[str, int] = {}
        selector: dict[str, str] = {}
        for bundle in self.missing:
            selector.update(bundle.selector)
            for name, amount in bundle.resources:
                amounts[name] = amounts.get(name, 0) + amount
        return Shape.of(amounts, selector)

    @property
    def missing(self) -> tuple[Shape, ...]:
        """The bundles that have no node yet."""
        placed = (*self.placed, *(b"" for _ in range(len(self.bundles) - len(self.placed))))
        return tuple(bundle for bundle, node_id in zip(self.bundles, placed, strict=True) if not node_id)


@dataclass(frozen=True, slots=True)
class ExplicitRequest:
    """What one owner asked to be kept ready, counted.

    Attributes:
        expires_s: unix time; 0: it has no end of its own.
        job_id: the program that it ends with; b"" when it outlives its program.
    """

    owner: str
    wanted: tuple[tuple[Shape, int], ...]
    expires_s: float = 0.0
    job_id: bytes = b""


@dataclass(frozen=True, slots=True)
class Demand:
    """All that is asked for at one moment.

    Attributes:
        shapes: waiting tasks and actors, counted.
        gangs: waiting placement groups.
        explicit: what programs asked to be kept ready, counted; measured against whole nodes, used or not.
        pinned: ids of nodes that waiting work names; they are kept.
        requests: the same as `explicit`, owner by owner.
        names: every resource that is asked for.
        label_keys: every label that is asked about.
    """

    shapes: tuple[tuple[Shape, int], ...] = ()
    gangs: tuple[Gang, ...] = ()
    explicit: tuple[tuple[Shape, int], ...] = ()
    pinned: frozenset[bytes] = frozenset()
    requests: tuple[ExplicitRequest, ...] = ()
    names: frozenset[str] = field(init=False)
    label_keys: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        shapes = set(self._all())
        names = frozenset(name for shape in shapes for name, _ in shape.resources)
        keys = frozenset(
            key for shape in shapes for selector in (shape.selector, *shape.fallbacks) for key, _ in selector
        )
        domains = frozenset(gang.domain for gang in self.gangs if gang.domain)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "label_keys", keys | domains)

    def _all(self) -> Iterable[Shape]:
        for shape, _ in self.shapes:
            yield shape
        for shape, _ in self.explicit:
            yield shape
        for bundles in {id(gang.bundles): gang.bundles for gang in self.gangs}.values():  # mostly shared
            yield from bundles


def demand_of(state: ClusterState) -> Demand:
    """Reads the demand out of the control store's picture.

    Requests that only a certain node can serve ask for no machine; neither do those inside a placement group,
    whose resources exist only where the group is.
    """
    shapes: dict[Shape, int] = {}
    pinned: set[bytes] = set()
    nodes = {node.node_id: node for node in state.nodes if node.state == "ALIVE"}
    for waiting in state.demands:
        strategy = waiting.request.strategy
        if strategy.kind == "NODE_AFFINITY":
            pinned.add(strategy.node_id)
            if not strategy.soft or _waits_for_its_node(waiting, nodes.get(strategy.node_id)):
                continue
        if waiting.count <= 0 or any(is_group_resource(name) for name in waiting.request.resources):
            continue
        shape = Shape.of(waiting.request.resources, strategy.labels, strategy.fallbacks)
        shapes[shape] = shapes.get(shape, 0) + waiting.count
    requests = _requests(state)
    explicit: dict[Shape, int] = {}
    for shape, count in (entry for request in requests for entry in request.wanted):
        explicit[shape] = explicit.get(shape, 0) + count
    return Demand(
        tuple(shapes.items()), _gangs(state.groups), tuple(explicit.items()), frozenset(pinned), requests
    )


def lasting(before: ClusterState, after: ClusterState) -> ClusterState:
    """The first of two pictures, with what waited in both (of equal requests, the smaller number), and without the
    idleness of nodes that were busy in one of them.
    """
    still = {_key(waiting): waiting.count for waiting in after.demands}
    busy = {node.node_id for node in after.nodes if not node.idle_since_s}
    return msgspec.structs.replace(
        before,
        demands=[
            msgspec.structs.replace(waiting, count=min(waiting.count, still[key]))
            for waiting in before.demands
            if (key := _key(waiting)) in still
        ],
        nodes=[
            msgspec.structs.replace(node, idle_since_s=0.0)
            if node.idle_since_s and node.node_id in busy
            else node
            for node in before.nodes
        ],
    )


def _key(waiting: Waiting) -> bytes:
    return msgspec.msgpack.encode(waiting.request, order="deterministic")


def _gangs(groups: Iterable[PendingGroup]) -> tuple[Gang, ...]:
    """Thousands of groups are mostly alike, and share their bundles here."""
    known: dict[bytes, tuple[Shape, ...]] = {}
    gangs = []
    for group in groups:
        key = msgspec.msgpack.encode((group.bundles, group.selectors))
        bundles = known.get(key)
        if bundles is None:
            bundles = known[key] = _shapes(group)
        gangs.append(Gang(group.pg_id, group.strategy, bundles, tuple(group.placed), group.domain))
    return tuple(gangs)


def gang_of(group: PendingGroup) -> Gang:
    """A placement group that waits, as the planner sees it."""
    return Gang(group.pg_id, group.strategy, _shapes(group), tuple(group.placed), group.domain)


def _shapes(group: PendingGroup) -> tuple[Shape, ...]:
    return tuple(_bundle(group.bundles, group.selectors, index) for index in range(len(group.bundles)))


def _requests(state: ClusterState) -> tuple[ExplicitRequest, ...]:
    counts = state.requested_counts or [1] * len(state.requested)
    requests = []
    start = 0
    for who in state.requesters or [Requester("", len(state.requested))]:
        wanted: dict[Shape, int] = {}
        for index in range(start, start + who.size):
            shape = _bundle(state.requested, state.requested_selectors, index)
            if shape.resources:
                wanted[shape] = wanted.get(shape, 0) + counts[index]
        start += who.size
        if wanted:
            requests.append(ExplicitRequest(who.owner, tuple(wanted.items()), who.expires_s, who.job_id))
    return tuple(requests)


def _waits_for_its_node(waiting: Waiting, node: NodeInfo | None) -> bool:
    """Whether a soft wish for a node waits until that node has room, as the scheduler does while it could hold
    it."""
    strategy = waiting.request.strategy
    return (
        node is not None
        and strategy.busy == "WAIT"
        and Shape.of(waiting.request.resources, strategy.labels).fits(node.total, node.labels)
    )


def _bundle(
    bundles: Sequence[Mapping[str, int]], selectors: Sequence[Mapping[str, str]], index: int
) -> Shape:
    return Shape.of(bundles[index], selectors[index] if index < len(selectors) else None)


COMMON = ("CPU", "memory", "object_store_memory")
"""What nearly every node has."""


def scarcity(shape: Shape, largest: Mapping[str, int]) -> tuple[int, float, int, Shape]:
    """Sort key, hardest first: special resources and selectors before common ones, big before small.

    Args:
        largest: per resource, the most that one node of any kind has.
    """
    special = sum(1 for name, _ in shape.resources if name not in COMMON) + len(shape.selector)
    share = max((amount / max(largest.get(name, 0), 1) for name, amount in shape.resources), default=0.0)
    total = sum(amount for name, amount in shape.resources if name in ("CPU", "GPU"))
    return -special, -share, -total // UNIT, shape
