"""The decision: a snapshot in, a plan out. Pure; the same snapshot gives the same plan.

Order: what exceeds a maximum goes; minimum and explicit requests; placement groups, strictest first; waiting
tasks and actors, hardest first; then what nobody needs. Each step uses nodes that exist before machines on
their way before new ones, and what one step uses is not there for the next.

Every demand ends in one of three ways: there is or will be room for it, or the plan has a note that says why not:
it waits, or it is infeasible.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from autoscaler import gangs
from autoscaler.budgets import Limits, count_by_type, pace
from autoscaler.consolidation import Consolidated, consolidate
from autoscaler.demand import Gang, Shape, scarcity
from autoscaler.disruption import Disruptions
from autoscaler.drain import due_back, recallable
from autoscaler.instances import ACTIVE, InstanceState
from autoscaler.packing import Floor, NodeClass, Origin, Pool
from autoscaler.policy import Candidate, Menu, is_feasible, why_infeasible, why_waiting
from autoscaler.purchases import Waiting, buy, serve
from autoscaler.scale_down import Removal, called_back, cancellations, drained, idle, surplus
from autoscaler.snapshot import Snapshot, asked_names, new_class, pool_of
from autoscaler.wishes import Launch, Wish, start

__all__ = ["DEMAND", "EXPLICIT", "MINIMUM", "Launch", "Note", "Plan", "never", "plan"]


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
        recalls: draining instances that go back to work -> why.
        spare: instances whose work has room elsewhere; None: it was no time to ask.
    """

    launches: tuple[Launch, ...] = ()
    removals: tuple[Removal, ...] = ()
    infeasible: tuple[Note, ...] = ()
    waiting: tuple[Note, ...] = ()
    next_s: float | None = None
    is_partial: bool = False
    short: tuple[tuple[Shape, int], ...] = ()
    recalls: Mapping[str, str] = field(default_factory=dict)
    spare: frozenset[str] | None = None


MINIMUM = "min_workers"
EXPLICIT = "requested explicitly"
DEMAND = "waiting work"
NO_TIME = "the last decision took too long and left this for the next one"
REQUESTED = "requested "
"""What notes of explicit requests begin with."""


@dataclass(slots=True)
class _Draft:
    """A plan while it is made.

    Attributes:
        leaving: instances that are to be removed whatever is asked for.
        kept: nodes and machines that explicit requests keep.
        asked_of: new machines, and the explicit requests that count on them.
        made: how many new machines have a name.
    """

    snapshot: Snapshot
    limits: Limits
    menu: Menu
    pool: Pool
    leaving: frozenset[str]
    back: Mapping[str, str]
    spare: frozenset[str]
    out_of_time: Callable[[], bool]
    names: tuple[str, ...]
    largest: dict[str, int]
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    wishes: list[Wish] = field(default_factory=list)
    infeasible: list[Note] = field(default_factory=list)
    waiting: list[Note] = field(default_factory=list)
    kept: set[str] = field(default_factory=set)
    asked_of: list[NodeClass] = field(default_factory=list)
    made: int = 0
    partial: bool = False
    short: tuple[tuple[Shape, int], ...] = ()

    def is_late(self) -> bool:
        """Whether time has run out; from then on the plan is partial."""
        self.partial = self.partial or self.out_of_time()
        return self.partial

    def wish(
        self,
        option: Candidate,
        count: int,
        reason: str,
        holds: tuple[tuple[Hashable, int], ...] = (),
        *,
        is_paced: bool = False,
    ) -> NodeClass:
        """New machines become part of the pool, for all that comes later. `holds`: whom they are for."""
        self.limits.take(option.name, count, option.offer.price)
        members = [f"new:{option.name}:{self.made + index}" for index in range(count)]
        self.made += count
        entry = new_class(option.profile, Origin.NEW, members, self.names, option.labels)
        entry.holds = holds
        self.pool.add(entry)
        self.wishes.append(Wish(option, count, reason, is_paced, (), tuple(members)))
        return entry


def never() -> bool:
    """The deadline that does not come."""
    return False


