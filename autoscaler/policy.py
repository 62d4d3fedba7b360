"""Which node type serves waiting work best, and what to tell when none does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autoscaler.budgets import Limits
from autoscaler.demand import Shape
from autoscaler.offerings import Market
from autoscaler.packing import Floor, copies_in
from autoscaler.provider import Offer
from autoscaler.snapshot import Profile, Snapshot
from runtime._core.resources import UNIT


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node type that may be launched now, with the offer it would be launched from."""

    profile: Profile
    offer: Offer

    @property
    def name(self) -> str:
        return self.profile.node_type


def candidates(snapshot: Snapshot, limits: Limits) -> list[Candidate]:
    """The types that are open, not held back, and have room."""
    out = []
    for kind in snapshot.config.node_types:
        market = snapshot.markets.get(kind.name)
        profile = snapshot.profiles.get(kind.name)
        if market is None or profile is None or not market.is_open or kind.name in snapshot.held:
            continue
        offer = market.offers[0]
        if limits.room(kind.name, offer.price) > 0:
            out.append(Candidate(profile, offer))
    return out


@dataclass(slots=True)
class Waiting:
    """A shape that found no room yet. `count` falls as nodes are planned for it."""

    shape: Shape
    count: int


@dataclass(frozen=True, slots=True)
class Purchase:
    """`count` equal new nodes."""

    candidate: Candidate
    count: int


