"""One tick: observe, decide, and say which calls are due. Does no input or output: effects are returned, and their
outcomes are facts of a later tick.

What is known is in three places, of which each is changed here only: `InstanceTable` (the machines and what is decided
about them), `Experience` (what earlier launches teach) and `Dispatch` (the calls that are waited for).
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autoscaler.budgets import count_by_type
from autoscaler.config import AutoscalerConfig, Cause
from autoscaler.demand import Demand, demand_of
from autoscaler.dispatch import Dispatch
from autoscaler.drain import back_to_work
from autoscaler.effects import Effect, Listing, Outcome
from autoscaler.experience import Experience
from autoscaler.instances import (
    IN_FLIGHT,
    Instance,
    InstanceState,
    InstanceTable,
    Transition,
    deadline_of,
)
from autoscaler.loads import loads_of
from autoscaler.memory import Memory, resumed
from autoscaler.observe import Adopted, Event, Facts, Noted, machines_of, observe
from autoscaler.plan import Launch, Plan, never, plan
from autoscaler.provider import Capabilities, Machine, Offer
from autoscaler.scale_down import Removal, Way
from autoscaler.snapshot import Snapshot
from autoscaler.status import Report, Resting, report_of
from runtime._wire.messages.control import ClusterState

_S = InstanceState
KEEP_ENDED_S = 3600.0
KEEP_ENDED = 200
STUCK_S = 600.0
"""A machine that is listed for so long after its end was asked for is the operator's problem."""
BLIND_CALLS = 3.0
"""Facts that are older than so many calls may take are too old to spend money on."""
UNMOVED_REST_S = 1800.0
"""A node whose consolidation came to nothing is left alone for so long."""


@dataclass(frozen=True, slots=True)
class World:
    """The facts one tick is given.

    Attributes:
        cluster: the control store's picture.
        listing: the platform's last one; None before the first, and then nothing is launched.
        outcomes: of effects that ended since the last tick; each is given once.
        offers: per node type, what the platform offers.
        closed: node types whose offers are not known, and why.
    """

    cluster: ClusterState
    listing: Listing | None = None
    outcomes: tuple[Outcome, ...] = ()
    offers: Mapping[str, Sequence[Offer]] = field(default_factory=dict)
    closed: Mapping[str, str] = field(default_factory=dict)


def random_id() -> str:
    """A fresh name for an instance or a token."""
    return os.urandom(5).hex()


