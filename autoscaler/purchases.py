"""What is bought for waiting work: which node types, how many, and what fills them up.

Two orders of the shapes are tried, scarcest first and dearest first, as what comes first decides what is left over to
fill up with others. Machines on their way are filled by the rule by which new ones are: so the next plan finds for them
the work for which they were bought, and buys nothing again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

from autoscaler.budgets import Limits
from autoscaler.demand import Shape
from autoscaler.packing import Floor, NodeClass, Pool, copies_in
from autoscaler.policy import Candidate, Menu
from autoscaler.provider import NodeType, Offer
from autoscaler.snapshot import Profile

MOST_ORDERED = 32
"""With more shapes than that, time is better spent on one order, and on the first machines that fit."""


@dataclass(slots=True)
class Waiting:
    """A shape that found no room yet. `count` falls as nodes are planned for it."""

    shape: Shape
    count: int


@dataclass(frozen=True, slots=True)
class Purchase:
    """`count` equal new nodes, and how many copies of which shapes each is bought for."""

    candidate: Candidate
    count: int
    contents: tuple[tuple[Shape, int], ...] = ()

    @property
    def wastes_gpus(self) -> bool:
        wanted = {name for shape, _ in self.contents for name, _ in shape.resources}
        return self.candidate.has_gpus and "GPU" not in wanted


@dataclass(frozen=True, slots=True)
class Served:
    """What came of waiting work.

    Attributes:
        coming: the machines on their way, with what was put on them.
        bought: new ones.
        waiting: with the counts that found nothing, in the order in which the work was given.
    """

    coming: Pool
    bought: list[Purchase]
    waiting: list[Waiting]


def serve(
    waiting: Sequence[Waiting],
    coming: Pool,
    prices: Mapping[str, float],
    menu: Menu,
    limits: Limits,
    largest: Mapping[str, int],
    out_of_time: Callable[[], bool],
    owner: Callable[[Shape], Hashable],
) -> Served:
    """Puts work on machines on their way and buys new ones for the rest, in the order that serves more, wastes fewer
    GPUs, or costs less. `limits` are taken from; what is given besides stays as it is.

    Args:
        waiting: shapes that found no room on the nodes there are, scarcest first.
        prices: of the machines on their way, by node type.
        owner: whose demand a shape is, for the classes of `coming`.
    """
    orders = [list(waiting)]
    if 1 < len(waiting) <= MOST_ORDERED:
        dearest = _dearest_first(waiting, menu.open(limits))
        if dearest != orders[0]:
            orders.append(dearest)
    best: tuple[tuple[int, int, float, int], Served] | None = None
    for order in orders:
        if best is not None and out_of_time():
            break
        pool = coming.copy()
        copies = {entry.shape: Waiting(entry.shape, entry.count) for entry in waiting}
        trial = [copies[entry.shape] for entry in order]
        _fill_up(trial, pool, prices, largest, owner)
        bought = buy([entry for entry in trial if entry.count], menu, limits.copy(), largest, out_of_time)
        score = (
            sum(entry.count for entry in trial),
            sum(purchase.count for purchase in bought if purchase.wastes_gpus),
            round(sum(purchase.count * purchase.candidate.offer.price for purchase in bought), 9),
            sum(purchase.count for purchase in bought),
        )
        if best is None or score < best[0]:
            best = score, Served(pool, bought, list(copies.values()))
    assert best is not None
    for purchase in best[1].bought:
        limits.take(purchase.candidate.name, purchase.count, purchase.candidate.offer.price)
    return best[1]


def _dearest_first(waiting: Sequence[Waiting], options: Sequence[Candidate]) -> list[Waiting]:
    """By what one costs where that is least, if its nodes were filled with its like."""

    def key(entry: Waiting) -> float:
        prices = [
            candidate.offer.price / copies_in(entry.shape, candidate.profile.resources)
            for candidate in options
            if entry.shape.resources and candidate.fits(entry.shape)
        ]
        return -min(prices, default=0.0)

    return sorted(waiting, key=key)


def _fill_up(
    waiting: Sequence[Waiting],
    pool: Pool,
    prices: Mapping[str, float],
    largest: Mapping[str, int],
    owner: Callable[[Shape], Hashable],
) -> None:
    """Puts work on machines on their way; counts of `waiting` fall."""
    floor = Floor.of(entry.shape for entry in waiting)
    for position, seed in enumerate(waiting):
        if len(waiting) > MOST_ORDERED or not seed.shape.resources:
            seed.count = pool.place(seed.shape, seed.count, owner(seed.shape))
            continue
        while seed.count > 0:
            pool.set_full_aside(floor)
            options = [_as_candidate(entry, prices) for entry in pool.classes]
            best = _best(waiting, position, options, floor, largest)
            if best is None:
                break
            candidate, contents = best
            index = next(i for i, option in enumerate(options) if option is candidate)
            entry = pool.classes[index]
            copies = min(len(entry.members), *(waiting[i].count // each for i, each in contents))
            piece = entry.split(copies)
            pool.classes[index : index + 1] = [piece, *([entry] if entry.members else [])]
            for i, each in contents:
                piece.deduct(waiting[i].shape, each, owner(waiting[i].shape))
                waiting[i].count -= copies * each


def _as_candidate(entry: NodeClass, prices: Mapping[str, float]) -> Candidate:
    left = {name: amount for name, amount in entry.available.items() if amount > 0}
    profile = Profile(NodeType(entry.node_type), left)
    return Candidate(profile, Offer(price=prices.get(entry.node_type, 0.0)), entry.labels)


def buy(
    waiting: Sequence[Waiting],
    menu: Menu,
    limits: Limits,
    largest: Mapping[str, int],
    out_of_time: Callable[[], bool],
) -> list[Purchase]:
    """Plans new nodes for shapes that found no room, in the order given; counts of `waiting` fall, `limits` are
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
            best = _best(waiting, position, menu.open(limits), floor, largest)
            if best is None:
                break
            candidate, contents = best
            room = limits.room(candidate.name, candidate.offer.price)
            copies = min(room, *(waiting[index].count // each for index, each in contents))
            for index, each in contents:
                waiting[index].count -= copies * each
            limits.take(candidate.name, copies, candidate.offer.price)
            shapes = tuple((waiting[index].shape, each) for index, each in contents)
            bought.append(Purchase(candidate, copies, shapes))
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
    best_score: _Score | None = None
    seed = waiting[start].shape
    for candidate in options:
        rank = seed.rank(candidate.labels)
        if rank is None or not copies_in(seed, candidate.profile.resources):
            continue
        # As many of the first shape as fit, or one and what goes well beside it: memory beside CPUs.
        for most in (_ALL, 1):
            contents, left = _fill(candidate, waiting, start, floor, most)
            score = (rank, *_score(candidate, waiting, contents, left, largest))
            if best_score is None or score < best_score:
                best, best_score = (candidate, contents), score
            if contents[0][1] == 1:
                break
    return best


_ALL = 1 << 60


def _fill(
    candidate: Candidate, waiting: Sequence[Waiting], start: int, floor: Floor, most: int
) -> tuple[_Contents, dict[str, int]]:
    """What one node of the type would hold of the waiting shapes from `start` on, and what would be left of
    it. `most`: copies of the first shape before the others have had their turn."""
    left = dict(candidate.profile.resources)
    counts: dict[int, int] = {}

    def take(index: int, limit: int) -> None:
        shape = waiting[index].shape
        copies = min(copies_in(shape, left), limit)
        if copies > 0 and (index == start or shape.accepts(candidate.labels)):
            counts[index] = counts.get(index, 0) + copies
            for name, amount in shape.resources:
                left[name] -= amount * copies

    take(start, min(most, waiting[start].count))
    for index in range(start + 1, len(waiting)):
        if floor.is_full(left):
            break
        if waiting[index].count > 0:
            take(index, waiting[index].count)
    take(start, waiting[start].count - counts[start])
    return list(counts.items()), left


_Score = tuple[int, bool, float, float, float, str]


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
    work = sum(
        copies * amount / max(largest.get(name, amount), 1)
        for shape, copies in shapes
        for name, amount in shape.resources
    )
    measured = [name for name in total if name in wanted or name not in ("memory", "object_store_memory")]
    used = sum((total[name] - left.get(name, 0)) / total[name] for name in measured) / max(len(measured), 1)
    price_per_work = candidate.offer.price / work if work else candidate.offer.price
    wastes_gpus = candidate.has_gpus and "GPU" not in wanted
    return wastes_gpus, price_per_work, -round(used, 3), -work, candidate.name
