"""The agents and the control store of the simulated world, as far as drivers and workers can tell: leases, actors, and
who has which object. One class, for none of its own logic is under test here.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import msgspec

from runtime._owner.actor_submitter import handle_object_id
from runtime._wire.messages import codec, control, node
from runtime._wire.messages.base import ErrorKind, ErrorReply, Ok
from runtime._wire.messages.worker import BindLease, Done, ExitActor, Push
from tests.sim.processes.network import Network, SimConnection, SimPump
from tests.sim.processes.process import Process
from tests.sim.processes.world import World

if TYPE_CHECKING:
    Stored = tuple[bytes, list[bytes], bytes]

JOB = b"job1"
RECALLS = 0.1
"""How often somebody who has a worker is asked for it when others wait."""


class Node:
    """What one node keeps. `objects`: (data, buffers, owner) by id; `primary`: those that must be freed explicitly."""

    def __init__(self, node_id: bytes) -> None:
        self.node_id = node_id
        self.agent_path = f"agent of {node_id.decode()}"
        self.objects: dict[bytes, Stored] = {}
        self.primary: set[bytes] = set()

    def free(self, object_ids: list[bytes]) -> None:
        for object_id in object_ids:
            self.objects.pop(object_id, None)
            self.primary.discard(object_id)


class Worker:
    """A worker process as its agent sees it. `owner`: who leases it; `blocked`: it lends its place."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.owner: SimConnection | None = None
        self.lease_id = b""
        self.blocked = False
        self.actor: ActorRecord | None = None


class ActorRecord:
    """An actor as the control store sees it."""

    def __init__(self, info: control.ActorInfo) -> None:
        self.info = info
        self.worker: Worker | None = None
        self.watchers: list[tuple[SimConnection, int]] = []


