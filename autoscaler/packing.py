"""Counted packing: equal nodes are one class with members, equal requests one shape with a count.

The cost grows with shapes times classes, not with requests times nodes: a thousand equal nodes are one entry
until something makes them differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from autoscaler.demand import Shape
from runtime._core.placement import NodeView

_UNBOUNDED = 1 << 60


class Origin(IntEnum):
    """Where a class's capacity comes from, best first."""

    EXISTING = 0  # nodes of the cluster
    COMING = 1  # machines that boot or are set up
    QUEUED = 2  # asked for by us, not yet of the platform
    NEW = 3  # this plan's own


@dataclass(slots=True, eq=False)
class NodeClass:
    """Nodes that are alike in all that the demand asks about.

    Attributes:
        available: what each member has left, 1/10 000 units.
        total: what each member has when idle.
        members: names of the nodes: node ids in hex, or instance ids.
        used: this plan put something there.
    """

    origin: Origin
    node_type: str
    available: dict[str, int]
    total: Mapping[str, int]
    labels: Mapping[str, str]
    members: list[str]
    used: bool = False

    def copies(self, shape: Shape) -> int:
        """How many of `shape` one member holds beside what it has."""
        if shape.selector and not shape.accepts(self.labels):
            return 0
        return copies_in(shape, self.available)

    def deduct(self, shape: Shape, copies: int) -> None:
        for name, amount in shape.resources:
            self.available[name] -= amount * copies
        self.used = True

    def split(self, count: int) -> NodeClass:
        """Takes the first `count` members out into a class of their own."""
        taken, self.members = self.members[:count], self.members[count:]
        return NodeClass(
            self.origin, self.node_type, dict(self.available), self.total, self.labels, taken, self.used
        )

    def copy(self) -> NodeClass:
        return NodeClass(
            self.origin,
            self.node_type,
            dict(self.available),
            self.total,
            self.labels,
            list(self.members),
            self.used,
        )


def copies_in(shape: Shape, available: Mapping[str, int]) -> int:
    """How many of `shape` fit into `available`. A shape that needs nothing fits without bound."""
    most = _UNBOUNDED
    for name, amount in shape.resources:
        here = available.get(name, 0) // amount
        if here < most:
            if here <= 0:
                return 0
            most = here
    return most


@dataclass(frozen=True, slots=True)
class Floor:
    """The least any shape asks for, to tell early that a node is full.

    Attributes:
        always: resource -> smallest amount, for the resources that every shape needs.
    """

    always: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, shapes: Iterable[Shape]) -> Floor:
        least: dict[str, int] | None = None
        for shape in shapes:
            amounts = dict(shape.resources)
            if least is None:
                least = amounts
            else:
                least = {
                    name: min(amount, amounts[name]) for name, amount in least.items() if name in amounts
                }
        return cls(tuple((least or {}).items()))

    def is_full(self, available: Mapping[str, int]) -> bool:
        """Whether none of the shapes fits any more, as far as this can tell."""
        return any(available.get(name, 0) < amount for name, amount in self.always)


