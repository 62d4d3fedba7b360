"""The decision: a snapshot in, a plan out. Pure; the same snapshot gives the same plan.

Order: what exceeds a maximum goes; minimum and explicit requests; placement groups, strictest first; waiting
tasks and actors, hardest first; then what nobody needs. Each step uses nodes that exist before machines on
their way before new ones, and what one step uses is not there for the next.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from autoscaler import gangs
from autoscaler.budgets import Limits, count_by_type, pace
from autoscaler.demand import Gang, Shape, scarcity
from autoscaler.instances import ACTIVE
from autoscaler.packing import Floor, Origin, Pool
from autoscaler.policy import Candidate, Waiting, buy, candidates, is_feasible, why_infeasible, why_waiting
from autoscaler.provider import Offer
from autoscaler.scale_down import Removal, idle, surplus, unwanted
from autoscaler.snapshot import Snapshot, new_class, pool_of


@dataclass(frozen=True, slots=True)
class Launch:
    """`count` machines of a type from one offer."""

    node_type: str
    offer: Offer
    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class Note:
    """A demand that is not served, and why. `group`: the id of the placement group that it is."""

    demand: str
    why: str
    count: int = 1
    group: bytes = b""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now.

    Attributes:
        infeasible: no node that may exist could ever hold it.
        waiting: it could be held, but a limit is reached or nothing is to be had.
        next_s: when time alone changes the plan; None: only facts do.
        is_partial: time ran out; the rest follows with the next plan.
        short: of what programs requested explicitly, what the nodes of now do not hold.
    """

    launches: tuple[Launch, ...] = ()
    removals: tuple[Removal, ...] = ()
    infeasible: tuple[Note, ...] = ()
    waiting: tuple[Note, ...] = ()
    next_s: float | None = None
    is_partial: bool = False
    short: tuple[tuple[Shape, int], ...] = ()


MINIMUM = "min_workers"
EXPLICIT = "requested explicitly"
DEMAND = "waiting work"
REQUESTED = "requested "
"""What notes of explicit requests begin with."""


@dataclass(slots=True)
class _Wish:
    candidate: Candidate
    count: int
    reason: str


@dataclass(slots=True)
class _Draft:
    """A plan while it is made."""

    snapshot: Snapshot
    limits: Limits
    pool: Pool
    leaving: frozenset[str]
    out_of_time: Callable[[], bool]
    largest: dict[str, int]
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    wishes: list[_Wish] = field(default_factory=list)
    infeasible: list[Note] = field(default_factory=list)
    waiting: list[Note] = field(default_factory=list)
    kept: set[str] = field(default_factory=set)
    partial: bool = False
    short: tuple[tuple[Shape, int], ...] = ()

    def options(self) -> list[Candidate]:
        return candidates(self.snapshot, self.limits)

    def refuse(
        self, demand: str, count: int, shapes: list[Shape], feasible: bool, why: str, group: bytes = b""
    ) -> None:
        if feasible:
            self.waiting.append(Note(demand, why_waiting(shapes, self.snapshot, self.limits), count, group))
        else:
            self.infeasible.append(Note(demand, why, count, group))


def never() -> bool:
    """The deadline that does not come."""
    return False


def plan(snapshot: Snapshot, out_of_time: Callable[[], bool] = never) -> Plan:
    """Decides what to launch and what to remove.

    Args:
        snapshot: all facts.
        out_of_time: asked now and then; when true, what is decided so far is the plan.
    """
    too_many = surplus(snapshot)
    leaving = frozenset(removal.instance_id for removal in too_many)
    draft = _Draft(
        snapshot,
        Limits.of(snapshot.config, snapshot.instances),
        pool_of(snapshot, leaving),
        leaving,
        out_of_time,
        _largest(snapshot),
    )
    _minimum(draft)
    _explicit(draft)
    _gangs(draft)
    _shapes(draft)
    used = draft.pool.used() | draft.kept
    removals = list(too_many)
    resting = None
    if not draft.partial:
        removals += unwanted(snapshot, used, leaving)
        resting = idle(snapshot, used, leaving | {removal.instance_id for removal in removals})
        removals += resting.removals
    times = [resting.next_s] if resting is not None and resting.next_s is not None else []
    times += [
        market.blocked_until_s
        for market in snapshot.markets.values()
        if not market.is_open and market.blocked_until_s > snapshot.now
    ]
    return Plan(
        _throttled(draft),
        tuple(removals),
        tuple(draft.infeasible),
        tuple(draft.waiting),
        min(times, default=None),
        draft.partial,
        draft.short,
    )