def plan(snapshot: Snapshot, out_of_time: Callable[[], bool] = never) -> Plan:
    """Decides what to launch and what to remove.

    Args:
        snapshot: all facts.
        out_of_time: asked now and then; when true, what is decided so far is the plan.
    """
    disruptions = Disruptions.of(snapshot.config.budgets, snapshot.instances)
    too_many = surplus(snapshot, disruptions)
    leaving = frozenset(removal.instance_id for removal in too_many)
    options = recallable(snapshot, leaving)
    back = due_back(snapshot, leaving, options)
    spare = frozenset(instance.id for instance in options)
    pool = pool_of(snapshot, leaving, back=back, spare=spare)
    draft = _Draft(
        snapshot,
        Limits.of(snapshot.config, snapshot.instances),
        Menu(snapshot),
        pool,
        leaving,
        back,
        spare,
        out_of_time,
        asked_names(snapshot.demand),
        _largest(snapshot, pool),
    )
    _minimum(draft)
    _explicit(draft)
    _gangs(draft)
    _shapes(draft)
    launches = _start(draft)
    used = draft.pool.used() | draft.kept
    recalls = {**called_back(snapshot, spare, used), **back}
    removals = list(too_many)
    times: list[float] = []
    is_quiet = not (launches or recalls or draft.waiting or draft.pool.used())
    found: Consolidated | None = None
    if not draft.partial:
        removals += drained(snapshot, recalls)
        gone = leaving | {removal.instance_id for removal in removals}
        found = consolidate(snapshot, draft.menu, draft.limits, used, gone, disruptions, is_quiet=is_quiet)
        launches += tuple(found.launches)
        used |= found.kept
        removals += cancellations(snapshot, used, gone)
        removals += found.removals
        gone = leaving | {removal.instance_id for removal in removals}
        resting = idle(snapshot, used, gone, disruptions)
        removals += resting.removals
        times += found.times + ([] if resting.next_s is None else [resting.next_s])
    times += [
        market.blocked_until_s
        for market in snapshot.markets.values()
        if not market.is_open and market.blocked_until_s > snapshot.now
    ]
    return Plan(
        launches,
        tuple(removals),
        tuple(draft.infeasible),
        tuple(draft.waiting),
        min(times, default=None),
        draft.partial,
        draft.short,
        recalls,
        found.spare if found is not None else None,
    )


def _largest(snapshot: Snapshot, pool: Pool) -> dict[str, int]:
    """The most that one node of any kind has of each resource that is asked for."""
    out: dict[str, int] = {}
    for amounts in [profile.resources for profile in snapshot.profiles.values()] + [e.total for e in pool]:
        for name in snapshot.demand.names:
            amount = amounts.get(name, 0)
            if amount > out.get(name, 0):
                out[name] = amount
    return out


def _minimum(draft: _Draft) -> None:
    counts = count_by_type(
        (
            instance
            for instance in draft.snapshot.instances
            if instance.id not in draft.leaving and (instance.state in ACTIVE or instance.id in draft.back)
        ),
        ACTIVE | {InstanceState.DRAINING},
    )
    for kind in draft.snapshot.config.node_types:
        lacking = kind.min_workers - counts.get(kind.name, 0)
        owner = f"{MINIMUM} of {kind.name!r}"
        while lacking > 0:
            option = next((c for c in draft.menu.open(draft.limits) if c.name == kind.name), None)
            if option is None:
                break
            count = min(lacking, draft.limits.room(kind.name, option.offer.price))
            draft.wish(option, count, MINIMUM, ((owner, 1),))
            lacking -= count
        if lacking > 0:
            market = draft.snapshot.markets.get(kind.name)
            price = min((offer.price for offer in market.offers), default=0.0) if market else 0.0
            why = (
                draft.limits.why(kind.name, price)
                or draft.snapshot.held.get(kind.name)
                or (market.blocked if market is not None else "")
            )
            draft.waiting.append(Note(owner, why, lacking))


