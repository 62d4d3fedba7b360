"""Nodes: joining, reporting, draining, dying, and telling every agent of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec

from runtime._control.cluster import Cluster, Node
from runtime._control.context import Context, Handlers, Signal
from runtime._control.telling import PacedNews, tell_all
from runtime._control.waiters import Waiters
from runtime._core.nodes import (
    HEARTBEAT_TIMEOUT_S,
    RECONNECT_GRACE_S,
    REFUSAL_EVERY_S,
    REFUSALS,
    RESTART_GRACE_S,
    NodeEvent,
    NodeState,
    verdict,
)
from runtime._transport.channel import CallError, Channel
from runtime._wire.messages.base import ErrorKind, Message, NodeInfo, Ok
from runtime._wire.messages.control import (
    ClusterView,
    Drain,
    DrainNode,
    GetNodes,
    NodeLoad,
    NodeRegistered,
    NodeReport,
    Nodes,
    RegisterNode,
    Resume,
    ResumeNode,
    StopNode,
)
from runtime._wire.messages.libraries import NodeChanges, WatchNodes

log = logging.getLogger(__name__)

TABLE = "nodes"
CHECK_S = 1.0
STALLED_S = 2.0
"""When this process stood still for longer, the silence of nodes meanwhile says nothing about them."""
BROADCAST_S = 0.02
"""How long a change of free resources waits to be sent with others; joins, drains and deaths are sent at once."""

_encode = msgspec.msgpack.encode
_REASONS = {
    NodeEvent.CONNECTION_LOST: "its agent's connection closed and did not come back",
    NodeEvent.SILENT: f"its agent sent no report for {HEARTBEAT_TIMEOUT_S:g} s",
    NodeEvent.LEFT: "it was drained and left",
}
_ENDED = "its agent's process has ended"


class NodeService:
    """Owns the nodes. Other services add callbacks for registrations and deaths to the `on_` lists."""

    def __init__(
        self,
        context: Context,
        cluster: Cluster,
        cluster_id: str,
        view_changed: Signal,
        refuses: Callable[[str], Awaitable[bool]] | None = None,
    ) -> None:
        self.on_registered: list[Callable[[Node, RegisterNode], None]] = []
        self.on_dead: list[Callable[[Node], None]] = []
        self.on_demand: list[Callable[[], None]] = []
        self.on_demands_of: list[Callable[[Node], None]] = []
        self._context = context
        self._cluster = cluster
        self._cluster_id = cluster_id
        self._view_changed = view_changed
        self._refuses = refuses
        self._changed: set[bytes] = set()  # what is free changed
        self._moved: set[bytes] = set()  # joined, draining, dead: everyone must know, the node itself too
        self._news = PacedNews(context, cluster, self._gather)
        # Above every version of an earlier life, so that those who wait for changes since then hear of now.
        self._version = int(context.wall_time() * 1000)
        self._moved_at: dict[bytes, int] = {}  # the version of each node's last move
        self._watchers = Waiters()

    def load(self) -> None:
        """Takes the nodes of an earlier life of this control store; they have a while to come back."""
        now = self._context.now()
        for node_id, row in self._context.journal.storage.scan(TABLE):
            # What was idle then may be busy now: its agent will tell.
            info = msgspec.structs.replace(msgspec.msgpack.decode(row, type=NodeInfo), idle_since_s=0.0)
            node = Node(info, now, RESTART_GRACE_S)
            node.view.schedulable = node.state is NodeState.ALIVE
            self._cluster.add(node)
            self._moved_at[node_id] = self._version
            log.info("remembering node %s, %s", node_id.hex(), info.state)

    def handlers(self) -> Handlers:
        return {
            RegisterNode: self.register,
            NodeReport: self.report,
            GetNodes: self.get_nodes,
            WatchNodes: self.watch_nodes,
            DrainNode: self.drain,
            ResumeNode: self.resume,
        }

    # ---------------------------------------------------------------- messages

    async def register(self, channel: Channel, message: RegisterNode) -> NodeRegistered:
        """Adds a node, or takes it back after its connection broke."""
        info = message.info
        now = self._context.now()
        node = self._cluster.get(info.node_id)
        if node is not None and node.is_dead:
            channel.send(StopNode(f"declared dead: {node.info.death_reason}"))
            raise CallError(
                ErrorKind.INVALID,
                f"node {info.node_id.hex()} was declared dead ({node.info.death_reason}); start it anew",
            )
        if node is None:
            node = Node(msgspec.structs.replace(info, state=NodeState.ALIVE.value), now, RECONNECT_GRACE_S)
            self._cluster.add(node)
            log.info("node %s joined from %s", info.node_id.hex(), info.host)
        else:
            log.info("node %s is back", info.node_id.hex())
            old = node.channel
            if old is not None and old is not channel:
                old.context = None
                old.close()
        node.connected(channel, info, now)
        channel.context = info.node_id
        self._save(node)
        for listener in self.on_registered:
            listener(node, message)
        self.moved(node)
        await self._context.journal.durable()
        return NodeRegistered(
            self._cluster_id,
            [other.snapshot() for other in self._cluster.living()],
            [other.node_id for other in self._cluster.all() if other.is_dead],
        )

    def report(self, channel: Channel, message: NodeReport) -> None:
        """Takes in what is free on a node and what waits there; also its heartbeat."""
        node = self._cluster.get(message.node_id)
        if node is None or node.channel is not channel:
            return
        before = (node.demands, node.info.idle_since_s > 0)
        if node.report(message, self._context.now()):
            self.changed(node)
            self._view_changed.set()
        if before != (node.demands, node.info.idle_since_s > 0):
            self._demand_changed()
        if before[0] != node.demands or node.noted is None:
            for listener in self.on_demands_of:
                listener(node)

    def get_nodes(self, _: Channel, __: GetNodes) -> Nodes:
        return Nodes([node.snapshot() for node in self._cluster.all()])

    def watch_nodes(self, _: Channel, message: WatchNodes) -> NodeChanges | Awaitable[NodeChanges]:
        """Answers when a node has moved since the watcher's version."""
        if self._version > message.after_version:
            return self._changes(message.after_version)
        return self._wait_for_changes(message)

    async def _wait_for_changes(self, message: WatchNodes) -> NodeChanges:
        deadline = self._context.now() + message.timeout_s
        while self._version <= message.after_version:
            left = deadline - self._context.now()
            if left <= 0 or not await self._watchers.wait(left):
                break
        return self._changes(message.after_version)

    def _changes(self, after_version: int) -> NodeChanges:
        moved = [node for node in self._cluster.all() if self._moved_at[node.node_id] > after_version]
        if after_version < 0:
            moved = [node for node in moved if not node.is_dead]
        moved.sort(key=lambda node: self._moved_at[node.node_id])
        return NodeChanges(self._version, [node.snapshot() for node in moved])

    async def drain(self, _: Channel, message: DrainNode) -> Ok:
        """Stops placing work on a node, unless it must be idle and is not."""
        node = self._cluster.get(message.node_id)
        if node is None or node.is_dead:
            raise CallError(ErrorKind.NOT_FOUND, f"node {message.node_id.hex()} is no member of the cluster")
        if message.only_if_idle and (node.has_promises or not node.info.idle_since_s):
            raise CallError(ErrorKind.BUSY, f"node {message.node_id.hex()} is not idle")
        if node.channel is None:
            raise CallError(ErrorKind.UNAVAILABLE, f"node {message.node_id.hex()} has no connection now")
        was_draining = node.state is NodeState.DRAINING
        node.step(NodeEvent.DRAIN, self._context.now(), message.deadline_ms)
        try:
            await node.channel.call(Drain(message.reason, message.only_if_idle), timeout_s=5.0)
        except CallError:
            if node.state is NodeState.DRAINING and not was_draining:
                node.step(NodeEvent.DRAIN_REFUSED, self._context.now())
                self._view_changed.set()
            raise
        log.info("draining node %s: %s", message.node_id.hex(), message.reason)
        if not node.is_dead:
            self._save(node)
            self.moved(node)
            await self._context.journal.durable()
        return Ok()

    async def resume(self, _: Channel, message: ResumeNode) -> Ok:
        """Places work on a draining node again. The agent is notified first: what is placed there must not be
        refused."""
        node = self._cluster.get(message.node_id)
        if node is None or node.is_dead:
            raise CallError(ErrorKind.NOT_FOUND, f"node {message.node_id.hex()} is no member of the cluster")
        if node.channel is None:
            raise CallError(ErrorKind.UNAVAILABLE, f"node {message.node_id.hex()} has no connection now")
        await node.channel.call(Resume(message.reason), timeout_s=5.0)
        if not node.is_dead:
            node.step(NodeEvent.RESUME, self._context.now())
            log.info("node %s works again: %s", message.node_id.hex(), message.reason)
            self._save(node)
            self.moved(node)
            await self._context.journal.durable()
        return Ok()

    def closed(self, channel: Channel) -> None:
        """A connection ended; an agent that did not say good-bye has a moment to come back."""
        node = self._cluster.get(channel.context) if isinstance(channel.context, bytes) else None
        if node is None or node.channel is not channel:
            return
        node.disconnected(self._context.now(), RECONNECT_GRACE_S)
        if channel.peer_left:
            self.die(node, NodeEvent.LEFT, "it was stopped")
            return
        log.warning("lost the connection to node %s", node.node_id.hex())
        if node.state is NodeState.DRAINING:
            self._check(node)
        else:
            self._context.after(RECONNECT_GRACE_S + 0.01, lambda: self._check(node))
            if self._refuses is not None:
                self._context.tasks.spawn(self._examine(node, self._refuses), "examination of a lost node")

    async def _examine(self, node: Node, refuses: Callable[[str], Awaitable[bool]]) -> None:
        """Declares a node dead as soon as its machine proves that its agent has ended. An agent that lives comes back
        meanwhile, or listens still."""
        lost_s = node.lost_s
        for _ in range(REFUSALS):
            await asyncio.sleep(REFUSAL_EVERY_S)
            if node.is_dead or node.lost_s != lost_s or not await refuses(node.info.address):
                return
        if not node.is_dead and node.lost_s == lost_s:
            self.die(node, NodeEvent.CONNECTION_LOST, _ENDED)

    # ---------------------------------------------------------------- liveness

    async def watch(self) -> None:
        """Declares nodes dead that send no reports; runs until cancelled."""
        loop = asyncio.get_running_loop()
        before = loop.time()
        while True:
            await asyncio.sleep(CHECK_S)
            now = loop.time()
            stalled_s = now - before - CHECK_S
            before = now
            for node in self._cluster.living():
                if stalled_s > STALLED_S:
                    node.heard_s = now
                else:
                    self._check(node)

    def _check(self, node: Node) -> None:
        event = verdict(self._context.now(), node.state, node.heard_s, node.lost_s, node.grace_s)
        if event is not None:
            self.die(node, event, _REASONS[event])

    def die(self, node: Node, event: NodeEvent, reason: str) -> None:
        """Declares a node dead and notifies everyone."""
        log.warning("node %s is dead: %s", node.node_id.hex(), reason)
        node.step(event, self._context.now())
        node.info = msgspec.structs.replace(
            node.info, death_reason=reason, idle_since_s=0.0, left=event is NodeEvent.LEFT
        )
        channel, node.channel = node.channel, None
        if channel is not None:
            channel.context = None
            channel.send(StopNode(f"declared dead: {reason}"))
            channel.close()
        self._save(node)
        for node_id in self._cluster.forget_dead():
            self._context.journal.delete(TABLE, node_id)
            self._moved_at.pop(node_id, None)
        self.moved(node)
        for listener in self.on_dead:
            listener(node)

    # ---------------------------------------------------------------- telling

    def changed(self, node: Node) -> None:
        """What is free on the node changed: tell the other agents soon."""
        self._changed.add(node.node_id)
        self._news.has_come(BROADCAST_S)

    def moved(self, node: Node) -> None:
        """The node's state changed: tell every agent at the end of this loop turn."""
        self._moved.add(node.node_id)
        self._version += 1
        self._moved_at[node.node_id] = self._version
        self._watchers.wake()
        self._news.has_come()
        self._view_changed.set()
        self._demand_changed()

    def send_all(self, message: Message) -> None:
        """Sends one way to every connected agent."""
        tell_all(self._cluster, message)

    def _gather(self) -> tuple[ClusterView, Node | None] | None:
        moved, self._moved = self._moved, set()
        changed, self._changed = self._changed - moved, set()
        infos, loads = [], []
        for node_id in moved | changed:
            node = self._cluster.get(node_id)
            if node is None:
                continue
            info = node.snapshot()
            node.told = (info.total, info.available)
            if node_id in moved:
                infos.append(info)
            else:
                loads.append(NodeLoad(node_id, info.total, info.available))
        if not infos and not loads:
            return None
        # An agent knows best what is free on its own node, and ignores what is said of it.
        only = self._cluster.get(loads[0].node_id) if len(loads) == 1 and not infos else None
        return ClusterView(infos, loads=loads), only

    def _demand_changed(self) -> None:
        for listener in self.on_demand:
            listener()

    def _save(self, node: Node) -> None:
        self._context.journal.put(TABLE, node.node_id, _encode(node.info))
