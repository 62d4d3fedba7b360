"""The cluster of a rehearsal: nodes, work that waits, work that runs. The scheduler's own module places.

No clock and no events in here: methods take `now`, and `schedule` returns what began, for the caller to end
in time. Equal work is counted: what arrives together is one batch, and a shape that found no room is only
tried again on nodes that got some since.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from autoscaler.demand import Shape
from runtime._core.placement import Fit, NodeView, Request, choose_node, place_bundles
from runtime._core.resources import Resources, add, subtract
from runtime._wire.messages.base import Demand, NodeInfo, ResourceRequest, SchedulingStrategy
from runtime._wire.messages.control import Holding, PendingGroup

TASK = "task"
ACTOR = "actor"
GROUP = "group"
KEEP_DEAD_S = 600.0
"""How long the picture shows a node that died."""


@dataclass(slots=True, eq=False)
class Batch:
    """Equal tasks or actors that wait since the same moment.

    Attributes:
        lasts_s: how long each runs; bounds to draw it from; None: for ever.
        rng: draws it; the batch's own, so that the work is the same whoever sizes the cluster.
    """

    kind: str
    shape: Shape
    count: int
    lasts_s: float | tuple[float, float] | None
    waits_since_s: float
    rng: random.Random = field(default_factory=lambda: random.Random(0))

    def draw(self) -> float | None:
        """How long the next of them runs."""
        return self.rng.uniform(*self.lasts_s) if isinstance(self.lasts_s, tuple) else self.lasts_s


@dataclass(slots=True, eq=False)
class Group:
    """A placement group. `placed`: the node of each bundle, None while it has none."""

    id: bytes
    strategy: str
    bundles: tuple[Shape, ...]
    lasts_s: float | None
    waits_since_s: float
    placed: list[Node | None] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        return all(node is not None for node in self.placed)

    def __str__(self) -> str:
        return f"{self.strategy} of {len(self.bundles)}"


@dataclass(slots=True, eq=False)
class Run:
    """`count` of a batch that run on one node, or one group (`batch` is None) that holds its bundles."""

    batch: Batch | None
    group: Group | None
    node: Node | None
    count: int
    began_s: float
    lasts_s: float | None
    is_over: bool = False


@dataclass(slots=True, eq=False)
class Node:
    """A joined node. `view.available` is the truth about its room."""

    info: NodeInfo
    view: NodeView
    machine_id: str
    runs: dict[Run, None] = field(default_factory=dict)
    bundles: int = 0
    idle_since_s: float = 0.0
    died_s: float | None = None
    is_silent: bool = False  # it is dead, and the control store does not know yet

    @property
    def id(self) -> bytes:
        return self.view.node_id

    @property
    def node_type(self) -> str:
        return self.info.node_type

    @property
    def is_busy(self) -> bool:
        return bool(self.runs) or self.bundles > 0

    def holding(self) -> Holding:
        """What runs on the node. Tasks end, and the others cannot go elsewhere."""
        counts: dict[Shape, int] = {}
        bound_by = "a placement group" if self.bundles else ""
        for run in self.runs:
            if run.batch is not None and run.batch.kind == TASK:
                counts[run.batch.shape] = counts.get(run.batch.shape, 0) + run.count
            else:
                bound_by = "an actor"
        return Holding(self.id, [_demand(shape, count) for shape, count in counts.items()], bound_by)

    def report(self) -> NodeInfo:
        """The node as the control store knows it now."""
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
            dict(self.view.available),
            info.labels,
            info.death_reason,
            0.0 if self.is_busy else self.idle_since_s,
            info.instance_id,
            info.node_type,
        )


@dataclass(slots=True)
class Waits:
    """How long work of one kind waited from being asked for until it began; lost work waits anew."""

    samples: list[tuple[float, int]] = field(default_factory=list)

    def add(self, waited_s: float, count: int) -> None:
        self.samples.append((waited_s, count))


class Cluster:
    """Nodes and work. Counts what it did: `started`, `finished` and `interrupted` per kind, `waits` per kind,
    and `held`: per node type and resource, how many units times seconds its nodes gave to work. `version` grows with
    every change of a node's state."""

    def __init__(self, rng: random.Random) -> None:
        self.nodes: dict[bytes, Node] = {}
        self.groups: dict[bytes, Group] = {}
        self.started: dict[str, int] = {}
        self.finished: dict[str, int] = {}
        self.interrupted: dict[str, int] = {}
        self.waits: dict[str, Waits] = {TASK: Waits(), ACTOR: Waits(), GROUP: Waits()}
        self.held: dict[tuple[str, str], float] = {}
        self.version = 0
        self._head = b""  # where drivers run, and ask from
        self._rng = rng
        self._queue: dict[Shape, deque[Batch]] = {}
        self._counts: dict[Shape, int] = {}
        self._group_runs: dict[bytes, Run] = {}
        self._waiting_groups: dict[bytes, Group] = {}
        self._fresh: set[Shape] = set()
        self._freed: dict[bytes, Node] = {}
        self._try_groups = False

    # ------------------------------------------------------------ nodes

    def join(self, info: NodeInfo, machine_id: str, now: float) -> Node:
        """A node registers, idle."""
        view = NodeView(info.node_id, dict(info.total), dict(info.total), info.labels)
        node = Node(info, view, machine_id, idle_since_s=now)
        self.nodes[node.id] = node
        self.version += 1
        if info.is_head:
            self._head = node.id
        self._has_room(node)
        return node

    def drain(self, node: Node) -> None:
        """The node takes no new work."""
        self._set_state(node, "DRAINING")
        node.view.schedulable = False
        self._freed.pop(node.id, None)

    def resume(self, node: Node) -> None:
        """A node that drained takes work again."""
        self._set_state(node, "ALIVE")
        node.view.schedulable = True
        self._has_room(node)

    def lose(self, node: Node) -> None:
        """What happens on the node stops; nobody knows yet (see `bury`). It takes no part in placement: a
        lease asked of it would not be answered."""
        node.is_silent = True
        node.view.schedulable = False
        self._freed.pop(node.id, None)

    def bury(self, node: Node, now: float, reason: str) -> None:
        """The node is known to be dead; what ran there waits again."""
        if node.died_s is not None:
            return
        self.lose(node)
        self._set_state(node, "DEAD", reason)
        node.died_s = now
        for run in list(node.runs):
            self._interrupt(run, now)
        for group in self.groups.values():
            if node in group.placed:
                self._break(group, node, now)

    def _set_state(self, node: Node, state: str, reason: str = "") -> None:
        info = node.info
        self.version += 1
        node.info = NodeInfo(
            info.node_id, state, info.address, info.unix_path, info.host, info.host_name, info.is_head,
            info.session_dir, info.total, info.total, info.labels, reason,
            instance_id=info.instance_id, node_type=info.node_type,
        )  # fmt: skip

    def living(self) -> Iterator[Node]:
        """The nodes that are not known to be dead."""
        return (node for node in self.nodes.values() if node.died_s is None)

    def on_machine(self, machine_id: str) -> Node | None:
        """The living node of a machine."""
        return next((node for node in self.living() if node.machine_id == machine_id), None)

    # ------------------------------------------------------------ work comes

    def submit(self, batch: Batch) -> None:
        """Equal tasks or actors arrive."""
        self._queue.setdefault(batch.shape, deque()).append(batch)
        self._counts[batch.shape] = self._counts.get(batch.shape, 0) + batch.count
        self._fresh.add(batch.shape)

    def submit_group(self, group: Group) -> None:
        """A placement group arrives."""
        group.placed = [None] * len(group.bundles)
        self.groups[group.id] = group
        self._waiting_groups[group.id] = group
        self._try_groups = True

    # ------------------------------------------------------------ work begins

    def schedule(self, now: float) -> list[Run]:
        """Begins what finds room: groups first, then shapes in the order of who waits longest."""
        runs: list[Run] = []
        if self._waiting_groups and (self._try_groups or self._freed):
            runs += self._schedule_groups(now)
        self._try_groups = False
        if self._fresh or self._freed:
            views = [node.view for node in self.nodes.values() if node.view.schedulable]
            freed = [node.view for node in self._freed.values()]
            for shape in sorted(self._queue, key=lambda shape: self._queue[shape][0].waits_since_s):
                nodes = views if shape in self._fresh else freed
                if nodes:
                    runs += self._schedule_shape(shape, nodes, now)
        self._fresh.clear()
        self._freed.clear()
        return runs

    def _schedule_shape(self, shape: Shape, views: Sequence[NodeView], now: float) -> list[Run]:
        queue = self._queue[shape]
        request = _request_of(shape)
        amounts = request.resources
        placed: dict[tuple[Node, Batch], int] = {}
        while queue:
            choice = choose_node(request, views, local=self._head, rng=self._rng)
            if choice.fit is not Fit.AVAILABLE:
                break
            batch, node = queue[0], self.nodes[choice.node_id]
            subtract(node.view.available, amounts)
            placed[node, batch] = placed.get((node, batch), 0) + 1
            batch.count -= 1
            if not batch.count:
                queue.popleft()
        self._counts[shape] -= sum(placed.values())
        if not queue:
            del self._queue[shape], self._counts[shape]
        return [
            run for (node, batch), count in placed.items() for run in self._begin(node, batch, count, now)
        ]

    def _begin(self, node: Node, batch: Batch, count: int, now: float) -> list[Run]:
        self.waits[batch.kind].add(now - batch.waits_since_s, count)
        self.started[batch.kind] = self.started.get(batch.kind, 0) + count
        alike = 1 if isinstance(batch.lasts_s, tuple) else count
        runs = [Run(batch, None, node, alike, now, batch.draw()) for _ in range(count // alike)]
        node.runs.update(dict.fromkeys(runs))
        return runs

    def _schedule_groups(self, now: float) -> list[Run]:
        views = [node.view for node in self.nodes.values() if node.view.schedulable]
        runs: list[Run] = []
        hopeless: set[tuple[str, tuple[Shape, ...]]] = set()
        for group in list(self._waiting_groups.values()):
            is_new = not any(group.placed)
            if is_new and (group.strategy, group.bundles) in hopeless:
                continue
            found = place_bundles(
                [dict(bundle.resources) for bundle in group.bundles],
                group.strategy,
                views,
                rng=self._rng,
                placed=[node.id if node else b"" for node in group.placed],
                selectors=[dict(bundle.selector) for bundle in group.bundles],
            )
            if found is None:
                if is_new:
                    hopeless.add((group.strategy, group.bundles))
                continue
            runs.append(self._reserve(group, found, now))
        return runs

    def _reserve(self, group: Group, found: Sequence[bytes], now: float) -> Run:
        for index, node_id in enumerate(found):
            if group.placed[index] is None:
                node = self.nodes[node_id]
                group.placed[index] = node
                node.bundles += 1
                subtract(node.view.available, dict(group.bundles[index].resources))
        del self._waiting_groups[group.id]
        self.waits[GROUP].add(now - group.waits_since_s, 1)
        self.started[GROUP] = self.started.get(GROUP, 0) + 1
        run = Run(None, group, None, 1, now, group.lasts_s)
        self._group_runs[group.id] = run
        return run

    # ------------------------------------------------------------ work ends

    def end(self, run: Run, now: float) -> bool:
        """The run is done, unless its node was lost meanwhile; says whether."""
        node = run.node
        lost = (node is not None and node.is_silent) or (
            run.group is not None and any(n is not None and n.is_silent for n in run.group.placed)
        )
        if run.is_over or lost:
            return False
        run.is_over = True
        if run.batch is not None and node is not None:
            self._charge(node, dict(run.batch.shape.resources), run.count, now - run.began_s)
            del node.runs[run]
            self._give_back(node, run.batch.shape, run.count, now)
            self.finished[run.batch.kind] = self.finished.get(run.batch.kind, 0) + run.count
        elif run.group is not None:
            group = run.group
            for index, holder in enumerate(group.placed):
                assert holder is not None
                self._release_bundle(group, index, holder, run.began_s, now)
            del self.groups[group.id]
            del self._group_runs[group.id]
            self.finished[GROUP] = self.finished.get(GROUP, 0) + 1
        return True

    def settle(self, now: float) -> None:
        """Counts what still runs as held until now, once, at the end of a rehearsal."""
        for node in self.living():
            for run in node.runs:
                if run.batch is not None:
                    self._charge(node, dict(run.batch.shape.resources), run.count, now - run.began_s)
        for run in self._group_runs.values():
            assert run.group is not None
            for bundle, holder in zip(run.group.bundles, run.group.placed, strict=True):
                if holder is not None:
                    self._charge(holder, dict(bundle.resources), 1, now - run.began_s)

    def _interrupt(self, run: Run, now: float) -> None:
        batch, node = run.batch, run.node
        assert batch is not None
        assert node is not None
        run.is_over = True
        del node.runs[run]
        self.interrupted[batch.kind] = self.interrupted.get(batch.kind, 0) + run.count
        self.submit(Batch(batch.kind, batch.shape, run.count, run.lasts_s, now))

    def _break(self, group: Group, lost: Node, now: float) -> None:
        """Some bundles lost their node: the group's work stops, and the bundles wait for another node."""
        run = self._group_runs.pop(group.id, None)
        began_s = now if run is None else run.began_s
        if run is not None:
            run.is_over = True
            group.waits_since_s = now
            self.interrupted[GROUP] = self.interrupted.get(GROUP, 0) + 1
        for index, node in enumerate(group.placed):
            if node is lost:
                group.placed[index] = None
                node.bundles -= 1
            elif node is not None and run is not None:
                self._charge(node, dict(group.bundles[index].resources), 1, now - began_s)
        self._waiting_groups[group.id] = group
        self._try_groups = True

    def _release_bundle(self, group: Group, index: int, node: Node, began_s: float, now: float) -> None:
        self._charge(node, dict(group.bundles[index].resources), 1, now - began_s)
        node.bundles -= 1
        self._give_back(node, group.bundles[index], 1, now)

    def _give_back(self, node: Node, shape: Shape, count: int, now: float) -> None:
        add(node.view.available, {name: amount * count for name, amount in shape.resources})
        if not node.is_busy:
            node.idle_since_s = now
        self._has_room(node)

    def _has_room(self, node: Node) -> None:
        if node.view.schedulable:
            self._freed[node.id] = node

    def _charge(self, node: Node, amounts: Resources, count: int, seconds: float) -> None:
        if node.info.is_head:
            return
        for name, amount in amounts.items():
            key = node.node_type, name
            self.held[key] = self.held.get(key, 0.0) + amount * count * seconds

    # ------------------------------------------------------------ the picture

    def waiting(self) -> dict[Shape, int]:
        """Waiting tasks and actors by shape."""
        return dict(self._counts)

    def waiting_groups(self) -> list[Group]:
        """The groups that are not whole."""
        return list(self._waiting_groups.values())

    @property
    def has_waiting(self) -> bool:
        return bool(self._queue or self._waiting_groups)

    @property
    def has_work(self) -> bool:
        """Whether anything waits or runs."""
        return self.has_waiting or bool(self.groups) or any(node.runs for node in self.living())

    @property
    def has_ending_work(self) -> bool:
        """Whether something runs that will end by itself."""
        runs = [run for node in self.living() for run in node.runs]
        return any(run.lasts_s is not None for run in (*runs, *self._group_runs.values()))

    def demands(self) -> list[Demand]:
        """Waiting tasks and actors as the control store tells of them."""
        return [_demand(shape, count) for shape, count in self.waiting().items()]

    def holdings(self) -> list[Holding]:
        """What runs on the nodes as the control store tells of it."""
        return [node.holding() for node in self.living() if node.is_busy]

    def pending_groups(self) -> list[PendingGroup]:
        """Waiting groups as the control store tells of them."""
        return [
            PendingGroup(
                group.id,
                group.strategy,
                [dict(bundle.resources) for bundle in group.bundles],
                [node.id if node else b"" for node in group.placed],
                [dict(bundle.selector) for bundle in group.bundles],
            )
            for group in self._waiting_groups.values()
        ]

    def reports(self, now: float) -> list[NodeInfo]:
        """The nodes as the control store tells of them; those long dead are forgotten."""
        for node in list(self.nodes.values()):
            if node.died_s is not None and now - node.died_s > KEEP_DEAD_S:
                del self.nodes[node.id]
        return [node.report() for node in self.nodes.values()]


def _request_of(shape: Shape) -> Request:
    return Request(
        dict(shape.resources),
        labels=dict(shape.selector),
        fallbacks=tuple(dict(one) for one in shape.fallbacks),
    )


def _demand(shape: Shape, count: int) -> Demand:
    labels = [dict(selector) for selector in (shape.selector, *shape.fallbacks)]
    strategy = SchedulingStrategy(labels=labels[0], fallbacks=labels[1:])
    return Demand(ResourceRequest(dict(shape.resources), strategy), count)