def buy(
    waiting: Sequence[Waiting],
    options: Callable[[], list[Candidate]],
    limits: Limits,
    largest: Mapping[str, int],
    out_of_time: Callable[[], bool],
) -> list[Purchase]:
    """Plans new nodes for shapes that found no room, hardest first; counts of `waiting` fall, `limits` are
    taken from.

    One step chooses the type that suits the first waiting shape and what else fits beside it, and takes as
    many copies of that filled node as the counts allow. What still has a count afterwards could not be
    served, or time ran out.
    """
    floor = Floor.of(entry.shape for entry in waiting)
    bought: list[Purchase] = []
    for position, seed in enumerate(waiting):
        while seed.count > 0:
            if out_of_time():
                return bought
            best = _best(waiting, position, options(), floor, largest)
            if best is None:
                break
            candidate, contents = best
            room = limits.room(candidate.name, candidate.offer.price)
            copies = min(room, *(waiting[index].count // each for index, each in contents))
            for index, each in contents:
                waiting[index].count -= copies * each
            limits.take(candidate.name, copies, candidate.offer.price)
            bought.append(Purchase(candidate, copies))
    return bought


_Contents = list[tuple[int, int]]


def _best(
    waiting: Sequence[Waiting],
    start: int,
    options: Sequence[Candidate],
    floor: Floor,
    largest: Mapping[str, int],
) -> tuple[Candidate, _Contents] | None:
    best: tuple[Candidate, _Contents] | None = None
    best_score: tuple[bool, float, float, float, str] | None = None
    for candidate in options:
        if not waiting[start].shape.fits(candidate.profile.resources, candidate.profile.labels):
            continue
        contents, left = _fill(candidate.profile, waiting, start, floor)
        score = _score(candidate, waiting, contents, left, largest)
        if best_score is None or score < best_score:
            best, best_score = (candidate, contents), score
    return best


def _fill(
    profile: Profile, waiting: Sequence[Waiting], start: int, floor: Floor
) -> tuple[_Contents, dict[str, int]]:
    """What one node of the type would hold of the waiting shapes from `start` on, and what would be left of
    it."""
    left = dict(profile.resources)
    contents: _Contents = []
    for index in range(start, len(waiting)):
        entry = waiting[index]
        if entry.count <= 0:
            continue
        copies = min(copies_in(entry.shape, left), entry.count)
        if copies <= 0 or not entry.shape.accepts(profile.labels):
            continue
        contents.append((index, copies))
        for name, amount in entry.shape.resources:
            left[name] -= amount * copies
        if floor.is_full(left):
            break
    return contents, left


def _score(
    candidate: Candidate,
    waiting: Sequence[Waiting],
    contents: _Contents,
    left: Mapping[str, int],
    largest: Mapping[str, int],
) -> tuple[bool, float, float, float, str]:
    """Smaller is better: no GPUs for work without, then cheap per work done, then well used, then much work
    at once."""
    total = candidate.profile.resources
    shapes = [(waiting[index].shape, copies) for index, copies in contents]
    wanted = {name for shape, _ in shapes for name, _ in shape.resources}
    wastes_gpu = bool(total.get("GPU")) and "GPU" not in wanted
    work = sum(
        copies * amount / max(largest.get(name, amount), 1)
        for shape, copies in shapes
        for name, amount in shape.resources
    )
    measured = [name for name in total if name in wanted or name not in ("memory", "object_store_memory")]
    used = sum((total[name] - left.get(name, 0)) / total[name] for name in measured) / max(len(measured), 1)
    price_per_work = candidate.offer.price / work if work else candidate.offer.price
    return wastes_gpu, price_per_work, -round(used, 3), -work, candidate.name


# ---------------------------------------------------------------- why not


def is_feasible(shape: Shape, snapshot: Snapshot) -> bool:
    """Whether some node of today, or of a type that may exist at all, could ever hold one."""
    if any(node.state == "ALIVE" and shape.fits(node.total, node.labels) for node in snapshot.nodes):
        return True
    return any(
        kind.max_workers > 0
        and kind.name in snapshot.profiles
        and shape.fits(snapshot.profiles[kind.name].resources, snapshot.profiles[kind.name].labels)
        for kind in snapshot.config.node_types
    )


def why_infeasible(shape: Shape, snapshot: Snapshot) -> str:
    """Says what the nearest node type lacks."""
    nearest: tuple[tuple[int, bool, float], str] | None = None
    for kind in snapshot.config.node_types:
        profile = snapshot.profiles.get(kind.name)
        if profile is None:
            continue
        gaps = [
            f"{name} {amount / UNIT:g} wanted, {profile.resources.get(name, 0) / UNIT:g} there"
            for name, amount in shape.resources
            if profile.resources.get(name, 0) < amount
        ]
        size = sum(
            1 - profile.resources.get(name, 0) / amount
            for name, amount in shape.resources
            if profile.resources.get(name, 0) < amount
        )
        if not shape.accepts(profile.labels):
            gaps.append("its labels do not match")
        if not gaps and kind.max_workers == 0:
            gaps.append("its max_workers is 0")
        key = (len(gaps), kind.max_workers == 0, size)
        if gaps and (nearest is None or key < nearest[0]):
            nearest = key, f"the nearest node type is {kind.name!r}: {'; '.join(gaps)}"
    return nearest[1] if nearest else "there are no node types"


def why_waiting(shapes: Sequence[Shape], snapshot: Snapshot, limits: Limits) -> str:
    """Says which limit keeps feasible work waiting: type by type, those that could hold one of the shapes."""
    reasons: list[str] = []
    for kind in snapshot.config.node_types:
        profile = snapshot.profiles.get(kind.name)
        if profile is None or kind.max_workers == 0:
            continue
        if not any(shape.fits(profile.resources, profile.labels) for shape in shapes):
            continue
        market: Market | None = snapshot.markets.get(kind.name)
        price = market.offers[0].price if market is not None and market.offers else 0.0
        limit = limits.why(kind.name, price)
        if limit:
            reasons.append(limit)
        elif kind.name in snapshot.held:
            reasons.append(f"{kind.name!r}: {snapshot.held[kind.name]}")
        elif market is not None and not market.is_open:
            reasons.append(f"no machine of {kind.name!r} to be had: {market.blocked}")
        elif limits.room(kind.name, price) < len(shapes):
            reasons.append(
                f"max_workers {kind.max_workers} of node type {kind.name!r} and of the cluster leave room "
                f"for {limits.room(kind.name, price)} more"
            )
    return "; ".join(dict.fromkeys(reasons)) or "the nodes that could hold it are busy"