def _largest(snapshot: Snapshot) -> dict[str, int]:
    out: dict[str, int] = {}
    sizes = [profile.resources for profile in snapshot.profiles.values()]
    sizes += [node.total for node in snapshot.nodes if node.state == "ALIVE"]
    names = snapshot.demand.names
    for amounts in sizes:
        for name in names:
            amount = amounts.get(name, 0)
            if amount > out.get(name, 0):
                out[name] = amount
    return out


def _minimum(draft: _Draft) -> None:
    counts = count_by_type((i for i in draft.snapshot.instances if i.id not in draft.leaving), ACTIVE)
    for kind in draft.snapshot.config.node_types:
        lacking = kind.min_workers - counts.get(kind.name, 0)
        if lacking <= 0:
            continue
        option = next((c for c in draft.options() if c.name == kind.name), None)
        count = 0 if option is None else min(lacking, draft.limits.room(kind.name, option.offer.price))
        if option is not None and count > 0:
            _add(draft, option, count, MINIMUM)
        if count < lacking:
            market = draft.snapshot.markets.get(kind.name)
            why = (
                draft.limits.why(kind.name, option.offer.price if option else 0.0)
                or draft.snapshot.held.get(kind.name)
                or (market.blocked if market is not None else "")
            )
            draft.waiting.append(Note(f"min_workers of {kind.name!r}", why, lacking - count))


def _add(draft: _Draft, option: Candidate, count: int, reason: str) -> list[str]:
    """New machines become part of the pool, for all that comes later."""
    start = draft.limits.total
    draft.limits.take(option.name, count, option.offer.price)
    members = [f"new:{option.name}:{start + index}" for index in range(count)]
    names = draft.snapshot.demand.names | {"CPU", "GPU"}
    draft.pool.add(
        new_class(option.profile, Origin.NEW, list(members), names, draft.snapshot.demand.label_keys)
    )
    draft.wishes.append(_Wish(option, count, reason))
    return members


def _explicit(draft: _Draft) -> None:
    """Explicit requests are measured against whole nodes, used or not: they ask for a size of the cluster."""
    wanted = draft.snapshot.demand.explicit
    if not wanted:
        return
    whole = pool_of(draft.snapshot, draft.leaving, whole=True)
    for entry in draft.pool:
        if entry.origin is Origin.NEW:
            whole.add(entry.copy())
    today = Pool([entry for entry in whole if entry.origin is Origin.EXISTING])
    later = Pool([entry for entry in whole if entry.origin is not Origin.EXISTING])
    short = [(entry.shape, entry.count) for entry in _fill_pool(draft, today, wanted)]
    draft.short = tuple(short)
    waiting = _fill_pool(draft, later, short)
    draft.kept |= today.used() | {name for name in later.used() if not name.startswith("new:")}
    limits = draft.limits.copy()
    for purchase in buy(
        waiting, lambda: candidates(draft.snapshot, limits), limits, draft.largest, draft.out_of_time
    ):
        _add(draft, purchase.candidate, purchase.count, EXPLICIT)
    _explain(draft, waiting, REQUESTED)