def _explicit(draft: _Draft) -> None:
    """Explicit requests are measured against whole nodes, used or not: they ask for a size of the cluster."""
    wanted = draft.snapshot.demand.explicit
    if not wanted:
        return
    whole = pool_of(draft.snapshot, draft.leaving, back=draft.back, spare=draft.spare, whole=True)
    for entry in draft.pool:
        if entry.origin is Origin.NEW:
            fresh = entry.alike(list(entry.members))
            fresh.holds = ()
            whole.add(fresh)
    today = Pool([entry for entry in whole if entry.origin is Origin.EXISTING])
    later = Pool([entry for entry in whole if entry.origin is not Origin.EXISTING])
    short, unseen = _fill_pool(draft, today, wanted, _requested)
    draft.short = tuple((entry.shape, entry.count) for entry in (*short, *unseen))
    waiting, rest = _fill_pool(draft, later, [(entry.shape, entry.count) for entry in short], _requested)
    draft.asked_of = [entry for entry in later if entry.origin is Origin.NEW]
    draft.kept |= today.used() | {name for name in later.used() if not name.startswith("new:")}
    trial = draft.limits.copy()
    for purchase in buy(waiting, draft.menu, trial, draft.largest, draft.is_late):
        holds = tuple((_requested(shape), copies) for shape, copies in purchase.contents)
        draft.wish(purchase.candidate, purchase.count, EXPLICIT, holds)
    _explain(draft, waiting, [*unseen, *rest], _requested)


def _requested(shape: Shape) -> str:
    return f"{REQUESTED}{shape}"


def _gangs(draft: _Draft) -> None:
    demand = draft.snapshot.demand
    ordered = sorted(demand.gangs, key=lambda gang: (gang.strictness, -len(gang.bundles), gang.id))
    if not ordered:
        return
    floor = Floor.of([*(shape for shape, _ in demand.shapes), *(s for gang in ordered for s in gang.missing)])
    hopeless: dict[object, bool] = {}
    crowded: set[object] = set()
    draft.pool.set_full_aside(floor)
    utmost: gangs.Utmost | None = None
    tidy_at = 2 * len(draft.pool.classes) + 64
    for gang in ordered:
        alike = (gang.strategy, gang.bundles, gang.domain)
        is_whole = not any(gang.placed)
        if draft.is_late():
            draft.waiting.append(Note(str(gang), NO_TIME, 1, gang.id))
            continue
        if is_whole and alike in hopeless:
            _refuse_gang(draft, gang, hopeless[alike])
            continue
        placed = None
        if not (is_whole and alike in crowded):
            placed = gangs.place_on_pool(gang, draft.pool, draft.rng)
        if placed is None:
            crowded.add(alike)
            around = gangs.stage(gang, draft.pool)
            placed = gangs.place_all(gang, around, draft.rng) or gangs.place_with_new(
                gang, around, draft.menu, draft.limits, draft.rng, draft.is_late
            )
        if placed is None and draft.is_late():
            draft.waiting.append(Note(str(gang), NO_TIME, 1, gang.id))
            continue
        if placed is None:
            utmost = utmost or gangs.Utmost.of(draft.snapshot, draft.leaving)
            feasible = gangs.could_ever_fit(gang, draft.snapshot, utmost)
            if is_whole:
                hopeless[alike] = feasible
            _refuse_gang(draft, gang, feasible)
            continue
        _commit(draft, gang, placed)
        if len(draft.pool.classes) > tidy_at:
            draft.pool.compact()
            draft.pool.set_full_aside(floor)
            tidy_at = 2 * len(draft.pool.classes) + 64


def _commit(draft: _Draft, gang: Gang, placed: gangs.Placed) -> None:
    """Takes what the gang uses out of the pool and the limits."""
    draft.pool.take(placed.usage, placed.homes, gang.id)
    usage: dict[str, tuple[Shape, ...]] = {}
    homes: dict[str, NodeClass] = {}
    for candidate in {id(candidate): candidate for candidate, _ in placed.new}.values():
        mine = [bundles for other, bundles in placed.new if other is candidate]
        entry = draft.wish(candidate, len(mine), str(gang), is_paced=True)
        usage.update(zip(entry.members, mine, strict=True))
        homes.update(dict.fromkeys(entry.members, entry))
    if usage:
        draft.pool.take(usage, homes, gang.id)