@dataclass(slots=True)
class Pool:
    """All capacity of one plan."""

    classes: list[NodeClass] = field(default_factory=list)
    full: list[NodeClass] = field(default_factory=list)

    @classmethod
    def of(cls, nodes: Iterable[NodeClass]) -> Pool:
        """Merges single nodes (or classes) that are alike, nearest origin first."""
        merged: dict[object, NodeClass] = {}
        for node in nodes:
            key = (
                node.origin,
                node.node_type,
                tuple(sorted(node.available.items())),
                tuple(sorted(node.total.items())),
                tuple(sorted(node.labels.items())),
            )
            known = merged.get(key)
            if known is None:
                merged[key] = node
            else:
                known.members.extend(node.members)
        return cls(sorted(merged.values(), key=lambda entry: entry.origin))

    def __iter__(self) -> Iterator[NodeClass]:
        yield from self.classes
        yield from self.full

    def add(self, entry: NodeClass) -> None:
        """Adds capacity behind what is there."""
        self.classes.append(entry)

    def place(self, shape: Shape, count: int) -> int:
        """Places up to `count` of `shape`; returns how many found no room.

        Work that needs no GPU goes to nodes with GPUs last, as the scheduler does it.
        """
        if not shape.resources:
            return self._place_nothing(shape, count)
        wants_gpu = any(name == "GPU" for name, _ in shape.resources)
        has_gpu_nodes = not wants_gpu and any(entry.total.get("GPU") for entry in self.classes)
        passes: Sequence[bool | None] = (False, True) if has_gpu_nodes else (None,)
        for gpu in passes:
            index = 0
            while index < len(self.classes) and count > 0:
                entry = self.classes[index]
                index += 1
                if gpu is not None and bool(entry.total.get("GPU")) is not gpu:
                    continue
                copies = entry.copies(shape)
                if copies <= 0:
                    continue
                whole, rest = divmod(count, copies)
                if whole >= len(entry.members):
                    entry.deduct(shape, copies)
                    count -= copies * len(entry.members)
                    continue
                count = 0
                pieces = []
                if whole:
                    filled = entry.split(whole)
                    filled.deduct(shape, copies)
                    pieces.append(filled)
                if rest:
                    partly = entry.split(1)
                    partly.deduct(shape, rest)
                    pieces.append(partly)
                self.classes[index - 1 : index - 1] = pieces
                if not entry.members:
                    self.classes.remove(entry)
                return 0
        return count

    def _place_nothing(self, shape: Shape, count: int) -> int:
        """Work that needs no resources goes anywhere its selector allows."""
        entry = next((entry for entry in self if shape.accepts(entry.labels)), None)
        if entry is None:
            return count
        if not entry.used:
            chosen = entry.split(1)
            chosen.used = True
            self.classes.append(chosen)
            if not entry.members:
                self.classes = [other for other in self.classes if other is not entry]
                self.full = [other for other in self.full if other is not entry]
        return 0

    def set_full_aside(self, floor: Floor) -> None:
        """Stops looking at nodes that can hold nothing any more."""
        if floor.always:
            full = [entry for entry in self.classes if floor.is_full(entry.available)]
            if full:
                self.full.extend(full)
                self.classes = [entry for entry in self.classes if not floor.is_full(entry.available)]

    def views(
        self,
        useful: Sequence[Shape],
        most_per_class: int,
        named: frozenset[str] = frozenset(),
        *,
        farthest: Origin = Origin.NEW,
        most: int = _UNBOUNDED,
    ) -> list[NodeView]:
        """Nodes as placement sees them, of the classes that can hold one of `useful`.

        A group of n bundles never uses more than n of equal nodes, so n of each are as good as all.

        Args:
            named: members that are needed in any case.
            farthest: classes of later origins are left out.
            most: enough nodes; those `named` come on top.
        """
        out: list[NodeView] = []
        for entry in self:
            if entry.origin > farthest:
                continue
            wanted = len(out) < most and any(entry.copies(shape) > 0 for shape in useful)
            chosen = entry.members[:most_per_class] if wanted else []
            if named:
                chosen = chosen + [name for name in entry.members if name in named and name not in chosen]
            out += [
                NodeView(name.encode(), dict(entry.total), dict(entry.available), entry.labels)
                for name in chosen
            ]
        return out

    def take(self, usage: Mapping[str, Sequence[Shape]]) -> None:
        """Deducts shapes from single members (by name), which thereby leave their class."""
        for entry in list(self.classes + self.full):
            touched = [name for name in entry.members if name in usage]
            if not touched:
                continue
            home = self.classes if entry in self.classes else self.full
            alike: dict[tuple[Shape, ...], NodeClass] = {}
            for name in touched:
                shapes = tuple(sorted(usage[name]))
                if shapes in alike:
                    alike[shapes].members.append(name)
                    continue
                single = NodeClass(
                    entry.origin, entry.node_type, dict(entry.available), entry.total, entry.labels, [name]
                )
                for shape in shapes:
                    single.deduct(shape, 1)
                alike[shapes] = single
            entry.members = [name for name in entry.members if name not in usage]
            position = next(i for i, other in enumerate(home) if other is entry)
            home[position : position + 1] = [*alike.values(), *([entry] if entry.members else [])]

    def compact(self) -> None:
        """Merges classes that have become alike."""
        used = Pool.of(entry for entry in self.classes if entry.used)
        unused = Pool.of(entry for entry in self.classes if not entry.used)
        self.classes = sorted([*used.classes, *unused.classes], key=lambda entry: entry.origin)

    def used(self) -> set[str]:
        """Names of the nodes on which something was placed."""
        return {name for entry in self if entry.used for name in entry.members}

    def copy(self) -> Pool:
        """An overlay to try things on: throw it away, or put it in this one's place."""
        return Pool([entry.copy() for entry in self.classes], [entry.copy() for entry in self.full])