def _gangs(draft: _Draft) -> None:
    ordered = sorted(
        draft.snapshot.demand.gangs, key=lambda gang: (gang.strictness, -len(gang.bundles), gang.id)
    )
    hopeless: dict[tuple[str, tuple[Shape, ...]], bool] = {}
    for number, gang in enumerate(ordered):
        if draft.out_of_time():
            draft.partial = True
            return
        alike = (gang.strategy, gang.bundles)
        is_whole = not any(gang.placed)
        if is_whole and alike in hopeless:
            _refuse_gang(draft, gang, hopeless[alike])
            continue
        placed = gangs.place_on_pool(gang, draft.pool, draft.rng)
        if placed is None:
            placed = gangs.place_with_new(
                gang, draft.pool, draft.options(), draft.limits, draft.snapshot, draft.rng
            )
        if placed is None:
            feasible = gangs.could_ever_fit(gang, draft.snapshot)
            if is_whole:
                hopeless[alike] = feasible
            _refuse_gang(draft, gang, feasible)
            continue
        for candidate, count in placed.new:
            draft.wishes.append(_Wish(candidate, count, str(gang)))
        gangs.commit(placed, draft.pool, draft.limits, draft.snapshot)
        if number % 16 == 15:
            draft.pool.compact()


def _refuse_gang(draft: _Draft, gang: Gang, feasible: bool) -> None:
    why = ""
    if not feasible:
        lone = next((shape for shape in gang.bundles if not is_feasible(shape, draft.snapshot)), None)
        if lone is not None:
            why = f"bundle {lone}: {why_infeasible(lone, draft.snapshot)}"
        elif gang.strategy == "STRICT_PACK":
            why = f"together on one node: {why_infeasible(gang.rest, draft.snapshot)}"
        else:
            why = "each bundle fits alone, all of them do not within the limits of the node types"
    draft.refuse(str(gang), 1, list(gang.bundles), feasible, why, gang.id)


def _shapes(draft: _Draft) -> None:
    if draft.partial:
        return
    waiting = _fill_pool(draft, draft.pool, draft.snapshot.demand.shapes)
    limits = draft.limits.copy()
    for purchase in buy(
        waiting, lambda: candidates(draft.snapshot, limits), limits, draft.largest, draft.out_of_time
    ):
        draft.wishes.append(_Wish(purchase.candidate, purchase.count, DEMAND))
        draft.limits.take(purchase.candidate.name, purchase.count, purchase.candidate.offer.price)
    _explain(draft, waiting, "")


def _fill_pool(draft: _Draft, pool: Pool, wanted: Iterable[tuple[Shape, int]]) -> list[Waiting]:
    """Places what fits on the pool; returns what does not, hardest first."""
    ordered = sorted(wanted, key=lambda entry: scarcity(entry[0], draft.largest))
    floor = Floor.of(shape for shape, _ in ordered)
    pool.set_full_aside(floor)
    waiting: list[Waiting] = []
    for number, (shape, count) in enumerate(ordered):
        rest = pool.place(shape, count)
        if rest:
            waiting.append(Waiting(shape, rest))
        if number % 16 == 15:
            pool.set_full_aside(floor)
            if draft.out_of_time():
                draft.partial = True
                break
    return waiting


def _explain(draft: _Draft, waiting: Iterable[Waiting], prefix: str) -> None:
    if draft.out_of_time():
        draft.partial = True
    for entry in waiting:
        if entry.count <= 0:
            continue
        feasible = is_feasible(entry.shape, draft.snapshot)
        if feasible and draft.partial:
            continue
        why = "" if feasible else why_infeasible(entry.shape, draft.snapshot)
        draft.refuse(f"{prefix}{entry.shape}", entry.count, [entry.shape], feasible, why)


def _throttled(draft: _Draft) -> tuple[Launch, ...]:
    """Merges the wishes per type and reason, at the pace allowed. Minimum and explicit requests know no
    pace."""
    left = pace(draft.snapshot.config, draft.snapshot.instances)
    allowance = draft.snapshot.allowance
    merged: dict[tuple[str, str, str, str], tuple[Offer, int]] = {}
    for wish in draft.wishes:
        name, offer, count = wish.candidate.name, wish.candidate.offer, wish.count
        if wish.reason not in (MINIMUM, EXPLICIT):
            count = min(count, left.get(name, 0))
            left[name] = left.get(name, 0) - count
        if allowance is not None:
            count = min(count, allowance)
            allowance -= count
        if count > 0:
            key = (name, offer.zone, offer.market, wish.reason)
            merged[key] = offer, count + (merged[key][1] if key in merged else 0)
    return tuple(Launch(key[0], offer, count, key[3]) for key, (offer, count) in merged.items())
