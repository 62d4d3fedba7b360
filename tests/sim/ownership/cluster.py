"""The agents and the control store of the simulated world, as far as ownership can tell: leases, actors and their
restarts, and who has which object. One class, for none of its own logic is under test here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from runtime._core import ids
from runtime._ownership.records import INLINE
from runtime._wire.messages import control, node
from runtime._wire.messages.base import ErrorKind, ErrorReply, Ok, WorkerAddress
from runtime._wire.messages.worker import Done, ExitActor, Push, Value
from tests.sim.events import Events
from tests.sim.ownership.book import Book
from tests.sim.ownership.links import SimLink
from tests.sim.ownership.process import Process
from tests.sim.ownership.runner import Runner

Nested = tuple[tuple[bytes, WorkerAddress], ...]
RECALLS = 0.1
"""How often a worker is recalled when others wait."""


class Node:
    """The object store of one node. `primary`: copies that must be freed explicitly."""

    def __init__(self, node_id: bytes) -> None:
        self.node_id = node_id
        self.objects: dict[bytes, tuple[Nested, bytes]] = {}
        self.primary: set[bytes] = set()

    def keep(self, object_id: bytes, nested: Nested, owner: bytes) -> None:
        """A new object."""
        self.objects[object_id] = nested, owner
        self.primary.add(object_id)

    def free(self, object_ids: list[bytes]) -> None:
        for object_id in object_ids:
            self.objects.pop(object_id, None)
            self.primary.discard(object_id)


class Worker:
    """A worker process as its agent sees it. `owner`: who leases it; `blocked`: it lends its place;
    `retiring`: it is of no more use."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.owner: SimLink | None = None
        self.lease_id = b""
        self.blocked = False
        self.retiring = False
        self.actor: ActorRecord | None = None


class ActorRecord:
    """An actor as the control store sees it."""

    def __init__(self, info: control.ActorInfo) -> None:
        self.info = info
        self.worker: Worker | None = None
        self.watchers: list[tuple[SimLink, int]] = []
        self.unreferenced = False


