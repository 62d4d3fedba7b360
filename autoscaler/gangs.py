"""Placement groups: all bundles find a place, on an overlay of the pool, or nothing changes.

The placing itself is the scheduler's own `place_bundles`, so that the two never disagree.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from autoscaler.budgets import Limits, count_by_type
from autoscaler.demand import Gang, Shape, scarcity
from autoscaler.instances import InstanceState
from autoscaler.packing import NodeClass, Origin, Pool
from autoscaler.policy import Candidate, Menu, could_hold
from autoscaler.purchases import Waiting, buy
from autoscaler.snapshot import Snapshot, only, pool_of
from runtime._core.placement import NodeView, bundles_feasible, place_bundles

Bundles = tuple[Shape, ...]

TOGETHER = 0.2
"""By how much fewer machines may be dearer than more for a group whose bundles want to be together."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A gang that fits.

    Attributes:
        usage: nodes of the pool -> the bundles on each.
        homes: the classes that these nodes are in.
        new: per new machine, the bundles on it.
    """

    usage: Mapping[str, Bundles]
    homes: Mapping[str, NodeClass]
    new: tuple[tuple[Candidate, Bundles], ...] = ()


@dataclass(slots=True)
class Stage:
    """The nodes that a gang is tried on. `is_all`: no other node of the pool could be of use."""

    views: list[NodeView] = field(default_factory=list)
    homes: dict[str, NodeClass] = field(default_factory=dict)
    is_all: bool = True


def stage(gang: Gang, pool: Pool, farthest: Origin = Origin.NEW, enough: int = 0) -> Stage:
    """The nodes that could hold a bundle.

    A group of n bundles never uses more than n of equal nodes, so n of each are as good as all.

    Args:
        farthest: nodes of later origins are left out.
        enough: so many for each different bundle will do; 0: all.
    """
    most = max(1, len(gang.missing))
    found = Stage()
    for shape in _wanted(gang):
        count = 0
        for entry in pool.able(shape, farthest):
            if enough and count >= enough:
                found.is_all = False
                break
            for name in entry.members[:most]:
                found.homes[name] = entry
            count += min(most, len(entry.members))
    for entry, name in pool.with_members(frozenset(node_id.hex() for node_id in gang.placed if node_id)):
        found.homes[name] = entry
    found.views = [entry.view(name) for name, entry in found.homes.items()]
    return found


def _wanted(gang: Gang) -> list[Shape]:
    """What a node must hold to be of use."""
    return [gang.rest] if gang.strategy == "STRICT_PACK" else list(dict.fromkeys(gang.missing))


def place_on_pool(gang: Gang, pool: Pool, rng: random.Random) -> Placed | None:
    """Tries the nodes there are.

    A handful of nodes with room is tried first: in a large cluster they nearly always do.
    """
    enough = 0 if gang.domain else 4 * max(1, len(gang.missing))
    few = stage(gang, pool, Origin.EXISTING, enough)
    found = _place(gang, few.views, few.homes, rng)
    if found is None and not few.is_all:
        existing = stage(gang, pool, Origin.EXISTING)
        found = _place(gang, existing.views, existing.homes, rng)
    return found


def place_all(gang: Gang, around: Stage, rng: random.Random) -> Placed | None:
    """Tries all nodes that could be of use."""
    return _place(gang, around.views, around.homes, rng)


def place_with_new(
    gang: Gang,
    around: Stage,
    menu: Menu,
    limits: Limits,
    rng: random.Random,
    out_of_time: Callable[[], bool],
) -> Placed | None:
    """Adds machines so that the gang fits: the fewest of one type, or a mixture, whichever costs less.

    Args:
        around: all nodes that could be of use.
    """
    wanted = _wanted(gang)
    useful = [candidate for candidate in menu.open(limits) if any(map(candidate.fits, wanted))]
    if not useful:
        return None
    found: list[Placed] = []
    for candidate in useful:
        if out_of_time():
            break
        placed = _fewest(gang, around, candidate, limits, rng)
        if placed is not None:
            found.append(placed)
    if gang.strategy != "STRICT_PACK" and len(useful) > 1 and not out_of_time():
        mixed = _mixture(gang, around, menu, useful, limits, rng, out_of_time)
        if mixed is None and not found:
            mixed = _whatever_fits(gang, around, useful, limits, rng)
        if mixed is not None:
            found.append(mixed)
    if gang.strategy == "PACK" and found:
        found = _together(found, useful)
    return min(found, key=lambda placed: _cost(placed, useful), default=None)


def _together(found: list[Placed], among: Sequence[Candidate]) -> list[Placed]:
    """Of the ways to place a group that wants to be together, those on the fewest machines that are not much
    dearer than the cheapest."""
    idle_gpus, price, *_ = min(_cost(placed, among) for placed in found)
    fair = [
        placed
        for placed in found
        if (cost := _cost(placed, among))[0] == idle_gpus and cost[1] <= price * (1 + TOGETHER)
    ]
    fewest = min(len(placed.new) for placed in fair)
    return [placed for placed in fair if len(placed.new) == fewest]


def _cost(placed: Placed, among: Sequence[Candidate]) -> tuple[int, float, float, int, list[str]]:
    """Smaller is better: no GPUs without work for them, cheap, small, few."""
    idle_gpus = sum(
        candidate.has_gpus and all(name != "GPU" for shape in bundles for name, _ in shape.resources)
        for candidate, bundles in placed.new
    )
    return (
        idle_gpus,
        round(sum(candidate.offer.price for candidate, _ in placed.new), 6),
        round(sum(_size(candidate, among) for candidate, _ in placed.new), 6),
        len(placed.new),
        sorted(candidate.name for candidate, _ in placed.new),
    )


def _size(candidate: Candidate, among: Sequence[Candidate]) -> float:
    """How large a machine is, each resource measured against the largest on offer."""
    amounts = candidate.profile.resources
    return sum(
        amount / max(other.profile.resources.get(name, 0) for other in among)
        for name, amount in amounts.items()
    )


@dataclass(frozen=True, slots=True)
class Utmost:
    """The nodes of today as if they were idle, and how many of each type may come in addition."""

    nodes: Pool
    more: Mapping[str, int]

    @classmethod
    def of(cls, snapshot: Snapshot, leaving: frozenset[str]) -> Utmost:
        there = count_by_type(
            (instance for instance in snapshot.instances if instance.id not in leaving),
            frozenset({InstanceState.RUNNING}),
        )
        room = snapshot.config.max_workers - sum(there.values())
        more = {
            kind.name: max(0, min(kind.max_workers - there.get(kind.name, 0), room))
            for kind in snapshot.config.node_types
        }
        return cls(pool_of(snapshot, leaving, whole=True), more)


def could_ever_fit(gang: Gang, snapshot: Snapshot, utmost: Utmost) -> bool:
    """Whether the gang would fit if every node were idle and every type at its maximum."""
    whole = Gang(gang.id, gang.strategy, gang.bundles, (), gang.domain)
    nodes = stage(whole, utmost.nodes, Origin.EXISTING).views
    for kind in snapshot.config.node_types:
        profile = snapshot.profiles.get(kind.name)
        if profile is None or not any(could_hold(kind, shape, snapshot) for shape in gang.bundles):
            continue
        count = min(utmost.more[kind.name], len(gang.bundles))
        market = snapshot.markets.get(kind.name)
        places = {(o.zone, o.market) for o in market.allowed} if market is not None else set()
        for place in sorted(places) or [("", "")]:
            labels = only(profile.labels_from(*place), snapshot.demand.label_keys)
            nodes += [
                NodeView(f"{kind.name}:{place}:{index}".encode(), dict(profile.resources), {}, labels)
                for index in range(count)
            ]
    try:
        return bundles_feasible(
            [dict(shape.resources) for shape in gang.bundles],
            gang.strategy,
            nodes,
            selectors=[dict(shape.selector) for shape in gang.bundles],
            domain=gang.domain,
        )
    except ValueError:
        return False


# ---------------------------------------------------------------- placing


def _place(
    gang: Gang,
    views: Sequence[NodeView],
    homes: Mapping[str, NodeClass],
    rng: random.Random,
    fresh: Mapping[bytes, Candidate] | None = None,
    some: frozenset[int] | None = None,
) -> Placed | None:
    """The whole gang on some nodes; with `some`, only the bundles of these indices."""
    placed = [node_id.hex().encode() if node_id else b"" for node_id in gang.placed]
    placed += [b""] * (len(gang.bundles) - len(placed))
    chosen = [i for i in range(len(placed)) if some is None or placed[i] or i in some]
    try:
        found = place_bundles(
            [dict(gang.bundles[i].resources) for i in chosen],
            gang.strategy,
            views,
            rng=rng,
            placed=[placed[i] for i in chosen],
            selectors=[dict(gang.bundles[i].selector) for i in chosen],
            domain=gang.domain,
        )
    except ValueError:
        return None
    if found is None:
        return None
    usage: dict[bytes, list[Shape]] = {}
    for index, name in zip(chosen, found, strict=True):
        if not placed[index]:
            usage.setdefault(name, []).append(gang.bundles[index])
    new = tuple((c, tuple(usage[name])) for name, c in (fresh or {}).items() if name in usage)
    there = {name.decode(): tuple(shapes) for name, shapes in usage.items() if name not in (fresh or {})}
    return Placed(there, homes, new)


def _machines(candidate: Candidate, count: int, mark: int) -> tuple[list[NodeView], dict[bytes, Candidate]]:
    """New machines to try."""
    amounts = candidate.profile.resources
    views = [
        NodeView(f"+{mark}:{index}".encode(), dict(amounts), dict(amounts), candidate.labels)
        for index in range(count)
    ]
    return views, {view.node_id: candidate for view in views}


def _fewest(
    gang: Gang, around: Stage, candidate: Candidate, limits: Limits, rng: random.Random
) -> Placed | None:
    """The smallest number of new machines of the type with which the gang fits, by bisection."""
    most = 1 if gang.strategy == "STRICT_PACK" else len(gang.missing)
    room = min(most, limits.room(candidate.name, candidate.offer.price))
    if room <= 0:
        return None
    views, fresh = _machines(candidate, room, 0)
    best = _place(gang, [*around.views, *views], around.homes, rng, fresh)
    if best is None:
        return None
    low, high = 1, max(1, len(best.new))
    while low < high:
        middle = (low + high) // 2
        trial = _place(gang, [*around.views, *views[:middle]], around.homes, rng, fresh)
        if trial is None:
            low = middle + 1
        else:
            high, best = middle, trial
    return best


def _mixture(
    gang: Gang,
    around: Stage,
    menu: Menu,
    useful: Sequence[Candidate],
    limits: Limits,
    rng: random.Random,
    out_of_time: Callable[[], bool],
) -> Placed | None:
    """As much as possible goes where there is room, the dearest to buy first; for the rest the machines are
    bought as for waiting work."""
    trial = limits.copy()
    rest = _beyond(gang, around, rng)
    bought: list[Candidate] = []
    if gang.strategy == "STRICT_SPREAD":
        for shape, count in rest:
            for _ in range(count):
                fitting = [c for c in menu.open(trial) if c.fits(shape)]
                if not fitting:
                    return None
                wants_gpu = any(name == "GPU" for name, _ in shape.resources)
                best = min(
                    fitting,
                    key=lambda c: (c.has_gpus and not wants_gpu, c.offer.price, _size(c, useful), c.name),
                )
                trial.take(best.name, 1, best.offer.price)
                bought.append(best)
    else:
        waiting = [Waiting(shape, count) for shape, count in rest]
        largest: dict[str, int] = {}
        for candidate in useful:
            for name, amount in candidate.profile.resources.items():
                largest[name] = max(largest.get(name, 0), amount)
        waiting.sort(key=lambda entry: scarcity(entry.shape, largest))
        for purchase in buy(waiting, menu, trial, largest, out_of_time):
            bought += [purchase.candidate] * purchase.count
        if any(entry.count for entry in waiting):
            return None
    views = list(around.views)
    fresh: dict[bytes, Candidate] = {}
    for mark, candidate in enumerate(bought):
        more, mine = _machines(candidate, 1, mark)
        views += more
        fresh.update(mine)
    return _place(gang, views, around.homes, rng, fresh)


def _beyond(gang: Gang, around: Stage, rng: random.Random) -> list[tuple[Shape, int]]:
    """The bundles that find no room on the nodes there are."""
    sizes: dict[str, int] = {}
    for view in around.views:
        for name, amount in view.total.items():
            sizes[name] = max(sizes.get(name, 0), amount)
    positions: dict[Shape, list[int]] = {}
    for index, shape in enumerate(gang.bundles):
        if index >= len(gang.placed) or not gang.placed[index]:
            positions.setdefault(shape, []).append(index)
    kept: frozenset[int] = frozenset()
    rest: list[tuple[Shape, int]] = []
    for shape in sorted(positions, key=lambda shape: scarcity(shape, sizes)):
        mine = positions[shape]
        low, high = 0, len(mine) if around.views else 0
        while low < high:
            middle = (low + high + 1) // 2
            if _place(gang, around.views, around.homes, rng, some=kept | frozenset(mine[:middle])) is None:
                high = middle - 1
            else:
                low = middle
        kept |= frozenset(mine[:low])
        if low < len(mine):
            rest.append((shape, len(mine) - low))
    return rest


def _whatever_fits(
    gang: Gang, around: Stage, useful: Sequence[Candidate], limits: Limits, rng: random.Random
) -> Placed | None:
    """Offers machines of every useful type at once and keeps those that are used, if the limits allow them
    together."""
    views = list(around.views)
    fresh: dict[bytes, Candidate] = {}
    for mark, candidate in enumerate(useful):
        room = min(len(gang.missing), limits.room(candidate.name, candidate.offer.price))
        more, mine = _machines(candidate, room, mark)
        views += more
        fresh.update(mine)
    placed = _place(gang, views, around.homes, rng, fresh)
    if placed is None:
        return None
    trial = limits.copy()
    for candidate, _ in placed.new:
        if trial.room(candidate.name, candidate.offer.price) <= 0:
            return None
        trial.take(candidate.name, 1, candidate.offer.price)
    return placed
