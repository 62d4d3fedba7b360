"""A node agent as the control store sees one: it keeps strict accounts, starts actors, sets bundles aside,
and can be slow, refuse, crash or lose its connection. No processes, no sockets.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from runtime._control.server import ControlStore
from runtime._core.placement import group_resources
from runtime._core.resources import UNIT, add, fits, subtract
from runtime._transport.channel import CallError, Channel
from runtime._wire.messages.base import (
    Demand,
    ErrorKind,
    Message,
    NodeInfo,
    Ok,
    WorkerAddress,
)
from runtime._wire.messages.control import (
    ActorStarted,
    ClusterView,
    Drain,
    NodeReport,
    RegisterNode,
    Resume,
    StartActor,
    StopActor,
    StopNode,
    WorkerFailed,
)
from runtime._wire.messages.groups import (
    CommitBundle,
    GroupsReserved,
    PrepareBundle,
    ReserveGroups,
    ReturnBundles,
    WholeGroup,
)
from tests.sim.world import SimLink

REPORT_S = 0.05
HEARTBEAT_S = 1.0
_worker_numbers = itertools.count(1)


@dataclass
class Running:
    """An actor's process."""

    address: WorkerAddress
    held: dict[str, int]
    uses: dict[str, int]  # what placement asked for, to know the group it lives in
    restarts: int


@dataclass
class Bundle:
    resources: dict[str, int]
    committed: bool = False


@dataclass
class Behaviour:
    """What goes wrong, and how long things take."""

    start_s: Callable[[], float] = lambda: 0.0
    refuses: Callable[[], bool] = lambda: False
    constructor_raises: Callable[[StartActor], bool] = lambda _: False
    dies_in_constructor: Callable[[StartActor], bool] = lambda _: False


