"""One tick: snapshot, observe, plan, terminate, launch. Does no input or output: effects are returned, and
their outcomes are facts of a later tick."""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autoscaler.backoff import Throttle
from autoscaler.budgets import count_by_type
from autoscaler.config import HASH_VERSION, AutoscalerConfig, Cause
from autoscaler.demand import Demand, demand_of
from autoscaler.drain import back_to_work
from autoscaler.effects import (
    CallFailed,
    Create,
    Created,
    Drain,
    Drained,
    Effect,
    Listing,
    Outcome,
    Resume,
    Resumed,
    SetUp,
    SetUpEnded,
    Terminate,
    Terminated,
)
from autoscaler.flapping import EarlyDeaths
from autoscaler.health import SetupHealth
from autoscaler.instances import (
    IN_FLIGHT,
    Instance,
    InstanceState,
    InstanceTable,
    Transition,
    deadline_of,
)
from autoscaler.loads import loads_of
from autoscaler.memory import Learnt, Memory, remember, resumed
from autoscaler.observe import (
    Adopted,
    DiedYoung,
    Event,
    Facts,
    Lasted,
    Noted,
    OfferRefused,
    OfferServed,
    machines_of,
    observe,
)
from autoscaler.offerings import Offerings, market_of
from autoscaler.plan import Launch, Plan, never, plan
from autoscaler.provider import (
    SPOT,
    Capabilities,
    Capacity,
    LaunchRequest,
    Machine,
    MachineTags,
    Offer,
    ProviderError,
    Throttled,
)
from autoscaler.scale_down import Removal, Way
from autoscaler.snapshot import Snapshot, observed, profile_of
from autoscaler.status import Happening, Report, Resting, report_of
from runtime._wire.messages.base import NodeInfo
from runtime._wire.messages.control import ClusterState