def _refuse_gang(draft: _Draft, gang: Gang, feasible: bool) -> None:
    if feasible:
        why = why_waiting(gang.missing, draft.snapshot, draft.limits)
        draft.waiting.append(Note(str(gang), why, 1, gang.id))
        return
    lone = next((shape for shape in gang.bundles if not is_feasible(shape, draft.snapshot)), None)
    if lone is not None:
        why = f"bundle {lone}: {why_infeasible(lone, draft.snapshot)}"
    elif gang.strategy == "STRICT_PACK":
        why = f"together on one node: {why_infeasible(gang.rest, draft.snapshot)}"
    else:
        why = "each bundle fits alone, all of them do not within the limits of the node types"
    draft.infeasible.append(Note(str(gang), why, 1, gang.id))


def _shapes(draft: _Draft) -> None:
    near = Pool([entry for entry in draft.pool if entry.origin <= Origin.DRAINING])
    coming = Pool([entry for entry in draft.pool if entry.origin > Origin.DRAINING])
    waiting, unseen = _fill_pool(draft, near, draft.snapshot.demand.shapes, _itself)
    prices = {instance.node_type: instance.offer.price for instance in draft.snapshot.instances}
    prices.update({wish.candidate.name: wish.candidate.offer.price for wish in draft.wishes})
    served = serve(waiting, coming, prices, draft.menu, draft.limits, draft.largest, draft.is_late, _itself)
    draft.pool = Pool([*near, *served.coming])
    for purchase in served.bought:
        draft.wishes.append(Wish(purchase.candidate, purchase.count, DEMAND, True, purchase.contents))
    _explain(draft, served.waiting, unseen, str)


def _itself(shape: Shape) -> Hashable:
    return shape


def _fill_pool(
    draft: _Draft, pool: Pool, wanted: Iterable[tuple[Shape, int]], owner: Callable[[Shape], Hashable]
) -> tuple[list[Waiting], list[Waiting]]:
    """Places what fits on the pool; returns what does not, hardest first, and what there was no time for."""
    ordered = sorted(wanted, key=lambda entry: scarcity(entry[0], draft.largest))
    floor = Floor.of(shape for shape, _ in ordered)
    pool.set_full_aside(floor)
    waiting: list[Waiting] = []
    for number, (shape, count) in enumerate(ordered):
        if draft.is_late():
            return waiting, [Waiting(*entry) for entry in ordered[number:]]
        rest = pool.place(shape, count, owner(shape))
        if rest:
            waiting.append(Waiting(shape, rest))
        if number % 16 == 15:
            pool.set_full_aside(floor)
    return waiting, []


def _explain(
    draft: _Draft, waiting: Iterable[Waiting], unseen: Iterable[Waiting], name: Callable[[Shape], str]
) -> None:
    for entry in [*waiting, *unseen]:
        if entry.count <= 0:
            continue
        if not is_feasible(entry.shape, draft.snapshot):
            why = why_infeasible(entry.shape, draft.snapshot)
            draft.infeasible.append(Note(name(entry.shape), why, entry.count))
            continue
        why = NO_TIME if draft.partial else why_waiting([entry.shape], draft.snapshot, draft.limits)
        draft.waiting.append(Note(name(entry.shape), why, entry.count))


def _start(draft: _Draft) -> tuple[Launch, ...]:
    """What may start now; the rest waits."""
    config = draft.snapshot.config
    started = start(
        draft.wishes,
        pace(config, draft.snapshot.instances, draft.snapshot.now),
        config.upscaling_speed,
        draft.snapshot.allowance,
        [*(entry for entry in draft.pool if entry.origin is Origin.NEW), *draft.asked_of],
    )
    names = {gang.id: str(gang) for gang in draft.snapshot.demand.gangs} if started.put_off else {}
    told: set[bytes] = set()
    for (owner, why), count in started.put_off.items():
        if not isinstance(owner, bytes):
            draft.waiting.append(Note(str(owner), why, count))
        elif owner not in told:
            told.add(owner)
            draft.waiting.append(Note(names[owner], why, 1, owner))
    return started.launches
