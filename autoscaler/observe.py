"""Facts in, events out: what the platform lists, what the cluster registers and what effects answered,
compared with what is tracked. Pure.

Two signals are kept apart: a machine counts as gone only when listings say so for longer than they may lag; a
node counts as dead when the control store says so, at once.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autoscaler import drain
from autoscaler.backoff import spread
from autoscaler.config import AutoscalerConfig, Cause
from autoscaler.effects import (
    CallFailed,
    Created,
    Drained,
    Listing,
    Outcome,
    Resumed,
    SetUpEnded,
    Terminated,
)
from autoscaler.flapping import YOUNG_S
from autoscaler.instances import ACTIVE, Instance, InstanceState, InstanceTable, Transition, deadline_of
from autoscaler.provider import (
    SPOT,
    Machine,
    MachineState,
    MachineTags,
    NotFound,
    Offer,
    ProviderError,
    Transient,
)
from runtime._wire.messages.base import NodeInfo

_S = InstanceState
_HAS_MACHINE = (_S.ALLOCATED, _S.SETTING_UP, _S.RUNNING, _S.DRAINING, _S.TERMINATING)
_ENDING = (MachineState.STOPPING, MachineState.STOPPED)


@dataclass(frozen=True, slots=True)
class Adopted:
    """A machine of ours that was not tracked."""

    instance: Instance


@dataclass(frozen=True, slots=True)
class Noted:
    """Bookkeeping of an instance changed, not its state."""

    instance: Instance


@dataclass(frozen=True, slots=True)
class OfferRefused:
    node_type: str
    offer: Offer
    error: ProviderError


@dataclass(frozen=True, slots=True)
class OfferServed:
    node_type: str
    offer: Offer


@dataclass(frozen=True, slots=True)
class SetupKnown:
    """A machine became a node (`ok`), or proved useless before it did."""

    node_type: str
    ok: bool


@dataclass(frozen=True, slots=True)
class DiedYoung:
    """A node was lost within minutes of joining, or a spot machine was taken back before. `lived_s`: since it joined;
    0: it had not."""

    instance: Instance
    lived_s: float


@dataclass(frozen=True, slots=True)
class Lasted:
    """A node lives for so long that nothing is wrong with its kind."""

    instance: Instance


Lesson = OfferRefused | OfferServed | SetupKnown | DiedYoung | Lasted
"""What says something about later launches."""
Event = Transition | Adopted | Noted | Lesson


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of the world.

    Attributes:
        nodes: the cluster's nodes as registered.
        listing: the last one that succeeded.
        outcomes: of effects, since the last time.
        lag_s: how far listings may be behind.
        began_s: when this process first looked; nodes may still be on their way back from before.
    """

    nodes: Sequence[NodeInfo]
    listing: Listing | None = None
    outcomes: Sequence[Outcome] = ()
    lag_s: float = 0.0
    began_s: float = 0.0


def observe(
    instances: Sequence[Instance],
    facts: Facts,
    config: AutoscalerConfig,
    now: float,
    rng: random.Random | None = None,
) -> list[Event]:
    """What has happened to the instances. Applying the events in order brings the table up to date."""
    table = InstanceTable({i.id: i for i in instances})
    observer = _Observer(table, facts, config, now, rng)
    observer.outcomes()
    observer.nodes()
    if facts.listing is not None:
        observer.listing(facts.listing)
    observer.deadlines()
    return observer.events


