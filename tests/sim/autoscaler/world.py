"""A simulated cluster on simulated time around the real reconciler and the real rules of placement: machines
boot, setups fail, calls get lost, nodes die, the head restarts. Everything follows from the seed."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autoscaler.config import AutoscalerConfig
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
from autoscaler.instances import COUNTED
from autoscaler.memory import Memory
from autoscaler.plan import DEMAND
from autoscaler.provider import MachineTags, Offer, ProviderError, SetupError, Throttled, Transient
from autoscaler.reconciler import Reconciler, World
from autoscaler.simulation import Faults, SimulatedProvider
from runtime._core.placement import Fit, NodeView, Request, choose_node, place_bundles
from runtime._core.resources import Resources, add, subtract, to_units
from runtime._wire.messages.base import Demand, NodeInfo, ResourceRequest, SchedulingStrategy
from runtime._wire.messages.control import ClusterState, Holding, PendingGroup

CLUSTER = "sim"
LEAK_S = 180.0
"""No machine of ours may exist untracked for longer, whatever happens."""
SHRINK_S = 400.0
"""So long may it take to come down to a lowered maximum."""
REPORT_EVERY = 7
"""Ticks after which a report is made, which costs as much as a tick."""
HUNG_S = 60.0
"""A call that hangs is given up after so long, whatever it did."""


class Crash(Exception):
    """The autoscaler dies here."""


@dataclass(slots=True, eq=False)
class Node:
    """A joined node. `holds` is what runs on it."""

    info: NodeInfo
    machine_id: str
    available: Resources
    holds: list[Work] = field(default_factory=list)
    idle_since_s: float = 0.0

    def holding(self) -> Holding:
        held = [
            Demand(ResourceRequest(work.resources, SchedulingStrategy(labels=dict(work.labels))), 1)
            for work in self.holds
            if not work.is_bundle
        ]
        return Holding(self.info.node_id, held, "placement groups" if len(held) < len(self.holds) else "")

    def now_as(self) -> NodeInfo:
        info = self.info
        return NodeInfo(
            info.node_id,
            info.state,
            info.address,
            info.unix_path,
            info.host,
            info.host_name,
            info.is_head,
            info.session_dir,
            info.total,
            dict(self.available),
            info.labels,
            info.death_reason,
            self.idle_since_s if not self.holds else 0.0,
            info.instance_id,
            info.node_type,
        )


@dataclass(slots=True, eq=False)
class Work:
    """A task, or one bundle of a group; runs for `seconds` on its node."""

    resources: Resources
    seconds: float
    labels: Mapping[str, str] = field(default_factory=dict)
    node: Node | None = None
    is_bundle: bool = False


@dataclass(slots=True, eq=False)
class Group:
    """A placement group; its bundles stay for `seconds` from the moment all are placed."""

    id: bytes
    strategy: str
    bundles: list[Work]
    seconds: float


class SimWorld:
    """Everything outside the reconciler.

    Attributes:
        setup_failure: probability that a setup fails.
        hang: probability that the answer to a create or terminate call never comes.
        at_point: called at every point of a tick where a process could die, with its name; raises `Crash` to die
            there.
        saves: what was saved lately, oldest first.
        moved: the steps that instances took in the present tick.
    """

    def __init__(
        self, config: AutoscalerConfig, faults: Faults, seed: int, offers: Mapping[str, Sequence[Offer]]
    ) -> None:
        self.rng = random.Random(seed)
        self.now = 1_000_000.0
        self.config = config
        self.offers = offers
        self.provider = SimulatedProvider(
            CLUSTER,
            offers=offers,
            faults=faults,
            max_per_create=4,
            clock=lambda: self.now,
            sleep=lambda _: None,
            rng=random.Random(seed + 1),
        )
        self.setup_failure = 0.0
        self.hang = 0.0
        self.at_point: Callable[[str], None] = lambda _: None
        self.saves: deque[bytes] = deque(maxlen=8)
        self.moved: tuple[str, ...] = ()
        self.effects_done = 0
        self.violations: list[str] = []
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._ids = itertools.count(1)
        self._life = 0
        self.nodes: dict[bytes, Node] = {}
        self.waiting: list[Work] = []
        self.groups: list[Group] = []
        self.explicit: list[Resources] = []
        self.finished = 0
        self._version = 0
        self._listing: Listing | None = None
        self._outcomes: list[Outcome] = []
        self._tick_due = False
        self._ticks = 0
        self._untracked: dict[str, float] = {}
        self._lowered_s = 0.0
        self._restarted_s = 0.0
        self.head = self.provider.add_machine(
            "head",
            {
                MachineTags.CLUSTER_ID: CLUSTER,
                MachineTags.ROLE: MachineTags.HEAD,
                MachineTags.INSTANCE_ID: "head",
                MachineTags.NODE_TYPE: "head",
            },
        )
        self.foreign = self.provider.add_machine("small", {"owner": "somebody else"})
        self._join("head", self.head.id, "head", is_head=True)
        self.reconciler = self._new_reconciler(None)
        self.after(0.1, self._list)
        self.after(0.2, self._fallback)

    # ------------------------------------------------------------ time

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (self.now + delay_s, next(self._order), action))

    def run(self, seconds: float) -> None:
        """Lets `seconds` pass, checking the invariants after every event."""
        end = self.now + seconds
        while self._heap and self._heap[0][0] <= end:
            when, _, action = heapq.heappop(self._heap)
            self.now = max(self.now, when)
            action()
            self._check()
            assert not self.violations, self.violations
        self.now = end

    def soon(self) -> None:
        """Something the autoscaler should know changed."""
        self._version += 1
        if not self._tick_due:
            self._tick_due = True
            self.after(0.2, self._tick)

    # ------------------------------------------------------------ the autoscaler's side

    def _new_reconciler(self, memory: Memory | None) -> Reconciler:
        return Reconciler(
            self.config, self.provider.capabilities, memory=memory, new_id=lambda: f"n{next(self._ids)}"
        )

    def restart_head(self, with_memory: bool, back: int = 1) -> None:
        """The autoscaler starts anew; what it had asked for goes on, and the answers reach nobody. `back`: the
        so many-th last save is what it finds."""
        self._life += 1
        self._restarted_s = self.now
        self._outcomes.clear()
        self._listing = None
        found = self.saves[-min(back, len(self.saves))] if with_memory and self.saves else None
        memory = None if found is None else Memory.from_json(found)
        self.reconciler = self._new_reconciler(memory)
        self.soon()

    def configure(self, config: AutoscalerConfig) -> None:
        self.config = config
        self.reconciler.config = config
        self._lowered_s = self.now
        self.soon()

    def _fallback(self) -> None:
        self.soon()
        self.after(5.0, self._fallback)

    def _list(self) -> None:
        started_s, life = self.now, self._life

        def arrive() -> None:
            if life != self._life or self.now < self.reconciler.throttled_until_s:
                return
            try:
                self._listing = Listing(started_s, tuple(self.provider.list()))
            except ProviderError as error:
                if isinstance(error, Throttled):
                    self._outcomes.append(CallFailed(error))
                    self.soon()
                return
            self.soon()

        self.after(self.rng.uniform(0.0, 0.5), arrive)
        self.after(self.rng.uniform(1.0, 4.0), self._list)

    def _tick(self) -> None:
        self._tick_due = False
        self.schedule()
        life = self._life
        try:
            self._think()
        except Crash:
            assert self._life != life, "who dies must be started anew"

    def _think(self) -> None:
        state = self.state()
        outcomes, self._outcomes = tuple(self._outcomes), []
        world = World(state, self._listing, outcomes, self.offers)
        before = {i.id: i.state.name for i in self.reconciler.table}
        effects = self.reconciler.step(world, self.now)
        self.moved = tuple(
            sorted(
                {
                    f"{before.get(i.id, '')}>{i.state.name}"
                    for i in self.reconciler.table
                    if before.get(i.id) != i.state.name
                }
            )
        )
        self._check_launches(state)
        self.at_point("before the save")
        self.saves.append(self.reconciler.memory().to_json())
        self.at_point("after the save")
        self._ticks += 1
        if self._ticks % REPORT_EVERY == 0:
            self.reconciler.report(self.now).to_json()
        for effect in effects:
            self.effects_done += 1
            self._carry_out(effect)
            self.at_point(f"after {type(effect).__name__}")
        if effects:
            self.soon()

    def _answer(self, outcome: Outcome, delay_s: float) -> None:
        life = self._life

        def arrive() -> None:
            if life == self._life:
                self._outcomes.append(outcome)
                self.soon()

        self.after(delay_s, arrive)

    def _carry_out(self, effect: Effect) -> None:
        delay_s = self.rng.uniform(0.0, 1.0)
        if isinstance(effect, Create):
            self.after(delay_s, lambda: self._create(effect))
        elif isinstance(effect, Terminate):
            self.after(delay_s, lambda: self._terminate(effect))
        elif isinstance(effect, SetUp):
            life = self._life  # a setup ends with the process that runs it
            delay_s = self.rng.uniform(1.0, 10.0)
            self.after(delay_s, lambda: self._set_up(effect) if life == self._life else None)
        elif isinstance(effect, Drain):
            self.after(delay_s, lambda: self._drain(effect))
        else:
            self.after(delay_s, lambda: self._resume(effect))

    def _create(self, effect: Create) -> None:
        delay_s = self.rng.uniform(0.0, 2.0)
        try:
            result = self.provider.create(effect.request)
        except ProviderError as error:
            self._answer(Created(effect.request.token, error=error), delay_s)
            return
        if self.rng.random() < self.hang:
            self._answer(Created(effect.request.token, error=Transient("create did not end")), HUNG_S)
        else:
            self._answer(Created(effect.request.token, result), delay_s)

    def _terminate(self, effect: Terminate) -> None:
        for node in self.nodes.values():
            if node.machine_id in effect.machine_ids and node.info.state != "DEAD" and node.holds:
                self.violations.append(f"{node.info.instance_id} was ended while it worked")
        if self.head.id in effect.machine_ids or self.foreign.id in effect.machine_ids:
            self.violations.append("a machine that is not ours to end was terminated")
        try:
            answers = self.provider.terminate(effect.machine_ids)
        except ProviderError as error:
            self._answer(Terminated(dict.fromkeys(effect.machine_ids, error)), 0.1)
            return
        for machine_id in effect.machine_ids:
            self.after(self.rng.uniform(0.0, 2.0), lambda gone=machine_id: self.kill_node_on(gone))
        if self.rng.random() < self.hang:
            lost = Transient("terminate did not end")
            self._answer(Terminated(dict.fromkeys(effect.machine_ids, lost)), HUNG_S)
        else:
            self._answer(Terminated(answers), 0.1)

    def _set_up(self, effect: SetUp) -> None:
        if not self.provider.exists(effect.machine.id):
            self._answer(SetUpEnded(effect.instance_id, SetupError("wait for shell", "timed out")), 0.1)
        elif self.rng.random() < self.setup_failure:
            self._answer(SetUpEnded(effect.instance_id, SetupError("pip install", "exit status 1")), 0.1)
        else:
            if not any(
                node.machine_id == effect.machine.id and node.info.state != "DEAD"
                for node in self.nodes.values()
            ):
                self._join(effect.node_type.name, effect.machine.id, effect.instance_id)
            self._answer(SetUpEnded(effect.instance_id), self.rng.uniform(0.0, 1.0))

    def _drain(self, effect: Drain) -> None:
        node = self.nodes.get(effect.node_id)
        if node is None or node.info.state == "DEAD":
            self._answer(Drained(effect.instance_id), 0.1)
        elif effect.only_if_idle and node.holds:
            self._answer(Drained(effect.instance_id, "the node is busy"), 0.1)
        else:
            self._set_state(node, "DRAINING")
            self._answer(Drained(effect.instance_id), 0.1)

    def _resume(self, effect: Resume) -> None:
        node = self.nodes.get(effect.node_id)
        if node is None or node.info.state == "DEAD":
            self._answer(Resumed(effect.instance_id, "no such node"), 0.1)
            return
        if node.info.state == "DRAINING":
            self._set_state(node, "ALIVE")
        self._answer(Resumed(effect.instance_id), 0.1)

    # ------------------------------------------------------------ the cluster's side

    def _join(self, node_type: str, machine_id: str, instance_id: str, is_head: bool = False) -> None:
        kind = self.config.node_type(node_type)
        if kind is None:
            return
        total = to_units(kind.resources)
        node_id = f"{next(self._ids):028d}".encode()
        host = next((m.address for m in self.provider.machines() if m.id == machine_id), "")
        info = NodeInfo(
            node_id, "ALIVE", "", "", host, "", is_head, "", total, total, dict(kind.labels),
            instance_id=instance_id, node_type=node_type,
        )  # fmt: skip
        self.nodes[node_id] = Node(info, machine_id, dict(total), idle_since_s=self.now)
        self.soon()

    def _set_state(self, node: Node, state: str) -> None:
        info = node.now_as()
        node.info = NodeInfo(
            info.node_id, state, "", "", info.host, "", info.is_head, "", info.total, info.total, info.labels,
            "killed" if state == "DEAD" else "", instance_id=info.instance_id, node_type=info.node_type,
        )  # fmt: skip
        self.soon()

    def kill_node_on(self, machine_id: str) -> None:
        """The agent on the machine dies; what ran there waits again."""
        for node in self.nodes.values():
            if node.machine_id == machine_id and node.info.state != "DEAD":
                self._set_state(node, "DEAD")
                node.holds.clear()
                for group in self.groups:
                    for bundle in group.bundles:
                        if bundle.node is node:
                            bundle.node = None

    def workers(self) -> list[Node]:
        return [n for n in self.nodes.values() if n.info.state != "DEAD" and not n.info.is_head]

    def submit(
        self,
        resources: Mapping[str, float],
        count: int,
        seconds: float,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        for _ in range(count):
            self.waiting.append(Work(to_units(resources), seconds, labels or {}))
        self.soon()

    def submit_group(self, strategy: str, bundles: Sequence[Mapping[str, float]], seconds: float) -> None:
        group_id = f"{next(self._ids):018d}".encode()
        self.groups.append(
            Group(group_id, strategy, [Work(to_units(b), seconds, is_bundle=True) for b in bundles], seconds)
        )
        self.soon()

    def schedule(self) -> None:
        """The scheduler's own rules place what waits."""
        alive = [node for node in self.nodes.values() if node.info.state == "ALIVE"]
        views = {
            n.info.node_id: NodeView(n.info.node_id, n.info.total, n.available, n.info.labels) for n in alive
        }
        for group in self.groups:
            missing = [b for b in group.bundles if b.node is None]
            if not missing:
                continue
            placed = [b.node.info.node_id if b.node else b"" for b in group.bundles]
            found = place_bundles(
                [b.resources for b in group.bundles],
                group.strategy,
                list(views.values()),
                rng=self.rng,
                placed=placed,
            )
            if found is None:
                continue
            for bundle, node_id in zip(group.bundles, found, strict=True):
                if bundle.node is None:
                    self._hold(bundle, self.nodes[node_id])
            self.after(group.seconds, lambda group=group: self._end_group(group))
        still: list[Work] = []
        for work in self.waiting:
            choice = choose_node(
                Request(work.resources, labels=work.labels), list(views.values()), rng=self.rng
            )
            if choice.fit is not Fit.AVAILABLE:
                still.append(work)
                continue
            node = self.nodes[choice.node_id]
            self._hold(work, node)
            self.after(work.seconds, lambda work=work, node=node: self._end_task(work, node))
        self.waiting = still

    def _hold(self, work: Work, node: Node) -> None:
        work.node = node
        node.holds.append(work)
        subtract(node.available, work.resources)

    def _release(self, work: Work, node: Node) -> None:
        if any(held is work for held in node.holds):
            node.holds = [held for held in node.holds if held is not work]
            add(node.available, work.resources)
            node.idle_since_s = self.now

    def _end_task(self, work: Work, node: Node) -> None:
        if node.info.state == "DEAD":
            self.waiting.append(replace(work, node=None))
        else:
            self._release(work, node)
            self.finished += 1
        self.soon()

    def _end_group(self, group: Group) -> None:
        if group not in self.groups or any(bundle.node is None for bundle in group.bundles):
            return  # some bundle was lost meanwhile; it is placed again first
        self.groups.remove(group)
        for bundle in group.bundles:
            if bundle.node is not None:
                self._release(bundle, bundle.node)
        self.finished += 1
        self.soon()

    def state(self) -> ClusterState:
        shapes: dict[tuple[object, ...], Demand] = {}
        for work in self.waiting:
            key = (tuple(sorted(work.resources.items())), tuple(work.labels.items()))
            count = shapes[key].count + 1 if key in shapes else 1
            request = ResourceRequest(work.resources, SchedulingStrategy(labels=dict(work.labels)))
            shapes[key] = Demand(request, count)
        groups = [
            PendingGroup(
                group.id,
                group.strategy,
                [bundle.resources for bundle in group.bundles],
                [bundle.node.info.node_id if bundle.node else b"" for bundle in group.bundles],
            )
            for group in self.groups
            if any(bundle.node is None for bundle in group.bundles)
        ]
        return ClusterState(
            self._version,
            self.now,
            [node.now_as() for node in self.nodes.values()],
            list(shapes.values()),
            groups,
            self.explicit,
            holdings=[node.holding() for node in self.nodes.values() if node.holds],
        )

    # ------------------------------------------------------------ invariants

    def _check(self) -> None:
        if not self.provider.exists(self.head.id) or not self.provider.exists(self.foreign.id):
            self.violations.append("the head or a machine of others is gone")
        table = self.reconciler.table
        tracked = {i.machine_id for i in table if not i.is_terminal and i.machine_id}
        tracked_names = {i.id for i in table if not i.is_terminal}
        for machine in self.provider.machines():
            if machine.id in (self.head.id, self.foreign.id):
                continue
            if machine.id in tracked or machine.instance_id in tracked_names:
                self._untracked.pop(machine.id, None)
            elif self.now - self._untracked.setdefault(machine.id, self.now) > LEAK_S:
                self.violations.append(f"machine {machine.id} is leaked: nobody tracks it")
        counts: dict[str, int] = {}
        for instance in table:
            if instance.state in COUNTED:
                counts[instance.node_type] = counts.get(instance.node_type, 0) + 1
        if self.now - self._lowered_s > 1.0:
            for name, count in counts.items():
                kind = self.config.node_type(name)
                if kind is not None and count > kind.max_workers and not self._shrinking():
                    self.violations.append(f"{count} instances of {name}, {kind.max_workers} allowed")

    def _shrinking(self) -> bool:
        """After the maximum was lowered, or unknown machines were found, there may be more for a while."""
        return self.now - max(self._lowered_s, self._restarted_s) < SHRINK_S

    def _check_launches(self, state: ClusterState) -> None:
        """Nothing is launched for work that the scheduler would refuse on such a node."""
        for launch in self.reconciler.plan.launches:
            kind = self.config.node_type(launch.node_type)
            if kind is None or launch.reason != DEMAND:
                continue
            total = to_units(kind.resources)
            lone = NodeView(b"new", total, dict(total), kind.labels)
            fits = [
                choose_node(
                    Request(d.request.resources, labels=d.request.strategy.labels),
                    [lone],
                    rng=random.Random(0),
                ).fit
                is Fit.AVAILABLE
                for d in state.demands
            ]
            if not any(fits):
                self.violations.append(f"launched {launch.node_type}, which holds nothing of what waits")
