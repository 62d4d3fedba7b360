"""Which busy nodes can go because what they run has room elsewhere: on nodes that stay, or on a cheaper machine.

An opt-in. Only leases move, and only as tasks: a drained node finishes what runs, and what has not begun goes
to other nodes. A node that holds an actor, a placement group, a driver or the only copy of an object is not
touched. The planner's pool says where what runs would go, and what it counts on is kept until the node is gone,
so that nothing is launched for the same work afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from autoscaler.budgets import Limits, count_by_type
from autoscaler.config import Cause, Consolidation
from autoscaler.demand import Shape
from autoscaler.disruption import Disruptions
from autoscaler.instances import ACTIVE, IN_FLIGHT, Instance, InstanceState
from autoscaler.loads import Load
from autoscaler.packing import NodeClass, Origin, Pool
from autoscaler.policy import Candidate, Menu
from autoscaler.scale_down import Removal, Way
from autoscaler.snapshot import Snapshot, new_class, only
from autoscaler.wishes import Launch
from runtime._wire.messages.base import NodeInfo

MOST_LOOKED_AT = 50
"""So many nodes are tried in one plan, those first that had room elsewhere before."""
REASON = "a cheaper machine for what a little used node runs"


@dataclass(slots=True)
class Consolidated:
    """What one plan consolidates.

    Attributes:
        spare: the instances whose work has room elsewhere, due or not; None: it was no time to ask.
        kept: nodes and machines in flight that it counts on, by the pool's names.
        times: when one of `spare` is due.
    """

    removals: list[Removal] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    spare: frozenset[str] | None = None
    kept: set[str] = field(default_factory=set)
    times: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Node:
    """A running worker that may go."""

    instance: Instance
    info: NodeInfo
    load: Load
    used: float

    @property
    def name(self) -> str:
        return self.info.node_id.hex()

    @property
    def price(self) -> float:
        return self.instance.offer.price


def consolidate(
    snapshot: Snapshot,
    menu: Menu,
    limits: Limits,
    used: Collection[str],
    leaving: Collection[str],
    disruptions: Disruptions,
    *,
    is_quiet: bool,
) -> Consolidated:
    """Decides what goes.

    Args:
        snapshot: the picture.
        menu: what may be launched.
        limits: what the plan has left.
        used: names of nodes that waiting work or explicit requests are about to use: they stay.
        leaving: instances that go already.
        disruptions: what may still be drained; it is taken from.
        is_quiet: nothing waits that will be served. Otherwise nothing new is begun.
    """
    settings = snapshot.config.consolidation
    out = Consolidated()
    moving = list(_on_the_move(snapshot))
    if settings is None or not (moving or is_quiet):
        return out
    work = _Work(snapshot, leaving)
    for load in moving:
        work.pool = work.placed(work.pool, load) or work.pool
    if is_quiet:
        spare: list[str] = []
        for node in _little_used(snapshot, settings, used, leaving):
            if node.name in work.pool.used() or not work.is_above_minimum(node.instance.node_type):
                continue
            due_s = snapshot.spare_since_s.get(node.instance.id, snapshot.now) + settings.after_s
            is_due = due_s <= snapshot.now
            left = work.without(node)
            # No node is drained for the room of a machine that is not there yet and may never come.
            there = Pool([entry for entry in left if entry.origin is Origin.EXISTING])
            rest = work.placed(there, node.load)
            if rest is not None:
                if is_due and disruptions.take(Cause.CONSOLIDATION):
                    reason = f"what it runs ({node.used:.0%} of it) has room on other nodes"
                    out.removals.append(Removal(node.instance.id, Way.DRAIN, reason, Cause.CONSOLIDATION))
            else:
                rest = _on_cheaper(work, left, node, menu, limits, out, disruptions if is_due else None)
                if rest is None:
                    continue
            spare.append(node.instance.id)
            if not is_due:
                out.times.append(due_s)
            work.go(node, rest)
        out.spare = frozenset(spare)
    out.kept = {name for name in work.pool.used() if not name.startswith("new:")}
    return out


def _on_cheaper(
    work: _Work,
    left: Pool,
    node: _Node,
    menu: Menu,
    limits: Limits,
    out: Consolidated,
    disruptions: Disruptions | None,
) -> Pool | None:
    """The pool after the node's work was put on a cheaper machine that is on its way, or is launched now
    (`disruptions` is not None). Launched one at a time, as it is there for a while beside the other."""
    if not node.price:
        return None
    coming = [entry for entry in work.coming() if 0 < work.price_of(entry) < node.price]
    rest = work.placed(_plus(left, coming), node.load)
    if rest is not None or disruptions is None or coming or out.launches:
        return rest
    if disruptions.left(Cause.CONSOLIDATION) == 0 or work.is_growing:
        return None
    cheaper = [option for option in menu.open(limits) if 0 < option.offer.price < node.price]
    for option in sorted(cheaper, key=lambda option: (option.offer.price, option.name)):
        rest = work.placed(_plus(left, [work.fresh(option)]), node.load)
        if rest is not None:
            out.launches.append(Launch(option.name, option.offer, 1, REASON))
            return rest
    return None


class _Work:
    """The nodes that stay, and what is put on them."""

    def __init__(self, snapshot: Snapshot, leaving: Collection[str]) -> None:
        self._snapshot = snapshot
        self._leaving = leaving
        shapes = [shape for load in snapshot.loads.values() for shape, _ in load.shapes]
        self._names = sorted({name for shape in shapes for name, _ in shape.resources} | {"CPU", "GPU"})
        self._keys = sorted(
            {
                key
                for shape in shapes
                for selector in (shape.selector, *shape.fallbacks)
                for key, _ in selector
            }
        )
        self._minimum = {kind.name: kind.min_workers for kind in snapshot.config.node_types}
        staying = [one for one in snapshot.instances if one.id not in leaving]
        self._counts = dict(count_by_type(staying, ACTIVE))
        self._prices: dict[str, float] = {}
        self._idle: dict[str, float] = {}  # removable nodes that hold nothing -> price
        self.is_growing = any(one.state in IN_FLIGHT for one in staying)
        self.pool = Pool.of(self._existing(staying))

    def _existing(self, staying: Iterable[Instance]) -> Iterable[NodeClass]:
        by_node = {one.node_id: one for one in self._snapshot.instances if one.node_id}
        stays = {one.id for one in staying if one.state is InstanceState.RUNNING}
        # Among equal nodes, those that work go first, and those idle longest last, so that these can be removed.
        for node in sorted(
            self._snapshot.nodes, key=lambda node: (node.idle_since_s > 0, -node.idle_since_s, node.node_id)
        ):
            owner = by_node.get(node.node_id)
            if node.state != "ALIVE" or (owner is not None and owner.id not in stays):
                continue
            name = node.node_id.hex()
            if owner is not None and node.idle_since_s and self.is_above_minimum(owner.node_type):
                self._idle[name] = owner.offer.price
            yield NodeClass(
                Origin.EXISTING,
                node.node_type,
                only(node.available, self._names),
                only(node.total, self._names),
                only(node.labels, self._keys),
                [name],
            )

    def coming(self) -> list[NodeClass]:
        """Machines on their way."""
        found = []
        for one in self._snapshot.instances:
            profile = self._snapshot.profiles.get(one.node_type)
            if one.state in IN_FLIGHT and one.id not in self._leaving and profile is not None:
                labels = only(profile.labels_from(one.offer.zone, one.offer.market), self._keys)
                found.append(new_class(profile, Origin.COMING, [one.id], self._names, labels))
                self._prices[one.id] = one.offer.price
        return found

    def price_of(self, entry: NodeClass) -> float:
        """Of a machine on its way."""
        return self._prices[entry.members[0]]

    def fresh(self, option: Candidate) -> NodeClass:
        """A machine that could be launched."""
        labels = only(option.profile.labels_from(option.offer.zone, option.offer.market), self._keys)
        return new_class(option.profile, Origin.NEW, [f"new:{option.name}"], self._names, labels)

    def is_above_minimum(self, node_type: str) -> bool:
        return self._counts.get(node_type, 0) > self._minimum.get(node_type, 0)

    def without(self, node: _Node) -> Pool:
        """Where the work of a node may go: nodes that stay anyway, and idle ones only if they are cheaper, for
        otherwise nothing is saved."""
        gone = {name for name, price in self._idle.items() if not 0 < price < node.price} | {node.name}
        gone -= self.pool.used()
        entries = [entry.alike([m for m in entry.members if m not in gone]) for entry in self.pool]
        return Pool([entry for entry in entries if entry.members])

    def placed(self, pool: Pool, load: Load) -> Pool | None:
        """The pool with a load put on it; None when it has no room for all."""
        trial = Pool([entry.alike(list(entry.members)) for entry in pool])
        for shape, count in sorted(load.shapes, key=_hardest_first):
            if trial.place(shape, count):
                return None
        return trial

    def go(self, node: _Node, rest: Pool) -> None:
        """The node is given up; `rest` is what stays, with its work."""
        seen = {name for entry in rest for name in entry.members}
        others = [
            entry.alike([m for m in entry.members if m not in seen and m != node.name]) for entry in self.pool
        ]
        self.pool = _plus(rest, [entry for entry in others if entry.members])
        self._counts[node.instance.node_type] -= 1


def _on_the_move(snapshot: Snapshot) -> Iterable[Load]:
    """What nodes hold that drain: the room for it is spoken for."""
    for one in snapshot.instances:
        if one.state is InstanceState.DRAINING and one.cause is Cause.CONSOLIDATION:
            yield snapshot.loads.get(one.node_id, Load())


def _plus(pool: Pool, entries: Iterable[NodeClass]) -> Pool:
    more = Pool([entry.alike(list(entry.members)) for entry in pool])
    for entry in entries:
        more.add(entry)
    return more


def _hardest_first(entry: tuple[Shape, int]) -> tuple[int, int, Shape]:
    shape, _ = entry
    return -len(shape.selector) - len(shape.resources), -sum(amount for _, amount in shape.resources), shape


def _little_used(
    snapshot: Snapshot, settings: Consolidation, used: Collection[str], leaving: Collection[str]
) -> list[_Node]:
    """The nodes worth a look: those first that had room elsewhere for longest, then dear ones, then the
    emptiest."""
    nodes: Mapping[bytes, NodeInfo] = {node.node_id: node for node in snapshot.nodes if node.state == "ALIVE"}
    found: list[_Node] = []
    for instance in snapshot.instances:
        info = nodes.get(instance.node_id)
        load = snapshot.loads.get(instance.node_id)
        if (
            instance.state is not InstanceState.RUNNING
            or instance.recalled
            or instance.not_before_s > snapshot.now
            or info is None
            or info.idle_since_s
            or load is None
            or not load.shapes
            or load.bound_by
            or instance.id in leaving
            or info.node_id.hex() in used
            or info.node_id in snapshot.demand.pinned
        ):
            continue
        share = _share(info)
        if share <= settings.max_used:
            found.append(_Node(instance, info, load, share))
    never = snapshot.now + 1.0
    found.sort(
        key=lambda node: (
            snapshot.spare_since_s.get(node.instance.id, never),
            -node.price,
            node.used,
            node.instance.id,
        )
    )
    return found[:MOST_LOOKED_AT]


def _share(node: NodeInfo) -> float:
    """How much of a node is taken, by the resource of which most is."""
    return max(
        (1 - node.available.get(name, 0) / amount for name, amount in node.total.items() if amount > 0),
        default=0.0,
    )
