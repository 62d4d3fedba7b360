"""Time and everything outside the decider: a heap of events, a simulated platform, the cluster, and when
decisions are due. Nothing sleeps; the same trace and seed give the same run.

Decisions come as in the autoscaler's loop: `quiet_s` after a change, at most `patience_s` later, every
`tick_s` while something waits or is on its way, and when the decider's own clock asks for one. Listings are
taken when a decision is due, as old as the loop's would be.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from autoscaler.config import AutoscalerConfig
from autoscaler.demand import Shape
from autoscaler.effects import (
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
from autoscaler.provider import Machine, MachineState, MachineTags, Offer, ProviderError, SetupError
from autoscaler.reconciler import World as Picture
from autoscaler.rehearsal.cluster import ACTOR, TASK, Batch, Cluster, Group, Node, Run
from autoscaler.rehearsal.decider import Decider, ReconcilerDecider
from autoscaler.rehearsal.meter import Meter
from autoscaler.rehearsal.trace import (
    MOMENTARY,
    Actors,
    Fault,
    Groups,
    Requests,
    Tasks,
    Trace,
    TraceError,
    describe,
)
from autoscaler.rehearsal.troubles import Troubles
from autoscaler.simulation import Faults, SimulatedProvider
from runtime._core.nodes import HEARTBEAT_TIMEOUT_S, RECONNECT_GRACE_S
from runtime._core.resources import to_units
from runtime._wire.messages.base import NodeInfo
from runtime._wire.messages.control import ClusterState, Requester

START_S = 1_000_000.0
"""The unix time at which rehearsals begin; 0 means "never" to the autoscaler."""
STALL_S = 7200.0
"""No work, no node and no news for so long: nothing will come of it any more."""
LIMIT_S = 14 * 86400.0
"""No rehearsal goes on for longer after the last entry of its trace."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How long the platform takes.

    Attributes:
        boot_s: from a machine's creation until it runs; `boot_of` says otherwise for some node types.
        setup_s: from then until its node joins.
        stop_s: from the end's request until the machine is gone, and is paid for no more.
        call_s: a call's answer takes so long.
    """

    boot_s: float = 40.0
    setup_s: float = 40.0
    stop_s: float = 20.0
    call_s: float = 1.0
    boot_of: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Tally:
    """What was done to machines, counted."""

    launches: int = 0
    removals: int = 0
    lost: int = 0
    refused: int = 0
    setups_failed: int = 0
    nodes_died: int = 0
    decisions: int = 0


FAULT = "fault"
STEP = "step"

Watcher = Callable[["FakeWorld"], None]
"""Called after every moment at which something happened."""


class FakeWorld:
    """One rehearsal under way.

    Args:
        config: as the autoscaler gets it.
        trace: what happens.
        decider: who sizes the cluster; None: the autoscaler.
        on_event: called with time, `FAULT` or `STEP`, and a line about everything that happened.

    Raises:
        TraceError: the trace names node types that the configuration does not have.
    """

    def __init__(
        self,
        config: AutoscalerConfig,
        trace: Trace,
        decider: Decider | None = None,
        *,
        timing: Timing | None = None,
        on_event: Callable[[float, str, str], None] = lambda _at_s, _kind, _text: None,
    ) -> None:
        _check_names(config, trace)
        self.config = config
        self.trace = trace
        self.timing = timing or Timing()
        self.now = START_S
        self.offers = {kind.name: _offers_of(trace, kind.name) for kind in config.node_types}
        self.provider = SimulatedProvider(
            config.cluster_id,
            offers=self.offers,
            faults=Faults(stop_s=self.timing.stop_s),
            clock=lambda: self.now,
            sleep=lambda _: None,
            rng=random.Random(trace.seed + 1),
        )
        self.decider: Decider = decider or ReconcilerDecider(config)
        self.cluster = Cluster(random.Random(trace.seed + 2))
        self.meter = Meter(self.offers)
        self.tally = Tally()
        self.troubles = Troubles(self.provider, self.offers, random.Random(trace.seed + 3))
        self.machines: tuple[Machine, ...] = ()
        self.work_ended_s = START_S
        self._rng = random.Random(trace.seed)
        self._on_event = on_event
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count(1)
        self._pending = 0
        self._outside = 0
        self._progress_s = START_S
        self._requested: dict[str, Requests] = {}
        self._request_numbers: dict[str, int] = {}
        self._outcomes: list[Outcome] = []
        self._listing: Listing | None = None
        self._list_asked = False
        self._under_way = 0
        self._tick_s = math.inf
        self._woken: tuple[float, float] | None = None
        self._version = 0
        self._start_head()
        self._plan_trace()
        self.wake()

    # ------------------------------------------------------------ time

    @property
    def elapsed_s(self) -> float:
        """Since the rehearsal began."""
        return self.now - START_S

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Something will happen."""
        self._pending += 1
        self._push(self.now + delay_s, partial(self._come, action))

    def _come(self, action: Callable[[], None]) -> None:
        self._pending -= 1
        action()

    def _push(self, when_s: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (when_s, next(self._numbers), action))

    def run(self, watch: Watcher = lambda _: None) -> str:
        """Lets time pass until the trace's `until_s`; without one until the cluster has come to rest.

        Returns:
            Why it ended: "until", "rest" (nothing can change any more), "stall" (only vain attempts for two
            hours) or "limit".
        """
        until_s = math.inf if self.trace.until_s is None else START_S + self.trace.until_s
        limit_s = max(self._heap)[0] + LIMIT_S
        watch(self)
        while self._heap:
            if self._heap[0][0] > until_s:
                break
            self.now = self._heap[0][0]
            if self.now > limit_s:
                return "limit"
            while self._heap and self._heap[0][0] <= self.now:
                heapq.heappop(self._heap)[2]()
            for run in self.cluster.schedule(self.now):
                self._began(run)
            watch(self)
            if until_s == math.inf:
                why = self._why_over()
                if why:
                    return why
        if until_s < math.inf:
            self.now = until_s
            watch(self)
            return "until"
        return "rest"

    def _why_over(self) -> str:
        if not self._pending and self._woken is None and self.decider.next_s(self.now) is None:
            return "rest"
        stalled = self.now - self._progress_s > STALL_S + self._longest_idle_s()
        if stalled and not self._outside and not self.cluster.has_ending_work:
            return "stall"
        return ""

    def _longest_idle_s(self) -> float:
        return max(self.config.idle_timeout_of(kind.name) for kind in self.config.node_types)

    def _progress(self) -> None:
        self._progress_s = self.now

    # ------------------------------------------------------------ the trace

    def _start_head(self) -> None:
        tags = {
            MachineTags.CLUSTER_ID: self.config.cluster_id,
            MachineTags.ROLE: MachineTags.HEAD,
            MachineTags.INSTANCE_ID: "head",
            MachineTags.NODE_TYPE: self.config.head_type,
        }
        machine = self.provider.add_machine(self.config.head_type, tags)
        self._join(self.config.head_type, machine.id, "head", is_head=True)

    def _plan_trace(self) -> None:
        """Every entry of the trace becomes events."""
        for tasks in self.trace.tasks:
            self._plan(tasks.moments(), partial(self._submit, TASK, tasks))
        for actors in self.trace.actors:
            self._plan(actors.moments(), partial(self._submit, ACTOR, actors))
        for groups in self.trace.groups:
            self._plan(groups.moments(), partial(self._submit_groups, groups))
        for requests in self.trace.requests:
            self._plan(requests.moments(), partial(self._request, requests))
        for fault in self.trace.faults:
            self._plan(fault.moments(), partial(self._strike, fault))
            if fault.until_s is not None:
                lasts_s = fault.until_s - fault.at_s
                self._plan((at_s + lasts_s for at_s in fault.moments()), partial(self._relent, fault))

    def _plan(self, moments: Iterable[float], action: Callable[[], None]) -> None:
        for at_s in moments:
            self._outside += 1
            self.after(at_s, partial(self._happen, action))

    def _happen(self, action: Callable[[], None]) -> None:
        self._outside -= 1
        self._progress()
        action()
        self.wake()

    def _submit(self, kind: str, entry: Tasks | Actors) -> None:
        shape = Shape.of(to_units(entry.resources), entry.selector, entry.fallbacks)
        lasts_s = entry.duration_s
        bounds = (lasts_s[0], lasts_s[1]) if isinstance(lasts_s, list) else lasts_s
        self.cluster.submit(Batch(kind, shape, entry.count, bounds, self.now))

    def _submit_groups(self, entry: Groups) -> None:
        selectors = entry.selectors or [{} for _ in entry.bundles]
        bundles = tuple(
            Shape.of(to_units(amounts), selector)
            for amounts, selector in zip(entry.bundles, selectors, strict=True)
        )
        for _ in range(entry.count):
            lasts_s = entry.duration_s
            fixed_s = self._rng.uniform(*lasts_s) if isinstance(lasts_s, list) else lasts_s
            group_id = f"{next(self._numbers):018d}".encode()
            self.cluster.submit_group(Group(group_id, entry.strategy, bundles, fixed_s, self.now))

    def _request(self, entry: Requests) -> None:
        number = self._request_numbers.get(entry.owner, 0) + 1
        self._request_numbers[entry.owner] = number
        self._requested[entry.owner] = entry
        if entry.ttl_s:
            self.after(entry.ttl_s, partial(self._expire, entry.owner, number))

    def _expire(self, owner: str, number: int) -> None:
        if self._request_numbers[owner] == number:  # it was not renewed
            del self._requested[owner]
            self._progress()
            self.wake()

    def _strike(self, fault: Fault) -> None:
        self._tell(FAULT, describe(fault))
        if fault.kind not in MOMENTARY:
            self.troubles.begin(fault)
            return
        there = [m for m in self.provider.machines() if m.state is not MachineState.STOPPING]
        if fault.kind == "node_death":
            there = [machine for machine in there if self.cluster.on_machine(machine.id) is not None]
        for machine in self.troubles.victims(fault, there):
            node = self.cluster.on_machine(machine.id)
            if fault.kind == "spot_loss":
                self.provider.vanish(machine.id)
                self.tally.lost += 1
            if node is not None:
                self._silence(node, fault)
        self._watch_machines()

    def _silence(self, node: Node, fault: Fault) -> None:
        self.cluster.lose(node)
        self.tally.nodes_died += 1
        vanished = fault.kind == "spot_loss"
        reason = "no report within the heartbeat timeout" if vanished else "its agent did not come back"
        noticed_s = HEARTBEAT_TIMEOUT_S if vanished else RECONNECT_GRACE_S
        self.after(noticed_s, partial(self._bury, node, reason))

    def _relent(self, fault: Fault) -> None:
        self._tell(FAULT, f"{describe(fault)} is over")
        self.troubles.end(fault)

    # ------------------------------------------------------------ the cluster

    def _join(self, node_type: str, machine_id: str, instance_id: str, is_head: bool = False) -> None:
        kind = self.config.node_type(node_type)
        if kind is None:
            return
        total = to_units(kind.resources)
        node_id = f"{next(self._numbers):028d}".encode()
        info = NodeInfo(
            node_id, "ALIVE", "", "", "", "", is_head, "", total, total, dict(kind.labels),
            instance_id=instance_id, node_type=node_type,
        )  # fmt: skip
        self.cluster.join(info, machine_id, self.now)
        self._progress()
        self.wake()

    def _bury(self, node: Node, reason: str) -> None:
        if node.died_s is None:
            self.cluster.bury(node, self.now, reason)
            self._progress()
            self.wake()

    def _began(self, run: Run) -> None:
        self._progress()
        self.wake()
        if run.lasts_s is not None:
            self.after(run.lasts_s, partial(self._end, run))

    def _end(self, run: Run) -> None:
        if not self.cluster.end(run, self.now):
            return
        self.work_ended_s = self.now
        self._progress()
        nodes = [run.node] if run.group is None else run.group.placed
        if self.cluster.has_waiting or any(node is not None and not node.is_busy for node in nodes):
            self.wake()

    # ------------------------------------------------------------ decisions

    def wake(self) -> None:
        """Something that the decider should know has changed."""
        first_s = self.now if self._woken is None else self._woken[0]
        self._woken = first_s, self.now
        self._version += 1
        self._tick_by(self._due_s())

    def _due_s(self) -> float:
        assert self._woken is not None
        first_s, last_s = self._woken
        return min(first_s + self.config.patience_s, last_s + self.config.quiet_s)

    def _tick_by(self, when_s: float) -> None:
        if when_s < self._tick_s:
            self._tick_s = when_s
            self._push(when_s, self._maybe_tick)

    def _maybe_tick(self) -> None:
        if self.now < self._tick_s:
            return  # it was put off or made already
        self._tick_s = math.inf
        if self._woken is not None and self.now < self._due_s():
            self._tick_by(self._due_s())
            return
        self._woken = None
        self._tick()

    def _tick(self) -> None:
        self.tally.decisions += 1
        self._refresh_listing()
        outcomes, self._outcomes = tuple(self._outcomes), []
        picture = Picture(self._state(), self._listing, outcomes, self.offers)
        effects = self.decider.decide(picture, self.provider.capabilities, self.now)
        for line in self.decider.happened():
            self._tell(STEP, line)
        for effect in effects:
            self._under_way += 1
            self._carry_out(effect)
        next_s = self.decider.next_s(self.now)
        if next_s is not None:
            self._tick_by(max(self.now + 0.01, next_s))
        if not self._is_quiet():
            self._tick_by(self.now + self.config.tick_s)

    def _is_quiet(self) -> bool:
        """Whether the facts are such that only time can ask for a decision."""
        moving = any(n.info.state == "DRAINING" or n.is_silent for n in self.cluster.living())
        on_their_way = len(self.machines) != sum(1 for _ in self.cluster.living())
        return not (moving or on_their_way or self._under_way or self._requested or self.cluster.has_waiting)

    def _refresh_listing(self) -> None:
        pause_s = min(1.0, self.config.tick_s)
        if (
            self._listing is not None
            and not self._list_asked
            and self.now - self._listing.started_s < pause_s
        ):
            return
        self._list_asked = False
        try:
            self.troubles.throttle()
            self._listing = Listing(self.now, tuple(self.provider.list()))
        except ProviderError as error:
            self._tell(FAULT, f"listing failed: {error}")

    def _state(self) -> ClusterState:
        requests = list(self._requested.values())
        return ClusterState(
            self._version,
            self.now,
            self.cluster.reports(self.now),
            self.cluster.demands(),
            self.cluster.pending_groups(),
            [to_units(amounts) for entry in requests for amounts in entry.bundles],
            requested_selectors=[
                one for entry in requests for one in entry.selectors or [{}] * len(entry.bundles)
            ],
            requested_counts=[entry.count for entry in requests for _ in entry.bundles],
            requesters=[Requester(entry.owner, len(entry.bundles)) for entry in requests],
            holdings=self.cluster.holdings(),
        )

    # ------------------------------------------------------------ effects

    def _carry_out(self, effect: Effect) -> None:
        call_s = self.timing.call_s
        if isinstance(effect, Create):
            self._answer(call_s, partial(self._create, effect))
        elif isinstance(effect, Terminate):
            self._answer(call_s, partial(self._terminate, effect))
        elif isinstance(effect, SetUp):
            self._answer(self.timing.setup_s, partial(self._set_up, effect))
        elif isinstance(effect, Drain):
            self._answer(0.0, partial(self._drain, effect))
        else:
            self._answer(0.0, partial(self._resume, effect))

    def _answer(self, delay_s: float, work: Callable[[], Outcome]) -> None:
        """Does the work after a while; what came of it is a fact of the next decision."""

        def arrive() -> None:
            self._under_way -= 1
            self._outcomes.append(work())
            self.wake()

        self.after(delay_s, arrive)

    def _create(self, effect: Create) -> Created:
        request = effect.request
        boot_s = self.timing.boot_of.get(request.node_type.name, self.timing.boot_s)
        try:
            result = self.troubles.create(request, boot_s)
        except ProviderError as error:
            return Created(request.token, error=error)
        finally:
            for _ in self._watch_machines():
                # The next listing shows that it runs, as late as listings are.
                delay_s = self.provider.faults.boot_s + self._rng.uniform(0.0, 1.0)
                self.after(delay_s, self.wake)
        self.tally.refused += len(result.errors)
        return Created(request.token, result)

    def _terminate(self, effect: Terminate) -> Terminated:
        ids = effect.machine_ids
        try:
            self.troubles.throttle()
            answers = self.provider.terminate(ids)
        except ProviderError as error:
            return Terminated(dict.fromkeys(ids, error))
        for machine_id in ids:
            node = self.cluster.on_machine(machine_id)
            if node is not None:
                self.cluster.bury(node, self.now, "its machine was ended")
        self.tally.removals += sum(1 for error in answers.values() if error is None)
        self._watch_machines()
        self._list_asked = True
        self.after(self.timing.stop_s, self._gone)
        return Terminated(answers)

    def _gone(self) -> None:
        self._watch_machines()
        self._list_asked = True
        self.wake()

    def _set_up(self, effect: SetUp) -> SetUpEnded:
        name, machine = effect.instance_id, effect.machine
        if not self.provider.exists(machine.id):
            return SetUpEnded(name, SetupError("reach the machine", "it does not answer"))
        if self.troubles.setup_fails(machine):
            self.tally.setups_failed += 1
            return SetUpEnded(name, SetupError("setup commands", "exit status 1, as the trace says"))
        if self.cluster.on_machine(machine.id) is None:
            self._join(effect.node_type.name, machine.id, name)
        return SetUpEnded(name)

    def _drain(self, effect: Drain) -> Drained:
        node = self.cluster.nodes.get(effect.node_id)
        if node is None or node.died_s is not None:
            return Drained(effect.instance_id)
        if effect.only_if_idle and node.is_busy:
            return Drained(effect.instance_id, "the node is busy")
        self.cluster.drain(node)
        return Drained(effect.instance_id)

    def _resume(self, effect: Resume) -> Resumed:
        node = self.cluster.nodes.get(effect.node_id)
        if node is None or node.is_silent:
            return Resumed(effect.instance_id, "the node is gone")
        if not node.view.schedulable:
            self.cluster.resume(node)
        return Resumed(effect.instance_id)

    def _watch_machines(self) -> list[Machine]:
        """Takes stock of what exists, and is paid for; returns what is new."""
        self.machines = self.provider.machines()
        new, _ = self.meter.watch((m for m in self.machines if not m.is_head), self.now)
        self.tally.launches += len(new)
        return new

    def _tell(self, kind: str, text: str) -> None:
        self._on_event(self.elapsed_s, kind, text)


def _offers_of(trace: Trace, node_type: str) -> tuple[Offer, ...]:
    known = trace.offers.get(node_type)
    return tuple(Offer(one.zone, one.market, one.price) for one in known) if known else (Offer(),)


def _check_names(config: AutoscalerConfig, trace: Trace) -> None:
    names = {kind.name for kind in config.node_types}
    used = [(f"offers.{name}", name) for name in trace.offers]
    used += [(f"faults[{i}].node_type", f.node_type) for i, f in enumerate(trace.faults) if f.node_type]
    for path, name in used:
        if name not in names:
            raise TraceError(f"{path}: there is no node type '{name}'; there are {', '.join(sorted(names))}")