@dataclass(slots=True)
class _Observer:
    table: InstanceTable
    facts: Facts
    config: AutoscalerConfig
    now: float
    rng: random.Random | None
    events: list[Event] = field(default_factory=list)
    alive: dict[str, NodeInfo] = field(init=False)

    def __post_init__(self) -> None:
        self.alive = {n.instance_id: n for n in self.facts.nodes if n.instance_id and n.state != "DEAD"}

    def move(
        self,
        instance: Instance,
        target: InstanceState,
        reason: str,
        *,
        machine: Machine | None = None,
        node_id: bytes | None = None,
        failure: str | None = None,
        step: str | None = None,
    ) -> Instance:
        self.do(
            Transition(
                instance.id,
                target,
                reason,
                machine_id=machine.id if machine else None,
                address=(machine.public_address or machine.address) if machine else None,
                node_id=node_id,
                failure=failure,
                step=step,
            )
        )
        moved = self.table.get(instance.id)
        assert moved is not None
        return moved

    def do(self, transition: Transition) -> None:
        before = self.table.get(transition.instance_id)
        assert before is not None
        self.table.apply(transition, self.now)
        self.events.append(transition)
        lived_s = self.now - before.joined_s
        if before.state is _S.RUNNING and transition.failure and before.joined_s and lived_s < YOUNG_S:
            self.events.append(DiedYoung(before, lived_s))

    def note(self, instance: Instance) -> None:
        if self.table.get(instance.id) != instance:
            self.table.note(instance, self.now)
            self.events.append(Noted(instance))

    def again_s(self, pause_s: float) -> float:
        """When a call that failed is made again."""
        return self.now + spread(max(0.5, pause_s), self.rng)

    # ------------------------------------------------------------ outcomes

    def outcomes(self) -> None:
        for outcome in self.facts.outcomes:
            if isinstance(outcome, Created):
                self._created(outcome)
            elif isinstance(outcome, Terminated):
                self._terminated(outcome)
            elif isinstance(outcome, SetUpEnded):
                self._set_up(outcome)
            elif isinstance(outcome, Resumed):
                self._resumed(outcome)
            elif not isinstance(outcome, CallFailed):
                self._drained(outcome)

    def _created(self, outcome: Created) -> None:
        machines = {machine.instance_id: machine for machine in outcome.result.machines}
        open_ones = [i for i in self.table if i.token == outcome.token and i.state is _S.REQUESTED]
        missing: list[Instance] = []
        for instance in open_ones:
            machine = machines.get(instance.id)
            if machine is None:
                missing.append(instance)
                continue
            self._allocate(instance, machine)
        if isinstance(outcome.error, Transient):
            again_s = self.again_s(outcome.error.retry_after_s)
            for instance in missing:
                # Machines may exist: the same token is asked again, which makes none twice.
                self.note(replace(instance, asked_s=0.0, not_before_s=again_s, reason=str(outcome.error)))
            return
        errors: Sequence[ProviderError] = (outcome.error,) if outcome.error else outcome.result.errors
        for index, instance in enumerate(missing):
            error = (
                errors[min(index, len(errors) - 1)]
                if errors
                else Transient("the platform returned fewer machines than asked, and no reason")
            )
            self.move(instance, _S.FAILED, str(error), failure=f"{type(error).__name__}: {error}")
            self.events.append(OfferRefused(instance.node_type, instance.offer, error))

    def _allocate(self, instance: Instance, machine: Machine) -> Instance:
        self.events.append(OfferServed(instance.node_type, instance.offer))
        instance = self.move(instance, _S.ALLOCATED, f"machine {machine.id}", machine=machine)
        if machine.state is MachineState.RUNNING:
            instance = self.move(instance, _S.SETTING_UP, "the machine runs")
        return instance

    def _terminated(self, outcome: Terminated) -> None:
        by_machine = {i.machine_id: i for i in self.table if i.state is _S.TERMINATING}
        again_s = {rest_s: self.again_s(rest_s) for rest_s in {_rest_s(e) for e in outcome.answers.values()}}
        for machine_id, error in outcome.answers.items():
            instance = by_machine.get(machine_id)
            if instance is None or error is None or isinstance(error, NotFound):
                continue
            self.note(
                replace(
                    instance,
                    asked_s=0.0,
                    not_before_s=again_s[_rest_s(error)],
                    reason=f"terminating it failed, asked again soon: {error}",
                )
            )

    def _set_up(self, outcome: SetUpEnded) -> None:
        instance = self.table.get(outcome.instance_id)
        if instance is None or instance.state is not _S.SETTING_UP:
            return
        if outcome.error is None:
            self.note(replace(instance, settled=True))
            return
        if instance.id in self.alive:
            return  # an earlier process had it set up already; what was done twice failed, the node works
        self._useless(instance, f"setup failed: {outcome.error.reason}", outcome.error.step)

    def _useless(self, instance: Instance, failure: str, step: str) -> None:
        self.move(instance, _S.TERMINATING, failure, failure=failure, step=step)
        self.events.append(SetupKnown(instance.node_type, ok=False))

    def _drained(self, outcome: Drained) -> None:
        instance = self.table.get(outcome.instance_id)
        if instance is None or instance.state is not _S.DRAINING:
            return
        result = drain.answered(instance, outcome)
        if isinstance(result, Instance):
            self.note(result)
            return
        self.do(result)
        back = self.table.get(instance.id)
        if back is not None:
            self.note(drain.rest_after_refusal(back, self.now))

    def _resumed(self, outcome: Resumed) -> None:
        instance = self.table.get(outcome.instance_id)
        if instance is not None and instance.state is _S.RUNNING and instance.recalled:
            self.note(drain.resumed(instance, outcome, self.now))

    # ------------------------------------------------------------ nodes

    def nodes(self) -> None:
        by_instance: dict[str, NodeInfo] = {}
        for node in self.facts.nodes:
            if not node.instance_id or node.is_head:
                continue
            known = by_instance.get(node.instance_id)
            if known is None or known.state == "DEAD" or node.state != "DEAD":
                by_instance[node.instance_id] = node
        for instance in list(self.table):
            self._compare(instance, by_instance.get(instance.id))

    def _compare(self, instance: Instance, node: NodeInfo | None) -> None:
        if instance.state in (_S.ALLOCATED, _S.SETTING_UP) and node is not None:
            if node.state != "DEAD":
                self._joined(instance, node)
                return
            failure = f"its node died right after joining: {node.death_reason or 'no reason known'}"
            if instance.adopted:
                self.move(instance, _S.TERMINATING, failure)
            else:
                self._useless(instance, failure, "join the cluster")
        elif instance.state is _S.RUNNING:
            self._check_running(instance, node)
        elif instance.state is _S.DRAINING and node is not None and node.state == "DEAD":
            self.move(instance, _S.TERMINATING, "its node ended while it drained")

    def _joined(self, instance: Instance, node: NodeInfo) -> None:
        if instance.state is _S.ALLOCATED:
            instance = self.move(instance, _S.SETTING_UP, "its node is there already")
        self.move(instance, _S.RUNNING, "its node has joined", node_id=node.node_id)
        self.events.append(SetupKnown(instance.node_type, ok=True))

    def _check_running(self, instance: Instance, node: NodeInfo | None) -> None:
        if node is None:
            since_s = instance.unjoined_since_s or self.now
            if self.now - since_s >= self.config.node_grace_s:
                reason = "its node is not registered any more"
                self.move(instance, _S.TERMINATING, reason, failure=reason)
            else:
                self.note(replace(instance, unjoined_since_s=since_s))
        elif node.state == "DEAD":
            reason = f"its node died: {node.death_reason or 'no reason known'}"
            self.move(instance, _S.TERMINATING, reason, failure="" if node.left else reason)
        else:
            lasted = instance.lasted or self.now - instance.joined_s >= YOUNG_S
            known = instance
            # Most ticks find nothing new of most of thousands of instances.
            if instance.unjoined_since_s or node.node_id != instance.node_id or lasted != instance.lasted:
                known = replace(instance, unjoined_since_s=0.0, node_id=node.node_id, lasted=lasted)
                self.note(known)
            if lasted and not instance.lasted:
                self.events.append(Lasted(known))
            if node.state == "DRAINING" and not instance.recalled:
                self._drained_by_hand(known)

    def _drained_by_hand(self, instance: Instance) -> None:
        """Nobody here drains the node. What is known of one that refused, or was called back, may be old."""
        rests_s = max(instance.since_s, instance.not_before_s - drain.REFUSED_REST_S) + drain.REFUSED_REST_S
        if self.now <= rests_s:
            return
        self.do(Transition(instance.id, _S.DRAINING, "its node was drained by hand", cause=Cause.BY_HAND))
        draining = self.table.get(instance.id)
        if draining is not None:
            self.note(replace(draining, settled=True))

    # ------------------------------------------------------------ listing

    def listing(self, listing: Listing) -> None:
        mine = [m for m in listing.machines if m.tags.get(MachineTags.CLUSTER_ID) == self.config.cluster_id]
        present = {m.id: m for m in mine if m.state is not MachineState.GONE}
        ended = {m.id for m in mine} - present.keys()
        claimed: set[str] = set()
        ordered = self._most_likely_first(m for m in present.values() if not m.is_head)
        by_instance = {m.instance_id: m for m in reversed(ordered)}
        for instance in list(self.table):
            if instance.state is _S.REQUESTED and instance.id in by_instance:
                machine = by_instance[instance.id]
                instance = self._allocate(instance, machine)
            if instance.state not in _HAS_MACHINE:
                continue
            claimed.add(instance.machine_id)
            found = present.get(instance.machine_id)
            if found is None:
                self._absent(
                    instance, listing, instance.id in self.alive, is_proven=instance.machine_id in ended
                )
            else:
                self._present(instance, found)
        for machine in ordered:
            if machine.id not in claimed:
                self._unknown(machine)

    def _most_likely_first(self, machines: Iterable[Machine]) -> list[Machine]:
        """Where two machines carry one name (a platform made it twice), the one with the node comes first,
        then the older one."""
        return sorted(machines, key=lambda m: (not self._is_home(m), m.launched_s, m.id))

    def _is_home(self, machine: Machine) -> bool:
        """Whether the living node of the machine's name answers at the machine's address."""
        node = self.alive.get(machine.instance_id)
        return node is not None and bool(node.host) and node.host in (machine.address, machine.public_address)

    def _present(self, instance: Instance, machine: Machine) -> None:
        address = machine.public_address or machine.address or instance.address
        if instance.absent_since_s or instance.address != address:
            instance = replace(instance, absent_since_s=0.0, address=address)
            self.note(instance)
        if machine.state in _ENDING and instance.state in (_S.ALLOCATED, _S.SETTING_UP, _S.RUNNING):
            reason = f"its machine is {machine.state.value.lower()}"
            if instance.state is _S.RUNNING:
                self.move(instance, _S.TERMINATING, reason, failure=reason)
            else:
                self._useless(instance, reason, "start the machine")
        elif machine.unwanted and instance.state in ACTIVE:
            self._give_up(instance, machine)
        elif machine.unwanted and instance.state is _S.DRAINING and instance.cause is Cause.BY_HAND:
            self._drained_by_its_machine(instance, machine)
        elif machine.state is MachineState.RUNNING and instance.state is _S.ALLOCATED:
            self.move(instance, _S.SETTING_UP, "the machine runs", machine=machine)

    def _give_up(self, instance: Instance, machine: Machine) -> None:
        """What runs there is finished first. A spot machine is given up because it is taken back: if that is soon after
        it came, its offer is to blame, and not its type, as it is when a setup fails."""
        reason = machine.unwanted
        failure = reason if machine.market == SPOT else None
        if instance.state is not _S.RUNNING:
            self.move(instance, _S.TERMINATING, reason, failure=failure)
            if failure:
                self.events.append(DiedYoung(instance, 0.0))
        elif not instance.recalled and self.now >= instance.not_before_s:
            cause = Cause.UNWANTED
            self.do(Transition(instance.id, _S.DRAINING, reason, cause=cause, failure=failure))

    def _drained_by_its_machine(self, instance: Instance, machine: Machine) -> None:
        """It had heard before us that it is to be given up."""
        failure = machine.unwanted if machine.market == SPOT else ""
        self.note(replace(instance, cause=Cause.UNWANTED, reason=machine.unwanted, failure=failure))
        lived_s = self.now - instance.joined_s
        if failure and instance.joined_s and lived_s < YOUNG_S:
            self.events.append(DiedYoung(instance, lived_s))

    def _absent(self, instance: Instance, listing: Listing, has_node: bool, is_proven: bool) -> None:
        """A machine that is not listed, or (proven) as one that has ended. The former is not believed while listings
        may lag behind, neither while its node is alive and well."""
        if not is_proven and listing.started_s < instance.allocated_s + self.facts.lag_s:
            return
        if has_node and instance.state in (_S.RUNNING, _S.DRAINING):
            return
        since_s = instance.absent_since_s or listing.started_s
        if not is_proven and listing.started_s - since_s < self.facts.lag_s:
            self.note(replace(instance, absent_since_s=since_s))
            return
        if instance.state is _S.TERMINATING:
            self.move(instance, _S.TERMINATED, "gone")
            return
        failure = "its machine vanished"
        if instance.state is _S.SETTING_UP:
            self.events.append(SetupKnown(instance.node_type, ok=False))
        self.move(instance, _S.TERMINATED, failure, failure=failure)

    def _unknown(self, machine: Machine) -> None:
        """A machine with our tags that nobody tracks: the head restarted, or a create call was given up too
        early. It gets a while to show a living node, and goes otherwise."""
        known = self.table.get(machine.instance_id) if machine.instance_id else None
        node = self.alive.get(machine.instance_id) if machine.instance_id else None
        grace_s = max(self.config.adopt_grace_s, self.facts.lag_s)
        base = Instance(
            id=machine.instance_id or f"unnamed-{machine.id}",
            node_type=machine.tags.get(MachineTags.NODE_TYPE, machine.node_type),
            state=_S.SETTING_UP,
            since_s=self.now,
            token=machine.tags.get(MachineTags.TOKEN, ""),
            offer=Offer(zone=machine.zone, market=machine.market),
            config_hash=machine.tags.get(MachineTags.CONFIG_HASH, ""),
            machine_id=machine.id,
            address=machine.public_address or machine.address,
            allocated_s=self.now,
            settled=True,
            adopted=True,
            expires_s=max(self.now + grace_s, self.facts.began_s + self.config.node_grace_s),
            reason="adopted: a machine of this cluster that was not tracked",
        )
        if known is not None and not known.is_terminal:
            if known.state is _S.RUNNING and self._is_elsewhere(known, node) and self._is_home(machine):
                # The node tells which of two machines with one name is the right one.
                self.note(replace(known, machine_id=machine.id, address=base.address))
                base = replace(base, machine_id=known.machine_id, address=known.address)
            # Two machines carry one name; the one that is tracked stays.
            base = replace(base, id=f"{base.id}~{base.machine_id}")
            node = None
        has_ended = known is not None and node is None
        if has_ended or not machine.instance_id or machine.state in _ENDING:
            base = replace(
                base,
                state=_S.TERMINATING,
                settled=False,
                expires_s=0.0,
                reason="a machine of this cluster that nobody needs",
            )
        current = self.table.get(base.id)
        if current is not None and not current.is_terminal:
            return
        self.table.add(base)
        self.events.append(Adopted(base))
        if base.state is _S.SETTING_UP and node is not None:
            self.move(base, _S.RUNNING, "its node is registered", node_id=node.node_id)

    @staticmethod
    def _is_elsewhere(instance: Instance, node: NodeInfo | None) -> bool:
        return node is not None and instance.address != node.host

    # ------------------------------------------------------------ deadlines

    def deadlines(self) -> None:
        for instance in list(self.table):
            until_s = deadline_of(instance, self.config.deadlines)
            if until_s is None or self.now < until_s:
                continue
            spent = f"{self.now - instance.since_s:.0f} s"
            if instance.state is _S.QUEUED:
                self.move(instance, _S.CANCELLED, f"not asked for within {spent}")
            elif instance.state is _S.REQUESTED:
                error = Transient(f"no machine within {spent}: {instance.reason}")
                self.move(instance, _S.FAILED, str(error), failure=str(error))
                self.events.append(OfferRefused(instance.node_type, instance.offer, error))
            elif instance.state is _S.ALLOCATED:
                self._useless(instance, f"the machine did not run within {spent}", "start the machine")
            elif instance.state is _S.SETTING_UP:
                self._too_slow(instance, spent)
            elif instance.state is _S.DRAINING:
                self.do(drain.overdue(instance, spent))
            elif (
                instance.state is _S.TERMINATING
                and instance.asked_s
                and self.now - instance.asked_s >= self.config.deadlines.terminating_s
            ):
                self.note(replace(instance, asked_s=0.0, reason="still listed: asked again"))

    def _too_slow(self, instance: Instance, spent: str) -> None:
        if instance.adopted:
            self.move(instance, _S.TERMINATING, f"adopted, and no node within {spent}")
        elif instance.settled:
            failure = f"the node was started and did not join within {spent}"
            self._useless(instance, failure, "join the cluster")
        else:
            self._useless(instance, f"setup took longer than {spent}", "setup")


def _rest_s(error: ProviderError | None) -> float:
    return error.retry_after_s if isinstance(error, Transient) else 10.0


def machines_of(facts: Facts) -> Mapping[str, Machine]:
    """Every machine the facts tell of, by id; the listing's word before the answer of the call that made
    it."""
    out: dict[str, Machine] = {}
    for outcome in facts.outcomes:
        if isinstance(outcome, Created):
            out.update({machine.id: machine for machine in outcome.result.machines})
    if facts.listing is not None:
        out.update({machine.id: machine for machine in facts.listing.machines})
    return out
