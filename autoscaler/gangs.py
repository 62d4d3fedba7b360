"""Placement groups: all bundles find a place, on an overlay of the pool, or nothing changes.

The placing itself is the scheduler's own `place_bundles`, so that the two never disagree.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoscaler.budgets import Limits
from autoscaler.demand import Gang, Shape
from autoscaler.packing import NodeClass, Origin, Pool
from autoscaler.policy import Candidate
from autoscaler.snapshot import Snapshot, new_class
from runtime._core.placement import NodeView, bundles_feasible, place_bundles


@dataclass(frozen=True, slots=True)
class Placed:
    """A gang that fits. `usage`: node name -> bundles; `new`: candidate -> how many machines it needs."""

    usage: Mapping[str, tuple[Shape, ...]]
    new: tuple[tuple[Candidate, int], ...] = ()


def place_on_pool(gang: Gang, pool: Pool, rng: random.Random) -> Placed | None:
    """Tries the nodes there are; then, in addition, those that come.

    A handful of nodes with room is tried first: in a large cluster they nearly always do.
    """
    useful, most, named = _needs(gang)
    few = pool.views(useful, most, named, farthest=Origin.EXISTING, most=4 * most)
    found = _place(gang, few, rng)
    if found is not None:
        return found
    existing = pool.views(useful, most, named, farthest=Origin.EXISTING)
    if len(existing) > len(few):
        found = _place(gang, existing, rng)
    if found is None:
        views = pool.views(useful, most, named)
        if len(views) > len(existing):
            found = _place(gang, views, rng)
    return found


def _needs(gang: Gang) -> tuple[list[Shape], int, frozenset[str]]:
    """What a node must hold to be of use, how many equal ones can be, and which nodes the group is on
    already."""
    useful = [gang.rest] if gang.strategy == "STRICT_PACK" else list(dict.fromkeys(gang.missing))
    named = frozenset(node_id.hex() for node_id in gang.placed if node_id)
    return useful, max(1, len(gang.missing)), named


def place_with_new(
    gang: Gang,
    pool: Pool,
    options: Sequence[Candidate],
    limits: Limits,
    snapshot: Snapshot,
    rng: random.Random,
) -> Placed | None:
    """Adds the fewest machines of one type that make the gang fit; a mixture of types if one alone does
    not."""
    wanted, most, named = _needs(gang)
    base = pool.views(wanted, most, named)
    if gang.strategy == "STRICT_PACK":
        most = 1
    useful = [
        candidate
        for candidate in options
        if any(shape.fits(candidate.profile.resources, candidate.profile.labels) for shape in wanted)
    ]
    wants_gpu = any(name == "GPU" for shape in wanted for name, _ in shape.resources)
    best: tuple[tuple[bool, float, float, int, str], Placed] | None = None
    for candidate in useful:
        room = min(most, limits.room(candidate.name, candidate.offer.price))
        found = _fewest(gang, base, candidate, room, limits.total, snapshot, rng)
        if found is None:
            continue
        count, placed = found
        wastes_gpu = bool(candidate.profile.resources.get("GPU")) and not wants_gpu
        size = count * _size(candidate, useful)
        score = (wastes_gpu, candidate.offer.price * count, size, count, candidate.name)
        if best is None or score < best[0]:
            best = score, placed
    if best is not None:
        return best[1]
    return _mixture(gang, base, useful, most, limits, snapshot, rng)


def commit(placed: Placed, pool: Pool, limits: Limits, snapshot: Snapshot) -> None:
    """Takes what the gang uses out of the pool and the limits."""
    start = limits.total
    for candidate, count in placed.new:
        limits.take(candidate.name, count, candidate.offer.price)
        pool.add(_fresh(candidate, count, start, snapshot))
    pool.take(placed.usage)


def could_ever_fit(gang: Gang, snapshot: Snapshot) -> bool:
    """Whether the gang would fit if every node were idle and every type at its maximum."""
    nodes = [
        NodeView(node.node_id, dict(node.total), dict(node.total), node.labels)
        for node in snapshot.nodes
        if node.state == "ALIVE" and not node.instance_id
    ]
    for kind in snapshot.config.node_types:
        profile = snapshot.profiles.get(kind.name)
        if profile is None:
            continue
        count = min(kind.max_workers, snapshot.config.max_workers, len(gang.bundles))
        nodes += [
            NodeView(
                f"{kind.name}:{index}".encode(),
                dict(profile.resources),
                dict(profile.resources),
                profile.labels,
            )
            for index in range(count)
        ]
    bundles = [dict(shape.resources) for shape in gang.bundles]
    selectors = [dict(shape.selector) for shape in gang.bundles]
    try:
        return bundles_feasible(bundles, gang.strategy, nodes, selectors=selectors)
    except ValueError:
        return False


def _place(gang: Gang, views: Sequence[NodeView], rng: random.Random) -> Placed | None:
    placed = [node_id.hex().encode() if node_id else b"" for node_id in gang.placed]
    try:
        found = place_bundles(
            [dict(shape.resources) for shape in gang.bundles],
            gang.strategy,
            views,
            rng=rng,
            placed=placed,
            selectors=[dict(shape.selector) for shape in gang.bundles],
        )
    except ValueError:
        return None
    if found is None:
        return None
    usage: dict[str, list[Shape]] = {}
    for index, name in enumerate(found):
        if index >= len(placed) or not placed[index]:
            usage.setdefault(name.decode(), []).append(gang.bundles[index])
    return Placed({name: tuple(shapes) for name, shapes in usage.items()})


def _fewest(
    gang: Gang,
    base: Sequence[NodeView],
    candidate: Candidate,
    room: int,
    start: int,
    snapshot: Snapshot,
    rng: random.Random,
) -> tuple[int, Placed] | None:
    """The smallest number of new machines of the type with which the gang fits, by bisection."""
    if room <= 0:
        return None
    fresh = _views(_fresh(candidate, room, start, snapshot))
    placed = _place(gang, [*base, *fresh], rng)
    if placed is None:
        return None
    low, high = 1, room
    while low < high:
        middle = (low + high) // 2
        trial = _place(gang, [*base, *fresh[:middle]], rng)
        if trial is None:
            low = middle + 1
        else:
            high, placed = middle, trial
    return high, Placed(placed.usage, ((candidate, high),))


def _mixture(
    gang: Gang,
    base: Sequence[NodeView],
    useful: Sequence[Candidate],
    most: int,
    limits: Limits,
    snapshot: Snapshot,
    rng: random.Random,
) -> Placed | None:
    """Offers machines of every useful type at once and keeps those that are used."""
    views = list(base)
    by_name: dict[str, Candidate] = {}
    for candidate in useful:
        room = min(most, limits.room(candidate.name, candidate.offer.price))
        if room > 0:
            entry = _fresh(candidate, room, limits.total, snapshot)
            views += _views(entry)
            by_name.update(dict.fromkeys(entry.members, candidate))
    placed = _place(gang, views, rng)
    if placed is None:
        return None
    counts: dict[str, int] = {}
    renamed: dict[str, tuple[Shape, ...]] = {}
    trial = limits.copy()
    for name, shapes in placed.usage.items():
        chosen = by_name.get(name)
        if chosen is None:
            renamed[name] = shapes
            continue
        if trial.room(chosen.name, chosen.offer.price) <= 0:
            return None
        trial.take(chosen.name, 1, chosen.offer.price)
        renamed[_name(chosen, limits.total + counts.get(chosen.name, 0))] = shapes
        counts[chosen.name] = counts.get(chosen.name, 0) + 1
    new = tuple((c, counts[c.name]) for c in useful if c.name in counts)
    return Placed(renamed, new)


def _size(candidate: Candidate, among: Sequence[Candidate]) -> float:
    """How large a machine is, each resource measured against the largest on offer."""
    amounts = candidate.profile.resources
    return sum(
        amount / max(other.profile.resources.get(name, 0) for other in among)
        for name, amount in amounts.items()
    )


def _views(entry: NodeClass) -> list[NodeView]:
    return [
        NodeView(name.encode(), dict(entry.total), dict(entry.available), entry.labels)
        for name in entry.members
    ]


def _name(candidate: Candidate, index: int) -> str:
    return f"new:{candidate.name}:{index}"


def _fresh(candidate: Candidate, count: int, start: int, snapshot: Snapshot) -> NodeClass:
    """New machines of a candidate. `start` is the number planned so far, which keeps their names apart."""
    members = [_name(candidate, start + index) for index in range(count)]
    names = snapshot.demand.names | {"CPU", "GPU"}
    return new_class(candidate.profile, Origin.NEW, members, names, snapshot.demand.label_keys)