@dataclass
class Agent:
    """One simulated node."""

    node_id: bytes
    total: dict[str, int]
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    behaviour: Behaviour = field(default_factory=Behaviour)
    labels: dict[str, str] = field(default_factory=dict)
    latency_s: float = 0.0
    demands: list[Demand] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.available = dict(self.total)
        self.actors: dict[bytes, Running] = {}
        self.starting: dict[bytes, asyncio.Future[ActorStarted]] = {}
        self.starting_uses: dict[bytes, dict[str, int]] = {}
        self.killed: set[bytes] = set()
        self.bundles: dict[tuple[bytes, int], Bundle] = {}
        self.received: list[Message] = []
        self.view: dict[bytes, NodeInfo] = {}
        self.notes: list[tuple[str, str]] = []
        self.channel: SimLink | None = None
        self.is_member = False  # the store took it in, and its connection stands
        self.is_crashed = False
        self.is_draining = False
        self.is_stopped = False
        self.answers_drain = True
        self._is_dirty = False
        self._heart: asyncio.TimerHandle | None = None

    # ---------------------------------------------------------------- connection

    def info(self) -> NodeInfo:
        return NodeInfo(
            node_id=self.node_id,
            state="ALIVE",
            address="",
            unix_path="",
            host="127.0.0.1",
            host_name="sim",
            is_head=False,
            session_dir="",
            total=dict(self.total),
            available=dict(self.available),
            labels=self.labels,
            idle_since_s=self.idle_since_s(),
        )

    def idle_since_s(self) -> float:
        busy = self.actors or self.starting or self.bundles or self.demands
        return 0.0 if busy else 1.0

    async def join(self, store: ControlStore) -> None:
        """Connects and registers, for the first time or again."""
        ours, theirs = SimLink.delayed(self.handle, None, self.rng, self.latency_s)
        store.attach(theirs)
        self.channel = ours
        actors = [(actor_id, running.address) for actor_id, running in self.actors.items()]
        answer = await ours.call(RegisterNode(self.info(), actors))
        self.is_member = not ours.closed
        self.view.update({node.node_id: node for node in answer.nodes})
        if self._heart is None:
            self._beat()

    def cut(self) -> None:
        """The connection breaks; the node lives on."""
        self.is_member = False
        if self.channel is not None:
            self.channel.close()
            self.channel = None

    def crash(self) -> None:
        """The node dies with all its processes."""
        self.is_crashed = True
        self.actors.clear()
        self.bundles.clear()
        if self._heart is not None:
            self._heart.cancel()
        self.cut()

    def send(self, message: Message) -> None:
        if self.channel is not None:
            self.channel.send(message)

    def report(self) -> None:
        """Tells what is free, now."""
        self._is_dirty = False
        self.send(
            NodeReport(
                self.node_id,
                dict(self.total),
                dict(self.available),
                list(self.demands),
                self.idle_since_s(),
            )
        )

    def dirty(self) -> None:
        """What is free changed: tell within 50 ms."""
        if not self._is_dirty and not self.is_crashed:
            self._is_dirty = True
            asyncio.get_running_loop().call_later(REPORT_S, self.report)

    def _beat(self) -> None:
        if not self.is_crashed:
            self.report()
            self._heart = asyncio.get_running_loop().call_later(HEARTBEAT_S, self._beat)

    # ---------------------------------------------------------------- messages

    def handle(self, _: Channel, message: Message) -> object:
        if self.is_crashed:
            raise CallError(ErrorKind.UNAVAILABLE, "crashed")
        self.received.append(message)
        match message:
            case StartActor():
                return self._start(message)
            case StopActor():
                self.end_actor(message.actor_id, "killed", message.intended)
            case PrepareBundle():
                return self._prepare(message)
            case CommitBundle():
                return self._commit(message)
            case ReserveGroups():
                refused = [group.pg_id for group in message.groups if not self._reserve(group)]
                return GroupsReserved(refused)
            case ReturnBundles():
                for pg_id, index in message.bundles:
                    self._give_back(pg_id, index)
                return Ok()
            case Drain():
                if message.only_if_idle and (not self.answers_drain or not self.idle_since_s()):
                    raise CallError(ErrorKind.BUSY, "not idle")
                self.is_draining = True
                return Ok()
            case Resume():
                self.is_draining = False
                return Ok()
            case StopNode():
                self.is_stopped = True
                self.crash()
            case ClusterView():
                self.view.update({node.node_id: node for node in message.nodes})
                for load in message.loads:
                    known = self.view[load.node_id]
                    self.view[load.node_id] = msgspec.structs.replace(
                        known, total=load.total, available=load.available
                    )
                if message.has_notes:
                    self.notes = message.notes
        return None

    def end_actor(self, actor_id: bytes, reason: str, intended: bool) -> None:
        """An actor's process ends."""
        if actor_id in self.starting:
            self.killed.add(actor_id)
        running = self.actors.pop(actor_id, None)
        if running is not None:
            add(self.available, running.held)
            self.dirty()
            self.send(WorkerFailed(running.address.worker_id, actor_id, reason, intended))

    async def _start(self, message: StartActor) -> ActorStarted:
        actor_id = message.spec.actor_id
        running = self.actors.get(actor_id)
        if running is not None:
            return ActorStarted(running.address, 1)
        known = self.starting.get(actor_id)
        if known is not None:
            return await asyncio.shield(known)
        wanted = message.spec.placement.resources
        if self.is_draining or self.behaviour.refuses() or not fits(wanted, self.available):
            raise CallError(ErrorKind.BUSY, "no room")
        subtract(self.available, wanted)
        self.dirty()
        future: asyncio.Future[ActorStarted] = asyncio.get_running_loop().create_future()
        self.starting[actor_id] = future
        self.starting_uses[actor_id] = dict(wanted)
        try:
            started = await self._construct(message)
        except CallError as error:
            future.set_exception(error)
            future.exception()  # others may wait for it, or nobody
            raise
        finally:
            self.starting.pop(actor_id, None)
            self.killed.discard(actor_id)
            add(self.available, self.starting_uses.pop(actor_id))
            self.dirty()
        if not started.error:
            subtract(self.available, message.spec.held)
            self.actors[actor_id] = Running(
                started.address, dict(message.spec.held), dict(wanted), message.restarts
            )
        future.set_result(started)
        return started

    async def _construct(self, message: StartActor) -> ActorStarted:
        await asyncio.sleep(self.behaviour.start_s())
        address = WorkerAddress(next(_worker_numbers).to_bytes(28, "big"), self.node_id, "")
        if self.is_crashed:
            raise CallError(ErrorKind.UNAVAILABLE, "crashed")
        if message.spec.actor_id in self.killed:
            raise CallError(ErrorKind.LOST, "killed by signal 9 in its constructor")
        if self.behaviour.dies_in_constructor(message):
            raise CallError(ErrorKind.LOST, "exit code 1 in its constructor")
        if self.behaviour.constructor_raises(message):
            return ActorStarted(address, 1, b"an exception")
        return ActorStarted(address, 1)

    def _prepare(self, message: PrepareBundle) -> Ok:
        key = (message.pg_id, message.index)
        if key not in self.bundles:
            if self.is_draining or self.behaviour.refuses() or not fits(message.resources, self.available):
                raise CallError(ErrorKind.BUSY, "no room")
            subtract(self.available, message.resources)
            self.bundles[key] = Bundle(message.resources)
            self.dirty()
        return Ok()

    def _commit(self, message: CommitBundle) -> Ok:
        bundle = self.bundles.get((message.pg_id, message.index))
        if bundle is None:
            raise CallError(ErrorKind.NOT_FOUND, "not prepared here")
        if not bundle.committed:
            bundle.committed = True
            offered = group_resources(bundle.resources, message.pg_id.hex(), message.index)
            add(self.total, offered)
            add(self.available, offered)
            self.dirty()
        return Ok()

    def _reserve(self, group: WholeGroup) -> bool:
        held = set(self.bundles)
        try:
            for index, resources in group.bundles:
                self._prepare(PrepareBundle(group.pg_id, index, resources))
        except CallError:
            for key in self.bundles.keys() - held:
                self._give_back(*key)
            return False
        for index, _ in group.bundles:
            self._commit(CommitBundle(group.pg_id, index))
        return True

    def _give_back(self, pg_id: bytes, index: int) -> None:
        bundle = self.bundles.pop((pg_id, index), None)
        if bundle is not None:
            if bundle.committed:
                offered = group_resources(bundle.resources, pg_id.hex(), index)
                for actor_id, running in list(self.actors.items()):
                    if running.uses.keys() & offered.keys():
                        self.end_actor(actor_id, "its placement group was removed", False)
                for actor_id, uses in self.starting_uses.items():
                    if uses.keys() & offered.keys():
                        self.killed.add(actor_id)
                        add(self.available, uses)
                        self.starting_uses[actor_id] = {}
                subtract(self.total, offered)
                subtract(self.available, offered)
            add(self.available, bundle.resources)
            self.dirty()


def cpus(count: float) -> dict[str, int]:
    return {"CPU": int(count * UNIT)}