class Reconciler:
    """Owns what the autoscaler knows; `step` moves it."""

    def __init__(
        self,
        config: AutoscalerConfig,
        capabilities: Capabilities,
        *,
        memory: Memory | None = None,
        new_id: Callable[[], str] = random_id,
        rng: random.Random | None = None,
    ) -> None:
        """Args:
        memory: what an earlier process knew.
        new_id: names instances and tokens.
        rng: spreads the times at which things are tried again; None: not at all.
        """
        memory = memory or Memory()
        self.config = config
        self.table = InstanceTable(resumed(memory.instances))
        self.plan = Plan()
        self._experience = Experience(memory, config, rng)
        self._dispatch = Dispatch(self.table, rng)
        self._capabilities = capabilities
        self._new_id = new_id
        self._rng = rng
        self._began_s: float | None = None
        self._is_blind_by_lag = False
        self._blind = ""
        self._machines: dict[str, Machine] = {}
        self._demand = Demand()
        self._spare: dict[str, float] = {}

    def configure(self, config: AutoscalerConfig, capabilities: Capabilities) -> None:
        """What holds from the next step on."""
        self.config = config
        self._capabilities = capabilities
        self._experience.configure(config)

    def step(self, world: World, now: float, out_of_time: Callable[[], bool] = never) -> list[Effect]:
        """Brings the picture up to date, decides, and returns what is to be done, in order."""
        self._observe(world, now)
        self._drop_wishes(now)
        snapshot = self.snapshot(world, now)
        self._demand = snapshot.demand
        self.plan = plan(snapshot, out_of_time)
        self._record(self.plan, now)
        return self._dispatch.due(self.config, self._machines, now)

    # ------------------------------------------------------------ what is known

    def _observe(self, world: World, now: float) -> None:
        """Takes in the facts."""
        if self._began_s is None:
            self._began_s = now
            self._begin(now)
        facts = Facts(
            world.cluster.nodes,
            world.listing,
            world.outcomes,
            self._capabilities.listing_lag_s,
            self._began_s,
        )
        for outcome in world.outcomes:
            self._dispatch.ended(outcome, now)
        if world.listing is not None:
            self._dispatch.throttle.went_well(world.listing.started_s)
        self._machines.update(machines_of(facts))
        for event in observe(tuple(self.table), facts, self.config, now, self._rng):
            self._take(event, now)
        self._price(world, now)
        self._experience.learn(self.table, world.cluster.nodes)
        self._is_blind_by_lag = self._lags(world)
        self._blind = self._why_blind(world, now)

    def _begin(self, now: float) -> None:
        """Carries on with what an earlier process left: time passed while nobody looked, so what has been
        waited for gets a while to show, and what is done anew its whole time."""
        grace_s = self.config.node_grace_s
        for instance in self.table:
            until_s = deadline_of(instance, self.config.deadlines)
            if until_s is not None and until_s < now + grace_s:
                repeated = instance.state is _S.SETTING_UP and not instance.settled
                span_s = self.config.deadlines.setting_up_s if repeated else grace_s
                self.table.note(replace(instance, expires_s=now + span_s), now)

    def _take(self, event: Event, now: float) -> None:
        if isinstance(event, Transition):
            self._move(event, now)
        elif isinstance(event, Adopted):
            self.table.add(event.instance)
            self.table.tell(now, f"{event.instance.id} ({event.instance.node_type}): {event.instance.reason}")
        elif isinstance(event, Noted):
            self.table.note(event.instance, now)
        else:
            self._experience.take(event, now)

    def _price(self, world: World, now: float) -> None:
        """A machine that was found by the listing alone costs what its offer does, or, when that is offered no more,
        as much as the dearest of its type: the price budget counts it."""
        for instance in self.table:
            if instance.is_terminal or instance.offer.price:
                continue
            offers = world.offers.get(instance.node_type, ())
            place = (instance.offer.zone, instance.offer.market)
            prices = [offer.price for offer in offers if (offer.zone, offer.market) == place]
            price = max(prices or (offer.price for offer in offers), default=0.0)
            if price:
                self.table.note(replace(instance, offer=replace(instance.offer, price=price)), now)

    def _lags(self, world: World) -> bool:
        """Whether the listing may lack machines that an earlier process launched."""
        assert self._began_s is not None
        lag_s = self._capabilities.listing_lag_s
        return world.listing is not None and lag_s > 0 and world.listing.started_s < self._began_s + lag_s

    def _why_blind(self, world: World, now: float) -> str:
        """Why nothing may be launched: what is known of the world is too little, or too old."""
        oldest_s = now - BLIND_CALLS * self.config.provider_timeout_s
        if world.listing is None:
            return "the platform's machines have not been listed yet"
        if self._is_blind_by_lag:
            return "listings do not show yet what an earlier process may have launched"
        if world.listing.started_s < oldest_s:
            return f"the platform's machines were listed {now - world.listing.started_s:.0f} s ago"
        if world.cluster.now_s < oldest_s:
            return f"the control store was heard of {now - world.cluster.now_s:.0f} s ago"
        return ""

    def snapshot(self, world: World, now: float) -> Snapshot:
        """The picture a plan is made from."""
        in_flight = sum(count_by_type(self.table, IN_FLIGHT).values())
        return Snapshot(
            now=now,
            config=self.config,
            demand=demand_of(world.cluster),
            nodes=tuple(world.cluster.nodes),
            instances=tuple(self.table),
            markets=self._experience.markets(self.config, world.offers, world.closed, now),
            profiles=self._experience.profiles(self.config, world.offers),
            held=self._experience.held(now),
            allowance=self._experience.allowance(now, in_flight),
            loads=loads_of(world.cluster) if self.config.consolidation is not None else {},
            spare_since_s=self._spare,
        )

    # ------------------------------------------------------------ what is decided

    def _drop_wishes(self, now: float) -> None:
        """Takes back what is wanted and not asked for, where it would not be launched any more: planned in the
        same step, the work that it was for gets the next offer at once."""
        for instance in self.table.in_state(_S.QUEUED):
            why = self._experience.objection(instance, now)
            if why:
                self._move(Transition(instance.id, _S.CANCELLED, why), now)

    def _record(self, decided: Plan, now: float) -> None:
        """Writes the plan into the table, and forgets what ended long ago."""
        self._note_spare(decided, now)
        for removal in decided.removals:
            self._remove(removal, now)
        for instance_id, reason in decided.recalls.items():
            if not self._dispatch.is_draining(instance_id):  # else it is called back after that answer
                self._move(back_to_work(self.table[instance_id], reason), now)
        if not self._blind:
            for launch in decided.launches:
                self._queue(launch, now)
        self.table.prune(now, KEEP_ENDED_S, KEEP_ENDED)
        held = {instance.machine_id for instance in self.table}
        self._machines = {key: machine for key, machine in self._machines.items() if key in held}

    def _note_spare(self, decided: Plan, now: float) -> None:
        """Since when the work of which nodes has room elsewhere. Kept in memory only: it is soon known again."""
        spare = decided.spare
        if spare is not None:
            kept = {name: since_s for name, since_s in self._spare.items() if name in spare or since_s > now}
            self._spare = {**dict.fromkeys(spare, now), **kept}

    def _remove(self, removal: Removal, now: float) -> None:
        target = {Way.CANCEL: _S.CANCELLED, Way.TERMINATE: _S.TERMINATING, Way.DRAIN: _S.DRAINING}[
            removal.way
        ]
        self._move(Transition(removal.instance_id, target, removal.reason, cause=removal.cause), now)

    def _queue(self, launch: Launch, now: float) -> None:
        left = launch.count
        while left > 0:
            batch = min(left, max(1, self._capabilities.max_per_create))
            token = self._new_id()
            for _ in range(batch):
                instance_id = self._new_id()
                self.table.add(
                    Instance(
                        id=instance_id,
                        node_type=launch.node_type,
                        state=_S.QUEUED,
                        since_s=now,
                        token=token,
                        offer=launch.offer,
                        config_hash=self.config.config_hashes.get(launch.node_type, ""),
                        reason=launch.why,
                    )
                )
            self.table.tell(now, f"{batch} x {launch.node_type}: wanted for {launch.why}")
            left -= batch

    def _move(self, step: Transition, now: float) -> None:
        if step.recalled and self.table[step.instance_id].cause is Cause.CONSOLIDATION:
            self._spare[step.instance_id] = now + UNMOVED_REST_S
        self.table.apply(step, now)

    # ------------------------------------------------------------ for the loop

    def next_s(self, now: float) -> float | None:
        """When time alone asks for the next tick; None: not before facts change."""
        times = [one.until_s for one in self._resting(now)]
        if self.plan.next_s is not None:
            times.append(self.plan.next_s)
        if self.plan.is_partial:
            times.append(now)
        for instance in self.table:
            if instance.is_terminal:
                continue
            until_s = deadline_of(instance, self.config.deadlines)
            if until_s is not None and until_s > now:
                times.append(until_s)
            if instance.not_before_s > now:
                times.append(instance.not_before_s)
        return min(times, default=None)

    @property
    def is_unsettled(self) -> bool:
        """Whether the next listing matters soon: some machine is on its way to or from being a node, or the last
        listing is too early for any launch."""
        moving = (_S.REQUESTED, _S.ALLOCATED, _S.SETTING_UP, _S.TERMINATING)
        return self._is_blind_by_lag or any(i.state in moving for i in self.table)

    @property
    def throttled_until_s(self) -> float:
        """No call to the platform should be made before."""
        return self._dispatch.throttle.until_s

    def memory(self) -> Memory:
        """What to save, so that another process carries on from here."""
        return self._experience.remember(self.table)

    def report(self, now: float, problems: Sequence[str] = (), plan_s: float = 0.0) -> Report:
        """What to tell the operator."""
        return report_of(
            self.config,
            tuple(self.table),
            self._demand,
            self.plan,
            self._experience.penalties(now),
            self._resting(now),
            self.table.log,
            [*problems, *self._problems(now)],
            now,
            plan_s,
        )

    def _resting(self, now: float) -> list[Resting]:
        resting = self._experience.resting(now)
        throttle = self._dispatch.throttle
        if throttle.is_on(now):
            resting.append(Resting("every call to the platform", throttle.why, throttle.until_s))
        return resting

    def _problems(self, now: float) -> list[str]:
        """What the operator should look at."""
        found = [f"nothing is launched: {self._blind}"] if self._blind else []
        for instance in self.table.in_state(_S.TERMINATING):
            if now - instance.since_s > STUCK_S:
                found.append(
                    f"machine {instance.machine_id} of {instance.id} is still listed, "
                    f"{(now - instance.since_s) / 60.0:.0f} min after its end was asked for; it may cost money"
                )
        return found
