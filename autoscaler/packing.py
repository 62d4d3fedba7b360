"""Counted packing: equal nodes are one class with members, equal requests one shape with a count.

The cost grows with shapes times classes, not with requests times nodes: a thousand equal nodes are one entry
until something makes them differ.
"""

from __future__ import annotations

from bisect import insort_left, insort_right
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from autoscaler.demand import COMMON, Shape
from runtime._core.placement import NodeView

_UNBOUNDED = 1 << 60


class Origin(IntEnum):
    """Where a class's capacity comes from, best first."""

    EXISTING = 0  # nodes of the cluster
    DRAINING = 1  # nodes whose drain can be called off
    COMING = 2  # machines that boot or are set up
    QUEUED = 3  # asked for by us, not yet of the platform
    NEW = 4  # this plan's own


@dataclass(slots=True, eq=False)
class NodeClass:
    """Nodes that are alike in all that the demand asks about.

    Attributes:
        available: what each member has left, 1/10 000 units.
        total: what each member has when idle.
        members: names of the nodes: node ids in hex, or instance ids. Those at the front are used first.
        used: this plan put something there.
        holds: of new nodes: whose demand was put on each, and how many copies of it.
    """

    origin: Origin
    node_type: str
    available: dict[str, int]
    total: Mapping[str, int]
    labels: Mapping[str, str]
    members: list[str]
    used: bool = False
    holds: tuple[tuple[Hashable, int], ...] = ()

    @property
    def has_gpus(self) -> bool:
        return bool(self.total.get("GPU"))

    def deduct(self, shape: Shape, copies: int, owner: Hashable = None) -> None:
        for name, amount in shape.resources:
            self.available[name] -= amount * copies
        self.used = True
        if self.origin is Origin.NEW:
            self.holds += ((owner, copies),)

    def deduct_all(self, shapes: Iterable[Shape], owner: Hashable) -> None:
        for shape in shapes:
            self.deduct(shape, 1, owner)

    def split(self, count: int) -> NodeClass:
        """Takes the first `count` members out into a class of their own."""
        taken, self.members = self.members[:count], self.members[count:]
        return self.alike(taken)

    def alike(self, members: list[str]) -> NodeClass:
        """A class of other nodes that are as these."""
        return NodeClass(
            self.origin,
            self.node_type,
            dict(self.available),
            self.total,
            self.labels,
            members,
            self.used,
            self.holds,
        )

    def view(self, name: str) -> NodeView:
        """A member as placement sees it."""
        return NodeView(name.encode(), dict(self.total), dict(self.available), self.labels)


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


def _turn(entry: NodeClass) -> tuple[bool, Origin]:
    """The order in which classes are used."""
    return entry.has_gpus, entry.origin


def _without(members: list[str], some: list[str]) -> list[str]:
    """The other members. Those that are used are nearly always the first ones."""
    gone = set(some)
    if gone.issuperset(members[: len(some)]):
        return members[len(some) :]
    return [name for name in members if name not in gone]


def _rarest(shape: Shape) -> tuple[str, int]:
    """Of what a shape needs, that which most nodes lack, as far as names tell."""
    return max(shape.resources, key=lambda wanted: (wanted[0] not in COMMON, wanted[0] == "CPU"))


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
        for name, amount in self.always:  # noqa: SIM110 - asked of every class, and a loop is twice as fast
            if available.get(name, 0) < amount:
                return True
        return False


