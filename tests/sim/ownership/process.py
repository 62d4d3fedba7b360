"""A simulated process: its ownership core is real. What is around the core is here, as little as it takes."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from runtime._core import ids
from runtime._ownership.borrowing import Borrowing
from runtime._ownership.calls import Calls
from runtime._ownership.failures import Lost, OwnerDied
from runtime._ownership.lineage import Lineage
from runtime._ownership.objects import ObjectTable
from runtime._ownership.outcomes import Outcomes
from runtime._ownership.records import INLINE, INLINE_ERROR, STORED, Entry, Submission
from runtime._ownership.released import Released
from runtime._ownership.tasks import Tasks
from runtime._wire.messages import node, worker
from runtime._wire.messages.base import ErrorKind, ErrorReply, Ok, WorkerAddress
from runtime._wire.messages.worker import Value
from tests.sim.ownership.links import SimLink

if TYPE_CHECKING:
    from tests.sim.ownership.cluster import Cluster, Node
    from tests.sim.ownership.runner import Runner

TICK_S = 0.01
TASK, PUT = b"\x00" * 16, b"\x01" * 16
"""What follows the number in an id."""
MAX_REBUILDS = 3
STORED_SHARE = 0.4
"""How many values are too large for messages."""
LINEAGE_BYTES = (10_000, 1 << 20)

Waits = Generator["Callable[[], Any] | float", None, Any]
"""User code: it yields how long it does something else, or what it waits for."""


class Fiber:
    """Waiting code of a process, which goes on between the messages."""

    def __init__(self, process: Process, body: Waits) -> None:
        self._process = process
        self._body = body
        self._ready: Callable[[], Any] = lambda: True
        self.done = False

    def go_on(self) -> None:
        """Runs as far as it comes."""
        while not self.done and self._process.alive and self._ready():
            try:
                wanted = next(self._body)
            except StopIteration:
                self.done = True
                return
            if callable(wanted):
                self._ready = wanted
            else:
                self._sleep(wanted)

    def _sleep(self, seconds: float) -> None:
        world = self._process.world
        due = world.now + seconds
        self._ready = lambda: world.now >= due
        world.at(seconds, lambda: self._process.round(lambda: None))


class Process:
    """One process, and the outbox of its core. `state` is what user code keeps in it from task to task."""

    def __init__(self, cluster: Cluster, on: Node, name: str, is_driver: bool) -> None:
        self.cluster = cluster
        self.world = world = cluster.world
        self.node = on
        self.name = name
        self.is_driver = is_driver
        self.alive = True
        self.touched = False
        self.doomed = False
        self.address = WorkerAddress(name.encode().ljust(28, b"."), on.node_id, name)
        self.rng = random.Random(world.rng.random())
        self.agent, _ = SimLink.pair(world, self, cluster, cluster.address)
        self.agent.other.peer = self.address
        self.peers: dict[bytes, SimLink] = {}
        self.links: list[SimLink] = [self.agent]
        self.released = Released(lambda: self._round_soon(world.delay_s(0.001)))
        self.objects = ObjectTable(self.address, self.released, self)
        self.borrowing = Borrowing(self.objects, self.released, self)
        self.lineage = Lineage(self.objects, self, world.rng.choice(LINEAGE_BYTES))
        self.outcomes = Outcomes(self.objects, self.borrowing, self.lineage, self)
        self.tasks = Tasks(self.address, self.objects, self.outcomes, self)
        self.calls = Calls(self.address, self.objects, self.outcomes, self)
        self.entries = self.objects.table.entries
        self.runner: Runner | None = None
        self.fibers: list[Fiber] = []
        self.state: list[Any] = []
        self.failed_borrows: set[bytes] = set()
        self.heard_dead: set[bytes] = set()
        """Whose links are gone."""
        self._lost_again: dict[bytes, int] = {}
        self._last_tick = 0.0
        self._next_round = float("inf")
        self._made = len(cluster.processes) << 32
        self._handlers = self._table()

    def __repr__(self) -> str:
        return self.name

    # ------------------------------------------------------------ rounds

    def round(self, action: Callable[[], None]) -> None:
        """Handles one event, and what is due after it, as the pump does."""
        if not self.alive:
            return
        action()
        if self.released:
            self.drain()
        now = self.world.now
        if now - self._last_tick >= TICK_S:
            self._last_tick = now
            watches = self.tasks.tick(now)
        else:
            watches = True
        if watches:
            self._round_soon(TICK_S)
        self.released.resting = not watches
        self.touched = True
        for fiber in list(self.fibers):
            fiber.go_on()
        self.fibers = [fiber for fiber in self.fibers if not fiber.done]
        if self.alive and self.released:
            self._round_soon(self.world.delay_s(0.01))

    def _round_soon(self, delay_s: float) -> None:
        due = self.world.now + delay_s
        if due >= self._next_round:
            return
        self._next_round = due

        def tick() -> None:
            if self._next_round == due:
                self._next_round = float("inf")
                self.round(lambda: None)

        self.world.at(delay_s, tick)

    def run(self, body: Waits) -> None:
        """Starts user code."""
        self.fibers.append(Fiber(self, body))
        self.world.at(self.world.delay_s(0.001), lambda: self.round(lambda: None))

    def drain(self) -> None:
        self.objects.drain_released(lambda item: item())

    def kill(self, clean: bool = False) -> None:
        """The process ends at once; `clean`: after everything it said has left."""
        if self.alive:
            self.world.note("killed", self.name, "cleanly" if clean else "")
            self.alive = False
            self.cluster.ended = True
            self.cluster.killed |= not clean or bool(self.outcomes.pending) or self.objects.has_borrowers()
            for link in self.links:
                link.cut(clean)
            self.fibers.clear()
            self.state.clear()

    # ------------------------------------------------------------ links

    def peer(self, address: WorkerAddress, connect: bool = True) -> SimLink | None:
        found = self.peers.get(address.worker_id)
        if found is not None or not connect:
            return found
        there = self.cluster.find(address.worker_id)
        if not there.alive and address.node_id == self.address.node_id:
            return None
        link, other = SimLink.pair(self.world, self, there, address)
        self.links.append(link)
        there.links.append(other)
        self.peers[address.worker_id] = link
        if (
            not there.alive
        ):  # links to other nodes are made in the background: that nobody is there turns out later
            other.closed = True
            self.world.at(self.world.delay_s(0.1), link._closed_by_peer)
        link.send(worker.Hello(self.address, b"job1"))
        return link

    def link_closed(self, link: SimLink) -> None:
        if link.peer is None or link is self.agent:
            return
        if self.peers.get(link.peer.worker_id) is link:
            del self.peers[link.peer.worker_id]
        self.heard_dead.add(link.peer.worker_id)
        self.tasks.link_lost(link, self.world.now)
        self.calls.link_lost(link)
        if self.runner is not None:
            self.runner.caller_lost(link)
        self.borrowing.peer_lost(link.peer.worker_id)

    def borrow_failed(self, object_ids: list[bytes]) -> None:
        """An owner has freed these: it may have, if a process died that was to keep them until we are registered."""
        held = [object_id for object_id in object_ids if object_id in self.entries]
        self.failed_borrows.update(held)
        cluster = self.cluster
        if held and not cluster.lossy and not cluster.killed and not cluster.is_doomed(self):
            self.world.fail(f"{self.name} borrowed what was freed: {[each.hex() for each in held]}")

    def receive(self, link: SimLink, message: Any, correlation: int) -> None:
        self._handlers[type(message)](link, message, correlation)

    def _table(self) -> dict[type, Callable[[SimLink, Any, int], None]]:
        tasks, now = self.tasks, lambda: self.world.now
        return {
            worker.Hello: self._on_hello,
            worker.Done: lambda link, message, _: self.outcomes.on_done(link, message, now()),
            worker.Returned: lambda link, message, _: tasks.on_returned(link, message, now()),
            worker.Retiring: lambda link, _, __: tasks.on_retiring(link),
            worker.BorrowRefs: self.borrowing.on_borrow,
            worker.ReturnRefs: self.borrowing.on_return,
            worker.GetObject: self._on_get,
            worker.ObjectLost: self.lineage.on_lost,
            worker.AddLocation: self.objects.on_location,
            worker.AdoptObject: self._on_adopt,
            worker.CancelObject: lambda _, message, __: self.outcomes.cancel(
                message.object_id, False, message.recursive
            ),
            node.LeaseGranted: lambda _, message, __: tasks.on_granted(message, now()),
            node.LeaseLost: lambda _, message, __: tasks.on_lost(message, now()),
            node.LeaseRecall: lambda _, message, __: tasks.on_recall(message),
        }

    def serve(self, handlers: dict[type, Callable[[SimLink, Any, int], None]]) -> None:
        """Takes more kinds of messages."""
        self._handlers.update(handlers)

    def _on_hello(self, link: SimLink, message: worker.Hello, _correlation: int) -> None:
        link.peer = message.address
        self.peers.setdefault(message.address.worker_id, link)

    # ------------------------------------------------------------ the outbox

    def attempt_ended(self, task: Submission, failed: bool, error: bytes = b"", seconds: float = 0.0) -> None:
        self.cluster.book.attempt_ended(task.push.task_id, task.push.attempt)

    def request_values(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if entry.owner is not None and not entry.asked and entry.value is None:
                self._ask(entry)

    def _ask(self, entry: Entry) -> None:
        assert entry.owner is not None
        entry.asked = True

        def answered(reply: Any) -> None:
            if isinstance(reply, ErrorReply):
                self.borrowing.fail(entry, reply.kind)
                return
            if reply.value.nested and self.entries.get(entry.object_id) is entry:
                self.objects.contain(entry, reply.value.nested)
            self.objects.set_value(entry, reply.value)

        link = self.peer(entry.owner)
        if link is None:
            answered(ErrorReply(ErrorKind.UNAVAILABLE, "the owner is gone"))
        else:
            link.call(worker.GetObject(entry.object_id), answered)

    def _on_get(self, link: SimLink, message: worker.GetObject, correlation: int) -> None:
        entry = self.entries.get(message.object_id)
        if entry is None or entry.owner is not None:
            link.reply(ErrorReply(ErrorKind.LOST, "not owned here"), correlation)
            return

        def answer() -> None:
            assert entry.value is not None
            link.reply(worker.ObjectValue(entry.value), correlation)

        self.objects.call_when_ready(entry, answer)

    def free(self, object_ids: list[bytes], node_ids: list[bytes]) -> None:
        self.agent.send(node.StoreFree(object_ids, node_ids))

    def forget(self, object_ids: list[bytes]) -> None:
        """Nothing of them is mapped here."""

    def drop_copies(self, object_id: bytes, node_ids: list[bytes], outdated: bool) -> None:
        self.agent.send(node.StoreFree([object_id], node_ids, False))

    def error(self, failure: Any) -> Value:
        return Value(INLINE_ERROR, type(failure).__name__.encode())

    def copies_lost(self, entry: Entry, node_ids: Sequence[bytes]) -> None:
        value = entry.value
        if value is None or value.kind != STORED:
            return
        left = tuple(each for each in value.locations if each not in node_ids)
        if left:
            entry.value = Value(STORED, b"", (), value.nested, left, value.size_bytes)
            return
        refusal = self.rebuild_lost(entry, value)
        if refusal is not None:
            entry.value = self.error(refusal)

    def unhandled(self, value: Value) -> None:
        """Errors go unread all the time here."""

    def callback_failed(self, what: str) -> None:
        self.world.fail(f"{what} raised in {self.name}")

    # ------------------------------------------------------------ objects

    def new_number(self) -> bytes:
        """What no other process has in an id."""
        self._made += 1
        return self._made.to_bytes(8, "big")

    def pack(self, object_id: bytes, nested: Sequence[Entry], owner: WorkerAddress) -> Value:
        """A value, which is its object's id and references: inline, or in the store of this node."""
        inside = self.objects.nested_of(nested)
        if self.rng.random() > STORED_SHARE:
            return Value(INLINE, object_id, (), inside)
        self.node.keep(object_id, inside, owner.worker_id)
        return Value(STORED, b"", (), inside, (self.address.node_id,), 1000)

    def put(self, nested: Sequence[Entry]) -> Entry:
        """An object of ours, with one hold."""
        object_id = ids.object_id(self.new_number() + PUT, 1)
        value = self.pack(object_id, nested, self.address)
        entry = self.objects.own(object_id, 1)
        entry.value = value
        self.objects.table.contain(entry, nested)
        return entry

    def take(self, nested: Iterable[tuple[bytes, WorkerAddress]]) -> list[Entry]:
        """References that user code has rebuilt: one hold of each is its own."""
        made = []
        for object_id, owner in nested:
            entry = self.objects.entry_of(object_id, owner)
            entry.hold()
            made.append(entry)
        self.borrowing.register()
        return made

    def read(self, entry: Entry, block: Callable[[bool], None] | None) -> Waits:
        """Waits for a value and loads it. Returns it with the references made of it; what is lost is made again.
        `block`: is told when it begins and ends to wait."""
        while True:
            value = entry.value
            if value is None:
                self.request_values((entry,))
                if block is not None:
                    block(True)
                yield lambda: entry.value is not None
                if block is not None:
                    block(False)
                continue
            if value.kind & 1:
                entry.seen = True
                return value, []
            if value.kind == INLINE:
                found: Value | None = value
            else:
                yield self.pause_s()
                found = self.cluster.find_copy(self.node, entry.object_id, value.locations)
                if found is None:
                    refusal = self.rebuild_lost(entry, value)
                    if refusal is not None:
                        return self.error(refusal), []
                    continue
                self._note_copy(entry, value)
            made = self.take(found.nested)
            if not all(each.registered for each in made):
                entry.hold()
                self.borrowing.when_registered(made, lambda: self.objects.release(entry))
            return found, made

    def has_copy(self, entry: Entry, value: Value) -> bool:
        """Whether a value can be loaded."""
        found = self.cluster.find_copy(self.node, entry.object_id, value.locations)
        return value.kind < STORED or found is not None

    def _note_copy(self, entry: Entry, value: Value) -> None:
        if self.address.node_id in value.locations:
            return
        if entry.owner is None:
            self.objects.add_location(entry, self.address.node_id)
            return
        link = self.peer(entry.owner, connect=False)
        if link is not None:
            link.send(worker.AddLocation(entry.object_id, self.address.node_id))
        if entry.value is value:
            self.objects.add_location(entry, self.address.node_id)

    def rebuild_lost(self, entry: Entry, lost: Value) -> Any:
        """No copy is left: has the value made again. Returns why nobody can, if so."""
        if entry.value is not lost:
            return None
        if entry.owner is None:
            return self.lineage.rebuild(entry)
        link = self.peer(entry.owner)
        if link is None:
            return OwnerDied(entry.object_id, entry.owner)
        tries = self._lost_again[entry.object_id] = self._lost_again.get(entry.object_id, 0) + 1
        if tries > MAX_REBUILDS:
            return Lost(entry.object_id, entry.owner)
        entry.value = None
        entry.asked = True
        link.call(worker.ObjectLost(entry.object_id, list(lost.locations)), lambda _: self._ask(entry))
        return None

    def put_for(self, nested: Sequence[Entry], owner: WorkerAddress, order: int) -> Waits:
        """An object that another process will own. Returns its entry, with one hold, or None."""
        object_id = ids.object_id(self.new_number() + PUT, 1)
        self.cluster.book.orders[ids.task_id_of(object_id)] = order
        value = self.pack(object_id, nested, owner)
        yield self.pause_s()
        link = self.peer(owner)
        box: list[Any] = []
        if link is not None:
            link.call(worker.AdoptObject(object_id, value), box.append)
            yield lambda: box
        if link is None or isinstance(box[0], ErrorReply):
            self.free([object_id], [])
            return None
        entry = self.borrowing.adopted(object_id, owner, value)
        entry.hold()
        return entry

    def _on_adopt(self, link: SimLink, message: worker.AdoptObject, correlation: int) -> None:
        entry = self.objects.own(message.object_id)
        entry.value = message.value
        self.objects.table.add_borrower(message.object_id, link.peer.worker_id)
        inner = self.objects.contain(entry, message.value.nested)
        self.borrowing.when_registered(inner, lambda: link.reply(Ok(), correlation))

    # ------------------------------------------------------------ cancelling

    def cancel(self, entry: Entry, recursive: bool) -> None:
        """Cancels what makes an object, wherever that is."""
        if entry.owner is None:
            self.outcomes.cancel(entry.object_id, False, recursive)
        elif entry.value is None or entry.value.kind == STORED:
            link = self.peer(entry.owner)
            if link is not None:
                link.send(worker.CancelObject(entry.object_id, False, recursive))

    def pause_s(self) -> float:
        """A moment in which other things happen."""
        return self.world.delay_s(0.001)