class Cluster:
    """`lossy`: deaths or losses are to come; `ended`: some process has ended; `killed`: and that before
    all that it had said has left."""

    name = "agents"
    alive = True

    def __init__(self, world: Events, nodes: int, max_workers: int) -> None:
        self.world = world
        self.book = Book()
        self.address = WorkerAddress(b"agents".ljust(28, b"."), b"", "")
        self.nodes = [Node(f"node {number}".encode().ljust(28, b".")) for number in range(nodes)]
        self.lossy = False
        self.ended = False
        self.killed = False
        self.processes: list[Process] = []
        self.depths: dict[bytes, int] = {}
        """How deep the program that is a task runs, by task id."""
        self._max_workers = max_workers
        self._workers: list[Worker] = []
        self._demands: dict[tuple[SimLink, bytes], node.LeaseDemand] = {}
        self._actors: dict[bytes, ActorRecord] = {}
        self._leases = 0
        self._scheduled = False
        self._handlers: dict[type, Callable[[SimLink, Any, int], None]] = {
            node.LeaseDemand: self._on_demand,
            node.LeaseReturn: self._on_return,
            node.Blocked: lambda link, _, __: self._on_blocked(link, True),
            node.Unblocked: lambda link, _, __: self._on_blocked(link, False),
            node.StoreFree: self._on_free,
            control.RegisterActor: self._on_register,
            control.WatchActor: self._on_watch,
            control.KillActor: self._on_kill,
            Done: self._on_constructed,
        }

    # ------------------------------------------------------------ processes

    def start_driver(self, name: str) -> Process:
        """A driver on the first node; the caller gives it its program."""
        process = Process(self, self.nodes[0], name, True)
        self.processes.append(process)
        return process

    def find(self, worker_id: bytes) -> Process:
        """The process of an address, dead or alive."""
        return next(process for process in self.processes if process.address.worker_id == worker_id)

    def _start_worker(self) -> Worker:
        process = Process(self, self.world.rng.choice(self.nodes), f"w{len(self.processes)}", False)
        self.processes.append(process)
        process.runner = Runner(process)
        process.run(process.runner.main())
        worker = Worker(process)
        self._workers.append(worker)
        return worker

    def receive(self, link: SimLink, message: Any, correlation: int) -> None:
        self._handlers[type(message)](link, message, correlation)

    def round(self, action: Callable[[], None]) -> None:
        action()

    def borrow_failed(self, object_ids: list[bytes]) -> None:
        raise AssertionError("agents borrow nothing")

    def kill_somebody(self) -> None:
        """A worker, often an actor's, the second driver, or all of a node but the first driver, which must see its
        program through."""
        rng = self.world.rng
        candidates = [process for process in self.processes[1:] if process.alive]
        if rng.random() < 0.2 and len(self.nodes) > 1:
            for process in candidates:
                if process.node is self.nodes[1] and not process.is_driver:
                    process.kill()
            self.nodes[1].free(list(self.nodes[1].objects))
        elif candidates:
            actors = [worker.process for worker in self._workers if worker.actor is not None]
            actors = [process for process in actors if process.alive]
            rng.choice(actors if actors and rng.random() < 0.5 else candidates).kill()

    def link_closed(self, link: SimLink) -> None:
        """A process has ended."""
        process = self.find(link.peer.worker_id)
        rng, worker_id = self.world.rng, process.address.worker_id
        for worker in list(self._workers):
            if worker.process is process:
                self._workers.remove(worker)
                if worker.owner is not None and rng.random() < 0.9:
                    short = self.lossy and rng.random() < 0.2
                    worker.owner.send(
                        node.LeaseLost(worker.lease_id, worker_id, "it died", out_of_memory=short)
                    )
                if worker.actor is not None:
                    self._actor_lost(worker.actor)
            elif worker.owner is link:
                worker.process.kill()
        for key in [key for key in self._demands if key[0] is link]:
            del self._demands[key]
        for each in self.nodes:
            each.free([object_id for object_id, found in each.objects.items() if found[1] == worker_id])
        for actor in self._actors.values():
            if actor.info.spec.owner.worker_id == worker_id:
                self._end_actor(actor)
        self._schedule()

    # ------------------------------------------------------------ objects

    def find_copy(self, on: Node, object_id: bytes, locations: tuple[bytes, ...]) -> Value | None:
        """What a copy on the node itself, or on one of those named, says. The node has one then."""
        for each in (on, *(each for each in self.nodes if each.node_id in locations)):
            found = each.objects.get(object_id)
            if found is not None:
                on.objects[object_id] = found
                return Value(INLINE, object_id, (), found[0])
        return None

    def _on_free(self, link: SimLink, message: node.StoreFree, _correlation: int) -> None:
        here = self.find(link.peer.worker_id).node
        for each in self.nodes:
            if each is here and message.here:
                each.free(message.object_ids)
            elif each.node_id in message.locations:
                self.world.at(self.world.delay_s(0.01), lambda each=each: each.free(message.object_ids))

    def evict(self) -> None:
        """Copies that are not the primary ones may go at any moment: nobody may notice."""
        for each in self.nodes:
            for object_id in [object_id for object_id in each.objects if object_id not in each.primary]:
                if self.world.rng.random() < 0.5:
                    del each.objects[object_id]

    def lose_results(self) -> None:
        """Some results of tasks are gone, wherever they were, as if their nodes had died."""
        owners = {p.address.worker_id: p for p in self.processes if p.alive}
        lost = []
        for each in self.nodes:
            for object_id, (_, owner) in each.objects.items():
                process = owners.get(owner)
                entry = process.entries.get(object_id) if process is not None else None
                if entry is not None and entry.task is not None and self.world.rng.random() < 0.5:
                    lost.append(object_id)
        for each in self.nodes:
            each.free(lost)
        self.world.note("lost", lost)

    # ------------------------------------------------------------ leases

    def _on_demand(self, link: SimLink, message: node.LeaseDemand, _correlation: int) -> None:
        self._demands[link, message.class_key] = message
        self._schedule()

    def _on_blocked(self, link: SimLink, blocked: bool) -> None:
        for worker in self._workers:
            if worker.process.agent.other is link:
                worker.blocked = blocked or worker.retiring
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self.world.at(self.world.delay_s(0.005), self._grant)

    def _grant(self) -> None:
        self._scheduled = False
        rng = self.world.rng
        busy = sum(worker.owner is not None and not worker.blocked for worker in self._workers)
        wanting = [key for key, demand in self._demands.items() if demand.count > 0]
        for worker in self._workers:
            if wanting and worker.owner is not None and rng.random() < RECALLS:
                worker.owner.send(node.LeaseRecall(worker.lease_id))
        while wanting and busy < self._max_workers:
            key = rng.choice(wanting)
            demand = self._demands[key]
            self._demands[key] = msgspec.structs.replace(demand, count=demand.count - 1)
            if demand.count <= 1:
                wanting.remove(key)
            idle = [w for w in self._workers if self._is_idle(w)]
            worker = rng.choice(idle) if idle else self._start_worker()
            self._leases += 1
            worker.lease_id = self._leases.to_bytes(16, "big")
            worker.owner, worker.blocked = key[0], False
            busy += 1
            key[0].send(node.LeaseGranted(key[1], worker.lease_id, worker.process.address, {}))

    def _on_return(self, _link: SimLink, message: node.LeaseReturn, _correlation: int) -> None:
        for worker in self._workers:
            if worker.lease_id == message.lease_id and worker.owner is not None:
                worker.owner = None
                if message.discard:
                    worker.process.kill()
                break
        self._schedule()

    def _is_idle(self, worker: Worker) -> bool:
        return worker.owner is None and worker.actor is None and not worker.retiring and worker.process.alive

    def retires(self, process: Process) -> None:
        """A worker says that it will end by itself."""
        for worker in self._workers:
            if worker.process is process:
                worker.retiring = worker.blocked = True
        self._schedule()

    def leased(self) -> int:
        """How many workers somebody leases."""
        return sum(worker.owner is not None and worker.process.alive for worker in self._workers)

    # ------------------------------------------------------------ actors

    def is_doomed(self, process: Process) -> bool:
        """Whether it is an actor that nobody refers to any more: nobody will see what it does with its references, and
        its creator keeps them no longer."""
        for worker in self._workers:
            actor = worker.actor
            if worker.process is process and actor is not None:
                owner = self.find(actor.info.spec.owner.worker_id)
                handle = ids.object_id(ids.CREATION_PREFIX + actor.info.actor_id, 1)
                gone = not owner.alive or handle not in owner.entries
                process.doomed |= gone or actor.unreferenced or actor.info.state == "DEAD"
        return process.doomed

    def _on_register(self, link: SimLink, message: control.RegisterActor, correlation: int) -> None:
        spec = message.spec
        info = control.ActorInfo(spec.actor_id, "PENDING_CREATION", 1, None, 0, spec)
        actor = self._actors[spec.actor_id] = ActorRecord(info)
        link.reply(info, correlation)
        self.world.at(self.world.delay_s(0.01), lambda: self._construct(actor))

    def _construct(self, actor: ActorRecord) -> None:
        if actor.info.state == "DEAD":
            return
        actor.worker = worker = self._start_worker()
        worker.actor = actor
        push = msgspec.msgpack.decode(actor.info.spec.creation, type=Push)
        worker.process.agent.other.send(push)

    def _on_constructed(self, link: SimLink, _message: Done, _correlation: int) -> None:
        for worker in self._workers:
            if worker.process.agent.other is link and worker.actor is not None:
                self._change(worker.actor, "ALIVE", worker.process.address)
                if worker.actor.unreferenced:
                    link.send(ExitActor())

    def _actor_lost(self, actor: ActorRecord) -> None:
        """Its process has ended."""
        info = actor.info
        limit = info.spec.max_restarts
        owner = self.find(info.spec.owner.worker_id)
        if actor.unreferenced or not owner.alive or (limit >= 0 and info.restarts >= limit):
            self._change(actor, "DEAD", None)
        elif info.state != "DEAD":
            actor.info = msgspec.structs.replace(info, restarts=info.restarts + 1)
            self._change(actor, "RESTARTING", None)
            self.world.at(self.world.delay_s(0.01), lambda: self._construct(actor))

    def _end_actor(self, actor: ActorRecord) -> None:
        self._change(actor, "DEAD", None)
        if actor.worker is not None:
            actor.worker.process.kill()

    def _change(self, actor: ActorRecord, state: str, address: Any) -> None:
        if actor.info.state == "DEAD":
            return
        actor.info = msgspec.structs.replace(
            actor.info, state=state, version=actor.info.version + 1, address=address
        )
        watchers, actor.watchers = actor.watchers, []
        for link, correlation in watchers:
            link.reply(actor.info, correlation)

    def _on_watch(self, link: SimLink, message: control.WatchActor, correlation: int) -> None:
        actor = self._actors.get(message.actor_id)
        if actor is None:
            link.reply(ErrorReply(ErrorKind.NOT_FOUND, "no such actor"), correlation)
        elif actor.info.version > message.after_version:
            link.reply(actor.info, correlation)
        else:
            waiter = link, correlation
            actor.watchers.append(waiter)

            def late() -> None:
                if waiter in actor.watchers:
                    actor.watchers.remove(waiter)
                    link.reply(actor.info, correlation)

            if message.timeout_s < 10:
                self.world.at(message.timeout_s, late)

    def _on_kill(self, link: SimLink, message: control.KillActor, correlation: int) -> None:
        actor = self._actors.get(message.actor_id)
        if actor is not None and actor.info.state != "DEAD":
            worker = actor.worker
            if not message.graceful and message.no_restart:
                self._end_actor(actor)
            elif not message.graceful and worker is not None:
                worker.process.kill()
            else:
                actor.unreferenced = True
                if actor.info.state == "ALIVE" and worker is not None:
                    worker.process.agent.other.send(ExitActor())
                else:
                    self._end_actor(actor)
        if correlation:
            link.reply(Ok(), correlation)