class Cluster:
    """`killed`: some process was killed, so that losses are no surprise any more; `lossy`: some may be;
    `ended`: some process has ended, killed or not. `book`: what the program of the run expects."""

    def __init__(self, world: World, nodes: int, max_workers: int) -> None:
        self.world = world
        self.network = Network(world)
        self.nodes = [Node(f"node {number}".encode().ljust(28, b".")) for number in range(nodes)]
        self.killed = False
        self.lossy = False
        self.ended = False
        self.book: Any = None
        self.processes: list[Process] = []
        self._max_workers = max_workers
        self._pump = SimPump(world, "agents", None, self._on_message)
        self._workers: list[Worker] = []
        self._demands: dict[tuple[SimConnection, bytes], node.LeaseDemand] = {}
        self._actors: dict[bytes, ActorRecord] = {}
        self._kv: dict[bytes, bytes] = {}
        self._leases = 0
        self._scheduled = False
        for each in self.nodes:
            self.network.listeners[each.agent_path] = (self._pump, self._accept)

    # ------------------------------------------------------------ processes

    def start_driver(self, name: str) -> Process:
        """A driver on the first node; the caller gives it its program."""
        return self._new_process(self.nodes[0], name, True)

    def _new_process(self, on: Node, name: str, is_driver: bool) -> Process:
        process = Process(self.world, self, self.network, on, name, is_driver)
        self.processes.append(process)
        return process

    def _start_worker(self) -> Worker:
        process = self._new_process(self.world.rng.choice(self.nodes), f"w{len(self.processes)}", False)
        process.start()
        worker = Worker(process)
        self._workers.append(worker)
        return worker

    def _accept(self, connection: SimConnection) -> None:
        process = connection.other.pump.process
        assert process is not None
        connection.context = process
        connection.on_close = self._process_ended
        connection.other.context = lambda _register: node.Registered(
            process.node.node_id, process.node.node_id.decode(), JOB, "", "", "", "", "", b"", "", 0
        )

    def is_doomed(self, process: Process) -> bool:
        """Whether it made an actor that nobody referred to any more: nobody will see what it does with its references,
        and its creator keeps them no longer."""
        for worker in self._workers:
            actor = worker.actor
            if worker.process is process and actor is not None and actor.info.state != "ALIVE":
                spec = actor.info.spec
                owner = next(p for p in self.processes if p.core.address.worker_id == spec.owner.worker_id)
                if not owner.alive or handle_object_id(spec.actor_id) not in owner.entries:
                    process.doomed = True
        return process.doomed

    def kill(self, process: Process) -> None:
        """Kills a process in whatever it does."""
        self.killed = True
        process.kill()

    def kill_node(self, which: Node) -> None:
        """Every worker of a node dies, and its objects with them."""
        for process in self.processes:
            if process.node is which and process.alive and not process.is_driver:
                self.kill(process)
        which.objects.clear()
        which.primary.clear()

    def evict(self) -> None:
        """Copies that are not the primary ones may go at any moment: nobody may notice."""
        for each in self.nodes:
            for object_id in [object_id for object_id in each.objects if object_id not in each.primary]:
                if self.world.rng.random() < 0.5:
                    del each.objects[object_id]

    def lose_results(self) -> None:
        """Some results of tasks are gone, wherever they were, as if their nodes had died."""
        lost = {
            object_id
            for each in self.nodes
            for object_id, found in each.objects.items()
            if self._can_be_made_again(object_id, found[2]) and self.world.rng.random() < 0.5
        }
        for each in self.nodes:
            each.free(list(lost))
        self.world.note("lost", [object_id.hex() for object_id in lost])

    def _can_be_made_again(self, object_id: bytes, owner: bytes) -> bool:
        for process in self.processes:
            if process.core.address.worker_id == owner and process.alive:
                entry = process.entries.get(object_id)
                task = entry.task if entry is not None else None
                return task is not None and process.core.lineage.kept(task.push.task_id) is task
        return False

    def _process_ended(self, connection: SimConnection) -> None:
        process: Process = connection.context
        self.ended = True
        for worker in list(self._workers):
            if worker.process is process:
                self._workers.remove(worker)
                if worker.owner is not None:
                    worker.owner.send(
                        node.LeaseLost(worker.lease_id, process.core.address.worker_id, "it died")
                    )
                if worker.actor is not None:
                    self._change(worker.actor, "DEAD", None)
            elif worker.owner is connection:
                self._end(worker)
        for key in [key for key in self._demands if key[0] is connection]:
            del self._demands[key]
        worker_id = process.core.address.worker_id
        for each in self.nodes:
            each.free([object_id for object_id, found in each.objects.items() if found[2] == worker_id])
        for actor in self._actors.values():
            if actor.info.spec.owner.worker_id == worker_id and actor.info.state != "DEAD":
                self._change(actor, "DEAD", None)
                if actor.worker is not None:
                    self._end(actor.worker)
        self._schedule()

    def _end(self, worker: Worker) -> None:
        if worker in self._workers:
            self._workers.remove(worker)
        worker.process.kill()

    # ------------------------------------------------------------ messages

    def _on_message(self, connection: SimConnection, message: Any, correlation: int) -> None:
        kind = type(message)
        if kind is node.LeaseDemand:
            self._demands[connection, message.class_key] = message
            self._schedule()
        elif kind is node.LeaseReturn:
            self._returned(message)
        elif kind in (node.Blocked, node.Unblocked):
            for worker in self._workers:
                if worker.process is connection.context:
                    worker.blocked = kind is node.Blocked
            self._schedule()
        elif kind is node.TasksTold:
            pass  # for those who ask after a crash
        elif kind is node.StoreFree:
            self._free(connection, message)
        elif kind is control.KvPut:
            self._kv[message.key] = message.value
            connection.reply(Ok(), correlation)
        elif kind is control.KvGet:
            connection.reply(control.KvValue(self._kv.get(message.key)), correlation)
        elif kind is control.RegisterActor:
            self._create_actor(connection, message, correlation)
        elif kind is control.WatchActor:
            self._watch(connection, message, correlation)
        elif kind is control.KillActor:
            self._kill_actor(connection, message, correlation)
        elif kind is Done:
            self._constructed(connection, message)
        else:
            raise AssertionError(f"the simulated agent does not know {kind.__name__}")

    # ------------------------------------------------------------ objects

    def find_copy(self, on: Node, object_id: bytes, locations: list[bytes]) -> Stored | None:
        """A copy on the node itself or on one of the others named."""
        for each in (on, *(each for each in self.nodes if each.node_id in locations)):
            found = each.objects.get(object_id)
            if found is not None:
                return found
        return None

    def _free(self, connection: SimConnection, message: node.StoreFree) -> None:
        here: Node = connection.context.node
        here.free(message.object_ids)
        for each in self.nodes:
            if each is not here and each.node_id in message.locations:
                self.world.at(self.world.delay_s(0.01), functools.partial(each.free, message.object_ids))

    # ------------------------------------------------------------ leases

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self.world.at(self.world.delay_s(0.005), self._grant)

    def _grant(self) -> None:
        self._scheduled = False
        busy = sum(worker.owner is not None and not worker.blocked for worker in self._workers)
        wanting = [key for key, demand in self._demands.items() if demand.count > 0]
        for worker in self._workers:
            if wanting and worker.owner is not None and self.world.rng.random() < RECALLS:
                worker.owner.send(node.LeaseRecall(worker.lease_id))
        while wanting and busy < self._max_workers:
            key = self.world.rng.choice(wanting)
            demand = self._demands[key]
            self._demands[key] = msgspec.structs.replace(demand, count=demand.count - 1)
            if demand.count <= 1:
                wanting.remove(key)
            idle = [w for w in self._workers if w.owner is None and w.actor is None and w.process.alive]
            worker = self.world.rng.choice(idle) if idle else self._start_worker()
            self._leases += 1
            worker.lease_id = self._leases.to_bytes(16, "big")
            worker.owner, worker.blocked = key[0], False
            busy += 1
            key[0].send(
                node.LeaseGranted(
                    key[1], worker.lease_id, worker.process.core.address, demand.request.resources
                )
            )

    def _returned(self, message: node.LeaseReturn) -> None:
        for worker in self._workers:
            if worker.lease_id == message.lease_id and worker.owner is not None:
                worker.owner = None
                if message.discard:
                    self._end(worker)
                break
        self._schedule()

    # ------------------------------------------------------------ actors

    def _create_actor(
        self, connection: SimConnection, message: control.RegisterActor, correlation: int
    ) -> None:
        spec = message.spec
        info = control.ActorInfo(spec.actor_id, "PENDING_CREATION", 1, None, 0, spec)
        actor = self._actors[spec.actor_id] = ActorRecord(info)
        connection.reply(info, correlation)
        self.world.at(self.world.delay_s(0.01), lambda: self._construct(actor))

    def _construct(self, actor: ActorRecord) -> None:
        if actor.info.state == "DEAD":
            return
        actor.worker = worker = self._start_worker()
        worker.actor = actor
        push = codec.decode(actor.info.spec.creation)
        assert isinstance(push, Push)
        assert push.actor is not None
        push = msgspec.structs.replace(
            push,
            caller=actor.info.spec.owner,
            actor=msgspec.structs.replace(push.actor, lease=BindLease(b"lease", {}, [])),
        )
        self._agent_side(worker.process).send(push)

    def _agent_side(self, process: Process) -> SimConnection:
        other: SimConnection = process.core.agent.other  # type: ignore[attr-defined]
        return other

    def _constructed(self, connection: SimConnection, message: Done) -> None:
        for worker in self._workers:
            if worker.process is connection.context and worker.actor is not None:
                self.is_doomed(worker.process)
                if message.failed:
                    self._change(worker.actor, "DEAD", None)
                    self._end(worker)
                elif worker.actor.info.state != "DEAD":
                    self._change(worker.actor, "ALIVE", worker.process.core.address)
                return

    def _change(self, actor: ActorRecord, state: str, address: Any) -> None:
        if actor.info.state == "DEAD":
            return
        actor.info = msgspec.structs.replace(
            actor.info, state=state, version=actor.info.version + 1, address=address, death_reason="it died"
        )
        watchers, actor.watchers = actor.watchers, []
        for connection, correlation in watchers:
            connection.reply(actor.info, correlation)

    def _watch(self, connection: SimConnection, message: control.WatchActor, correlation: int) -> None:
        actor = self._actors.get(message.actor_id)
        if actor is None:
            connection.reply(ErrorReply(ErrorKind.NOT_FOUND, "no such actor"), correlation)
        elif actor.info.version > message.after_version:
            connection.reply(actor.info, correlation)
        else:
            actor.watchers.append((connection, correlation))

    def _kill_actor(self, connection: SimConnection, message: control.KillActor, correlation: int) -> None:
        actor = self._actors.get(message.actor_id)
        if actor is not None and actor.info.state != "DEAD":
            worker = actor.worker
            if worker is not None and message.graceful and actor.info.state == "ALIVE":
                self._agent_side(worker.process).send(ExitActor())
            else:
                self._change(actor, "DEAD", None)
                if worker is not None:
                    self._end(worker)
        if correlation:
            connection.reply(Ok(), correlation)