_S = InstanceState
KEEP_ENDED_S = 3600.0
KEEP_ENDED = 200
KEEP_EVENTS = 50
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
        self.events: deque[Happening] = deque(maxlen=KEEP_EVENTS)
        self._capabilities = capabilities
        self._new_id = new_id
        self._rng = rng
        self._began_s: float | None = None
        self._is_blind_by_lag = False
        self._blind = ""
        self._throttle = Throttle()
        self._deaths = EarlyDeaths(memory.flapping).under(config.config_hashes)
        self._offerings = Offerings(memory.penalties)
        self._health = SetupHealth(memory.setups).under(config.config_hashes)
        self._learnt = {entry.node_type: entry for entry in memory.learnt}
        self._machines: dict[str, Machine] = {}
        self._busy: set[tuple[str, str]] = set()
        self._demand = Demand()
        self._spare: dict[str, float] = {}

    def configure(self, config: AutoscalerConfig, capabilities: Capabilities) -> None:
        """What holds from the next step on."""
        self.config = config
        self._capabilities = capabilities
        self._health = self._health.under(config.config_hashes)
        self._deaths = self._deaths.under(config.config_hashes)

    # ------------------------------------------------------------ the tick

    def step(self, world: World, now: float, out_of_time: Callable[[], bool] = never) -> list[Effect]:
        """Brings the picture up to date, decides, and returns what is to be done, in order."""
        if self._began_s is None:
            self._began_s = now
            self._begin(now)
        lag_s = self._capabilities.listing_lag_s
        facts = Facts(world.cluster.nodes, world.listing, world.outcomes, lag_s, self._began_s)
        for outcome in world.outcomes:
            self._ended(outcome, now)
        if world.listing is not None:
            self._throttle.went_well(world.listing.started_s)
        self._machines.update(machines_of(facts))
        for event in observe(tuple(self.table), facts, self.config, now, self._rng):
            self._take(event, now)
        self._price(world, now)
        self._blind = self._why_blind(world, now)
        self._drop_wishes(now)
        snapshot = self.snapshot(world, now)
        self._demand = snapshot.demand
        self.plan = plan(snapshot, out_of_time)
        self._note_spare(now)
        for removal in self.plan.removals:
            self._remove(removal, now)
        for instance_id, reason in self.plan.recalls.items():
            if ("drain", instance_id) not in self._busy:  # else it is called back once the drain was answered
                self._move(back_to_work(self.table[instance_id], reason), now)
        if not self._blind:
            for launch in self.plan.launches:
                self._queue(launch, now)
        self.table.prune(now, KEEP_ENDED_S, KEEP_ENDED)
        held = {instance.machine_id for instance in self.table}
        self._machines = {key: machine for key, machine in self._machines.items() if key in held}
        may_call = not self._throttle.is_on(now)
        return [
            *(self._terminations(now) if may_call else ()),
            *self._drains(now),
            *self._resumptions(now),
            *self._setups(now),
            *(self._creations(now) if may_call else ()),
        ]

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

    def _why_blind(self, world: World, now: float) -> str:
        """Why nothing may be launched: what is known of the world is too little, or too old."""
        assert self._began_s is not None
        oldest_s = now - BLIND_CALLS * self.config.provider_timeout_s
        if world.listing is None:
            return "the platform's machines have not been listed yet"
        lag_s = self._capabilities.listing_lag_s
        self._is_blind_by_lag = lag_s > 0 and world.listing.started_s < self._began_s + lag_s
        if self._is_blind_by_lag:
            return "listings do not show yet what an earlier process may have launched"
        if world.listing.started_s < oldest_s:
            return f"the platform's machines were listed {now - world.listing.started_s:.0f} s ago"
        if world.cluster.now_s < oldest_s:
            return f"the control store was heard of {now - world.cluster.now_s:.0f} s ago"
        return ""

    def _drop_wishes(self, now: float) -> None:
        """Takes back what is wanted and not asked for, where it would not be launched any more: planned in the
        same step, the work that it was for gets the next offer at once."""
        held = self._held(now)
        stopped = self._health.open_until_s > now
        for instance in self.table.in_state(_S.QUEUED):
            if stopped:
                why = "most of the last machines failed their setup"
            elif instance.node_type in held:
                why = held[instance.node_type]
            elif self._offerings.penalty_of(instance.node_type, instance.offer, now) is not None:
                why = "its offer was refused meanwhile"
            else:
                continue
            self._move(Transition(instance.id, _S.CANCELLED, why), now)

    def _held(self, now: float) -> dict[str, str]:
        return {name: why for name, (_, why) in self._resting(now).items()}

    def _resting(self, now: float) -> dict[str, tuple[float, str]]:
        resting = dict(self._health.resting(now))
        for name, (until_s, why) in self._deaths.resting(now).items():
            if name not in resting or resting[name][0] < until_s:
                resting[name] = until_s, why
        return resting

    def snapshot(self, world: World, now: float) -> Snapshot:
        """The picture a plan is made from."""
        self._learn(world.cluster.nodes)
        in_flight = sum(count_by_type(self.table, IN_FLIGHT).values())
        return Snapshot(
            now=now,
            config=self.config,
            demand=demand_of(world.cluster),
            nodes=tuple(world.cluster.nodes),
            instances=tuple(self.table),
            markets={
                kind.name: market_of(
                    kind, world.offers, self._offerings, now, world.closed.get(kind.name, "")
                )
                for kind in self.config.node_types
            },
            profiles={
                kind.name: profile_of(kind, world.offers.get(kind.name, ()), self._seen(kind.name))
                for kind in self.config.node_types
            },
            held=self._held(now),
            allowance=self._health.allowance(now, in_flight),
            loads=loads_of(world.cluster) if self.config.consolidation is not None else {},
            spare_since_s=self._spare,
        )

    def _note_spare(self, now: float) -> None:
        """Since when the work of which nodes has room elsewhere. Kept in memory only: it is soon known again."""
        spare = self.plan.spare
        if spare is not None:
            kept = {name: since_s for name, since_s in self._spare.items() if name in spare or since_s > now}
            self._spare = {**dict.fromkeys(spare, now), **kept}

    def _learn(self, nodes: Sequence[NodeInfo]) -> None:
        """Keeps what nodes of today's configuration bring, for the time when there are none."""
        hashes = {i.id: i.config_hash for i in self.table if not i.is_terminal}
        by_type: dict[str, list[NodeInfo]] = {}
        for node in nodes:
            if node.state == "ALIVE" and not node.is_head and node.instance_id in hashes:
                wanted = self.config.config_hashes.get(node.node_type, "")
                if not wanted or hashes[node.instance_id] in ("", wanted):
                    by_type.setdefault(node.node_type, []).append(node)
        for name, found in by_type.items():
            seen = observed(found)
            if seen is not None:
                self._learnt[name] = Learnt(name, self.config.config_hashes.get(name, ""), seen)

    def _seen(self, node_type: str) -> Mapping[str, int] | None:
        known = self._learnt.get(node_type)
        if known is None or known.config_hash != self.config.config_hashes.get(node_type, ""):
            return None
        return known.resources

    def next_s(self, now: float) -> float | None:
        """When time alone asks for the next tick; None: not before facts change."""
        times = [until_s for until_s, _ in self._resting(now).values()]
        times += [self._throttle.until_s] if self._throttle.is_on(now) else []
        times += [self._health.open_until_s] if self._health.open_until_s > now else []
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

    def memory(self) -> Memory:
        """What to save, so that another process carries on from here."""
        return remember(self.table, self._offerings, self._health, self._learnt.values(), self._deaths)

    def report(self, now: float, problems: Sequence[str] = (), plan_s: float = 0.0) -> Report:
        """What to tell the operator."""
        resting = [Resting(name, why, until_s) for name, (until_s, why) in self._resting(now).items()]
        if self._health.open_until_s > now:
            why = "most of the last machines failed their setup; then one is tried"
            resting.append(Resting("all launches", why, self._health.open_until_s))
        if self._throttle.is_on(now):
            resting.append(Resting("every call to the platform", self._throttle.why, self._throttle.until_s))
        problems = [*problems, *self._problems(now)]
        return report_of(
            self.config,
            tuple(self.table),
            self._demand,
            self.plan,
            self._offerings.active(now),
            resting,
            self.events,
            problems,
            now,
            plan_s,
        )

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

    @property
    def throttled_until_s(self) -> float:
        """No call to the platform should be made before."""
        return self._throttle.until_s

    # ------------------------------------------------------------ events

    def _ended(self, outcome: Outcome, now: float) -> None:
        errors: Sequence[ProviderError | None] = ()
        if isinstance(outcome, Created):
            self._busy.discard(("create", outcome.token))
            errors = (outcome.error, *outcome.result.errors)
        elif isinstance(outcome, SetUpEnded):
            self._busy.discard(("setup", outcome.instance_id))
        elif isinstance(outcome, Drained):
            self._busy.discard(("drain", outcome.instance_id))
        elif isinstance(outcome, Resumed):
            self._busy.discard(("resume", outcome.instance_id))
        elif isinstance(outcome, Terminated):
            for machine_id in outcome.answers:
                self._busy.discard(("terminate", machine_id))
            errors = tuple(outcome.answers.values())
        elif isinstance(outcome, CallFailed):
            errors = (outcome.error,)
        throttled = [error for error in errors if isinstance(error, Throttled)]
        if throttled:
            worst = max(throttled, key=lambda error: error.retry_after_s)
            self._throttle.slow_down(worst.retry_after_s, str(worst), now, self._rng)

    def _take(self, event: Event, now: float) -> None:
        if isinstance(event, Transition):
            self._move(event, now)
        elif isinstance(event, Adopted):
            self.table.add(event.instance)
            self._tell(now, f"{event.instance.id} ({event.instance.node_type}): {event.instance.reason}")
        elif isinstance(event, Noted):
            self.table.note(event.instance, now)
        elif isinstance(event, OfferRefused):
            self._offerings.refused(event.node_type, event.offer, event.error, now, self._rng)
        elif isinstance(event, OfferServed):
            self._offerings.succeeded(event.node_type, event.offer)
        elif isinstance(event, DiedYoung):
            self._died_young(event, now)
        elif isinstance(event, Lasted):
            lasted = event.instance
            self._deaths.lasted(lasted.node_type, lasted.joined_s)
            self._offerings.lasted(lasted.node_type, lasted.offer, lasted.joined_s)
        else:
            config_hash = self.config.config_hashes.get(event.node_type, "")
            self._health.record(event.node_type, event.ok, now, config_hash)

    def _died_young(self, event: DiedYoung, now: float) -> None:
        """A spot machine was most likely taken back: the offer is to blame. Any other was not sound: its type
        is."""
        lost = event.instance
        if lost.offer.market == SPOT:
            when = (
                f"{event.lived_s:.0f} s after its node had joined" if event.lived_s else "while it was set up"
            )
            error = Capacity(f"a machine was lost {when}")
            self._offerings.refused(lost.node_type, lost.offer, error, now, self._rng, lost=True)
        elif lost.config_hash in ("", self.config.config_hashes.get(lost.node_type, "")):
            config_hash = self.config.config_hashes.get(lost.node_type, "")
            self._deaths.died(lost.node_type, lost.allocated_s, now, config_hash)

    def _move(self, step: Transition, now: float) -> None:
        if step.recalled and self.table[step.instance_id].cause is Cause.CONSOLIDATION:
            self._spare[step.instance_id] = now + UNMOVED_REST_S
        instance = self.table.apply(step, now)
        self._tell(now, f"{instance.id} ({instance.node_type}) {instance.state.name}: {step.reason}")

    def _tell(self, now: float, text: str) -> None:
        self.events.append(Happening(now, text))

    # ------------------------------------------------------------ decisions into the table

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
            self._tell(now, f"{batch} x {launch.node_type}: wanted for {launch.why}")
            left -= batch

    # ------------------------------------------------------------ effects

    def _start(self, kind: str, name: str, instance: Instance, now: float) -> None:
        self._busy.add((kind, name))
        self.table.note(replace(instance, asked_s=now), now)

    def _due(self, instance: Instance, kind: str, name: str, now: float) -> bool:
        return instance.asked_s == 0.0 and now >= instance.not_before_s and (kind, name) not in self._busy

    def _terminations(self, now: float) -> list[Effect]:
        due = [
            instance
            for instance in self.table.in_state(_S.TERMINATING)
            if instance.machine_id and self._due(instance, "terminate", instance.machine_id, now)
        ]
        for instance in due:
            self._start("terminate", instance.machine_id, instance, now)
        return [Terminate(tuple(instance.machine_id for instance in due))] if due else []

    def _drains(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for instance in self.table.in_state(_S.DRAINING):
            if not instance.settled and self._due(instance, "drain", instance.id, now):
                self._start("drain", instance.id, instance, now)
                effects.append(Drain(instance.id, instance.node_id, instance.reason, instance.only_if_idle))
        return effects

    def _resumptions(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for instance in self.table.in_state(_S.RUNNING):
            if instance.recalled and self._due(instance, "resume", instance.id, now):
                self._start("resume", instance.id, instance, now)
                effects.append(Resume(instance.id, instance.node_id, instance.reason))
        return effects

    def _setups(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        room = self.config.budgets.max_setting_up - sum(1 for kind, _ in self._busy if kind == "setup")
        for instance in self.table.in_state(_S.SETTING_UP):
            kind = self.config.node_type(instance.node_type)
            machine = self._machines.get(instance.machine_id)
            if room <= 0:
                break
            if kind is None or machine is None or instance.settled:
                continue
            if self._due(instance, "setup", instance.id, now):
                room -= 1
                log_path = os.path.join(self.config.log_dir, f"setup-{instance.id}.log")
                self._start("setup", instance.id, replace(instance, setup_log=log_path), now)
                effects.append(SetUp(instance.id, machine, kind, log_path))
        return effects

    def _creations(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        room = self.config.budgets.max_creating - sum(1 for kind, _ in self._busy if kind == "create")
        batches: dict[str, list[Instance]] = {}
        tokens = {instance.token for instance in self.table.in_state(_S.QUEUED, _S.REQUESTED)}
        for instance in self.table:
            if instance.token in tokens:
                batches.setdefault(instance.token, []).append(instance)
        for token, batch in batches.items():
            queued = [i for i in batch if i.state is _S.QUEUED]
            waiting = [i for i in batch if i.state is _S.REQUESTED]
            kind = self.config.node_type(batch[0].node_type)
            if not (queued or waiting) or kind is None or room <= 0:
                continue
            if not all(self._due(i, "create", token, now) for i in [*queued, *waiting]):
                continue
            asked = [*waiting, *(self._requested(instance, now) for instance in queued)]
            room -= 1
            for instance in asked:
                self._start("create", token, instance, now)
            # A repeated call names the whole batch again: platforms compare it with the first.
            whole = [i for i in batch if i.state is not _S.CANCELLED]
            effects.append(Create(self._request(token, whole)))
        return effects

    def _requested(self, instance: Instance, now: float) -> Instance:
        self._move(Transition(instance.id, _S.REQUESTED, "create is called"), now)
        requested = self.table.get(instance.id)
        assert requested is not None
        return requested

    def _request(self, token: str, batch: Sequence[Instance]) -> LaunchRequest:
        first = batch[0]
        kind = self.config.node_type(first.node_type)
        assert kind is not None
        tags = {
            MachineTags.CLUSTER_ID: self.config.cluster_id,
            MachineTags.CLUSTER_NAME: self.config.cluster_name,
            MachineTags.ROLE: MachineTags.WORKER,
            MachineTags.HASH_VERSION: HASH_VERSION,
        }
        if first.config_hash:
            tags[MachineTags.CONFIG_HASH] = first.config_hash
        return LaunchRequest(token, kind, len(batch), first.offer, tags, tuple(i.id for i in batch))