@dataclass(slots=True)
class Pool:
    """All capacity of one plan.

    Attributes:
        classes: in the order in which they are used.
        full: those that can hold nothing of what is asked for.
    """

    classes: list[NodeClass] = field(default_factory=list)
    full: list[NodeClass] = field(default_factory=list)

    @classmethod
    def of(cls, nodes: Iterable[NodeClass]) -> Pool:
        """Merges single nodes (or classes) that are alike.

        Those with GPUs go last, as only work that wants GPUs should get there first. Otherwise the nearest
        origin goes first, then the fullest, so that empty nodes stay empty. The order of what is given decides
        only among equal nodes.
        """
        merged: dict[_Key, NodeClass] = {}
        for node in nodes:
            known = merged.setdefault(_key(node), node)
            if known is not node:
                known.members.extend(node.members)
        largest: dict[str, int] = {}
        for node in merged.values():
            for name, amount in node.total.items():
                if amount > largest.get(name, 0):
                    largest[name] = amount

        def room(entry: NodeClass) -> float:
            return sum(
                amount / largest.get(name, amount) for name, amount in entry.available.items() if amount
            )

        ordered = sorted(merged.items(), key=lambda item: (_turn(item[1]), room(item[1]), item[0]))
        return cls([entry for _, entry in ordered])

    def __iter__(self) -> Iterator[NodeClass]:
        yield from self.classes
        yield from self.full

    def add(self, node: NodeClass) -> None:
        """New capacity, after all of its kind."""
        insort_right(self.classes, node, key=_turn)

    def place(self, shape: Shape, count: int, owner: Hashable = None) -> int:
        """Places up to `count` of `shape`; returns how many found no room.

        As the scheduler does it: nodes of the first selector before those of a fallback, and nodes with GPUs
        last.
        """
        if not shape.resources:
            return self._place_nothing(shape, count, owner)
        ranks = self._ranks(shape)
        for rank in range(1 if ranks is None else 1 + len(shape.fallbacks)):
            if count > 0:
                count = self._pour(shape, count, rank, ranks, owner)
        return count

    def _ranks(self, shape: Shape) -> dict[int, int | None] | None:
        """The shape's rank of every set of labels (by identity: few sets serve many nodes); None: all 0."""
        if not shape.selector:
            return None
        sets = {id(entry.labels): entry.labels for entry in self.classes}
        return {key: shape.rank(labels) for key, labels in sets.items()}

    def _pour(
        self,
        shape: Shape,
        count: int,
        rank: int,
        ranks: dict[int, int | None] | None,
        owner: Hashable,
    ) -> int:
        """One turn of `place`: the classes whose labels are of this rank."""
        name, amount = _rarest(shape)
        for index, entry in enumerate(self.classes):
            available = entry.available
            if name not in available or available[name] < amount:  # most are passed over here: no call
                continue
            if ranks is not None and ranks[id(entry.labels)] != rank:
                continue
            copies = copies_in(shape, available)
            if copies <= 0:
                continue
            whole, rest = divmod(count, copies)
            if whole >= len(entry.members):
                entry.deduct(shape, copies, owner)
                count -= copies * len(entry.members)
                if count == 0:
                    break
                continue
            pieces = []
            if whole:
                filled = entry.split(whole)
                filled.deduct(shape, copies, owner)
                pieces.append(filled)
            if rest:
                partly = entry.split(1)
                partly.deduct(shape, rest, owner)
                pieces.append(partly)
            self.classes[index : index + 1] = [*pieces, *([entry] if entry.members else [])]
            return 0
        return count

    def _place_nothing(self, shape: Shape, count: int, owner: Hashable) -> int:
        """Work that needs no resources goes anywhere its selector allows."""
        fitting = [(rank, entry) for entry in self if (rank := shape.rank(entry.labels)) is not None]
        if not fitting:
            return count
        _, entry = min(fitting, key=lambda found: found[0])
        home = self.classes if any(other is entry for other in self.classes) else self.full
        index = next(i for i, other in enumerate(home) if other is entry)
        chosen = entry.split(1)
        chosen.deduct(shape, count, owner)
        home[index : index + 1] = [chosen, *([entry] if entry.members else [])]
        return 0

    def set_full_aside(self, floor: Floor) -> None:
        """Stops looking at nodes that can hold nothing any more."""
        if floor.always:
            full = [entry for entry in self.classes if floor.is_full(entry.available)]
            if full:
                self.full.extend(full)
                self.classes = [entry for entry in self.classes if not floor.is_full(entry.available)]

    def able(self, shape: Shape, farthest: Origin = Origin.NEW) -> Iterator[NodeClass]:
        """The classes that can hold a shape; those of later origins than `farthest` are left out."""
        if not shape.resources:
            yield from (entry for entry in self if entry.origin <= farthest and shape.accepts(entry.labels))
            return
        name, amount = _rarest(shape)
        for entry in self.classes:
            available = entry.available
            if name not in available or available[name] < amount or entry.origin > farthest:
                continue
            if copies_in(shape, available) > 0 and shape.accepts(entry.labels):
                yield entry

    def with_members(self, names: frozenset[str]) -> list[tuple[NodeClass, str]]:
        """Where certain nodes are."""
        if not names:
            return []
        return [(entry, name) for entry in self for name in entry.members if name in names]

    def take(
        self, usage: Mapping[str, Sequence[Shape]], homes: Mapping[str, NodeClass], owner: Hashable
    ) -> None:
        """Deducts shapes from single members, which thereby leave their class.

        Args:
            usage: by the names of the nodes.
            homes: the classes that these are in.
        """
        parts: dict[int, tuple[NodeClass, dict[tuple[Shape, ...], list[str]]]] = {}
        for name, bundles in usage.items():
            entry = homes[name]
            _, alike = parts.setdefault(id(entry), (entry, {}))
            alike.setdefault(tuple(sorted(bundles)), []).append(name)
        for entry, alike in parts.values():
            left = _without(entry.members, [name for names in alike.values() for name in names])
            pieces = [(entry.alike(names), shapes) for shapes, names in alike.items()]
            if left:
                entry.members = left
            else:  # the class itself becomes its last piece
                _, shapes = pieces.pop()
                entry.members = alike[shapes]
                entry.deduct_all(shapes, owner)
            for piece, shapes in pieces:
                piece.deduct_all(shapes, owner)
                insort_left(self.classes, piece, key=_turn)

    def compact(self) -> None:
        """Merges classes that have become alike."""
        merged: dict[_Key, NodeClass] = {}
        for entry in self.classes:
            known = merged.setdefault(_key(entry), entry)
            if known is not entry:
                known.members.extend(entry.members)
        self.classes = list(merged.values())

    def used(self) -> set[str]:
        """Names of the nodes on which something was placed."""
        return {name for entry in self if entry.used for name in entry.members}

    def copy(self) -> Pool:
        """An overlay to try things on: throw it away, or put it in this one's place."""
        return Pool(
            [entry.alike(list(entry.members)) for entry in self.classes],
            [entry.alike(list(entry.members)) for entry in self.full],
        )


_Items = tuple[tuple[str, int], ...]
_Key = tuple[Origin, str, _Items, _Items, tuple[tuple[str, str], ...], bool, tuple[tuple[Hashable, int], ...]]


def _key(entry: NodeClass) -> _Key:
    """Equal for classes that are alike."""
    return (
        entry.origin,
        entry.node_type,
        tuple(sorted(entry.available.items())),
        tuple(sorted(entry.total.items())),
        tuple(sorted(entry.labels.items())),
        entry.used,
        entry.holds,
    )
