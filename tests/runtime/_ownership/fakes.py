"""Processes whose ownership core is real and whose everything else is a list of messages that a test delivers."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from runtime._ownership.borrowing import Borrowing
from runtime._ownership.failures import Freed, Lost, OwnerDied
from runtime._ownership.objects import ObjectTable
from runtime._ownership.records import INLINE, INLINE_ERROR, Entry, Submission
from runtime._ownership.released import Released
from runtime._wire.messages.base import ErrorKind, ErrorReply, Message, WorkerAddress
from runtime._wire.messages.worker import (
    BorrowRefs,
    GetObject,
    ObjectValue,
    ReleaseHold,
    ReturnRefs,
    StreamItem,
    Value,
)

PLAIN = Value(INLINE, b"plain")


def address_of(name: str) -> WorkerAddress:
    """The address of a process of this name."""
    return WorkerAddress(name.encode().ljust(28, b"."), b"node".ljust(28, b"."), name)


def object_name(text: str) -> bytes:
    """An object id of this name."""
    return text.encode().ljust(28, b".")


class FakeLink:
    """One end of a connection. What is sent waits in `queue` until the test delivers it."""

    def __init__(self, here: Process, there: Process) -> None:
        self.here = here
        self.there = there
        self.peer = there.address
        self.other: FakeLink
        self.sent_functions: set[bytes] = set()
        self.closed = False
        self.queue: deque[tuple[str, Any, int]] = deque()
        self._calls: dict[int, Callable[[Any], None]] = {}
        self._next = 0

    def send(self, message: Message) -> None:
        if not self.closed:
            self.queue.append(("send", message, 0))

    def call(self, request: Any, callback: Callable[[Any], None]) -> None:
        if self.closed:
            callback(ErrorReply(ErrorKind.UNAVAILABLE, "closed"))
            return
        self._next += 1
        self._calls[self._next] = callback
        self.queue.append(("call", request, self._next))

    def reply(self, message: Message, correlation: int) -> None:
        if not self.closed:
            self.queue.append(("reply", message, correlation))

    def deliver(self) -> None:
        """The next message arrives."""
        kind, message, correlation = self.queue.popleft()
        if kind == "reply":
            self.other._calls.pop(correlation)(message)
        else:
            self.there.receive(self.other, message, correlation)

    def close(self) -> None:
        """The process at the other end is gone."""
        self.closed = True
        self.queue.clear()
        calls, self._calls = self._calls, {}
        for callback in calls.values():
            callback(ErrorReply(ErrorKind.UNAVAILABLE, "closed"))


class WorkerLink:
    """The link to an agent or a worker, which the test plays: `sent` is what they have yet to handle."""

    def __init__(self, address: WorkerAddress) -> None:
        self.peer = address
        self.sent_functions: set[bytes] = set()
        self.sent: deque[Any] = deque()
        self.calls: list[Callable[[Any], None]] = []
        self.closed = False
        self.congested = False
        self.on_room: Callable[[Any], None] | None = None
        self.refuses: Callable[[Any], bool] = lambda _message: False
        """Which messages cannot be encoded."""

    def send(self, message: Any) -> None:
        if self.refuses(message):
            raise ValueError("no such field")
        if not self.closed:
            self.sent.append(message)

    def call(self, request: Any, callback: Callable[[Any], None]) -> None:
        self.sent.append(request)
        self.calls.append(callback)

    def reply(self, message: Any, _correlation: int) -> None:
        self.send(message)

    def close(self) -> None:
        self.closed = True

    def take(self, kind: type) -> list[Any]:
        """Removes and returns the messages of a kind."""
        found = [message for message in self.sent if isinstance(message, kind)]
        self.sent = deque(message for message in self.sent if not isinstance(message, kind))
        return found


class Network:
    """The processes of a test and their links."""

    def __init__(self, *names: str) -> None:
        self.processes = [Process(self, name) for name in names]
        self.links: dict[tuple[Process, Process], FakeLink] = {}
        self.killed = False

    def link(self, here: Process, there: Process, connect: bool) -> FakeLink | None:
        if (here, there) not in self.links:
            if not connect or not there.alive:
                return None
            ours, theirs = FakeLink(here, there), FakeLink(there, here)
            ours.other, theirs.other = theirs, ours
            self.links[here, there], self.links[there, here] = ours, theirs
        return self.links[here, there]

    def busy(self) -> list[FakeLink]:
        """Links with something under way."""
        return [link for link in self.links.values() if link.queue]

    def run(self) -> None:
        """Delivers everything."""
        while busy := self.busy():
            busy[0].deliver()

    def run_at_random(self, rng: random.Random) -> None:
        """Delivers everything, in any order across links."""
        while busy := self.busy():
            rng.choice(busy).deliver()

    def kill(self, process: Process) -> None:
        """The process dies with what it has not sent; the others hear of it at once."""
        self.killed = True
        process.alive = False
        for (here, there), link in list(self.links.items()):
            if here is process or there is process:
                del self.links[here, there]
                if there is process:
                    link.close()
        for other in self.processes:
            if other.alive:
                other.borrowing.peer_lost(process.address.worker_id)


class Reference:
    """A program's reference to an object; it gives its hold back when it dies."""

    def __init__(self, process: Process, entry: Entry) -> None:
        self.process = process
        self.entry = entry

    def __del__(self) -> None:
        self.process.drop(self.entry)


class Process:
    """A process with an ownership core; also its outbox."""

    def __init__(self, network: Network, name: str) -> None:
        self.network = network
        self.name = name
        self.alive = True
        self.address = address_of(name)
        self.released = Released(lambda: None)
        self.objects = ObjectTable(self.address, self.released, self)
        self.borrowing = Borrowing(self.objects, self.released, self)
        self.objects.forget_task = lambda entry: self.forgotten_tasks.append(entry)
        self.entries = self.objects.table.entries
        self.forgotten_tasks: list[Entry] = []
        self.freed: list[bytes] = []
        self.forgotten: list[bytes] = []
        self.dropped: list[tuple[bytes, list[bytes], bool]] = []
        self.failures: list[Any] = []
        self.unread: list[Value] = []
        self.raised: list[str] = []
        self.lent: dict[bytes, list[Entry]] = {}  # by transfer: held until the receiver has registered
        self.received: list[Entry] = []
        self.attempts: list[tuple[bytes, int, bool]] = []
        self.collections: list[list[bytes]] = []
        self.lost_copies: list[tuple[bytes, list[bytes]]] = []
        self.agent = WorkerLink(address_of("agent"))
        self.workers: dict[bytes, WorkerLink] = {}
        """Links to workers, by worker id."""
        self._transfers = 0

    # ------------------------------------------------------------ the outbox

    def peer(self, address: WorkerAddress, connect: bool = True) -> Any:
        if address.worker_id in self.workers:
            return self.workers[address.worker_id]
        there = next((p for p in self.network.processes if p.address == address), None)
        return self.network.link(self, there, connect) if there is not None else None

    def request_values(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if entry.owner is None or entry.asked or entry.value is not None:
                continue
            entry.asked = True
            link = self.peer(entry.owner)
            if link is None:
                self.borrowing.fail(entry, ErrorKind.UNAVAILABLE)
            else:
                link.call(GetObject(entry.object_id), self._answer_of(entry))

    def _answer_of(self, entry: Entry) -> Callable[[Any], None]:
        def answered(reply: Any) -> None:
            if isinstance(reply, ErrorReply):
                self.borrowing.fail(entry, reply.kind)
                return
            if reply.value.nested and self.entries.get(entry.object_id) is entry:
                self.objects.contain(entry, reply.value.nested)
            self.objects.set_value(entry, reply.value)

        return answered

    def free(self, object_ids: list[bytes], _node_ids: list[bytes]) -> None:
        self.freed += object_ids

    def forget(self, object_ids: list[bytes]) -> None:
        self.forgotten += object_ids

    def drop_copies(self, object_id: bytes, node_ids: list[bytes], outdated: bool) -> None:
        self.dropped.append((object_id, node_ids, outdated))

    def error(self, failure: Any) -> Value:
        self.failures.append(failure)
        return Value(INLINE_ERROR, type(failure).__name__.encode())

    def attempt_ended(self, task: Submission, failed: bool, error: bytes = b"", seconds: float = 0.0) -> None:
        self.attempts.append((task.push.task_id, task.push.attempt, failed))

    def reference(self, entry: Entry) -> Reference:
        return Reference(self, entry)

    def collected(self, references: Sequence[Any]) -> tuple[bytes, Sequence[Entry]]:
        entries = [reference.entry for reference in references]
        self.collections.append([entry.object_id for entry in entries])
        return b"collected", entries

    def copies_lost(self, entry: Entry, node_ids: Sequence[bytes]) -> None:
        self.lost_copies.append((entry.object_id, list(node_ids)))

    def unhandled(self, value: Value) -> None:
        self.unread.append(value)

    def callback_failed(self, what: str) -> None:
        self.raised.append(what)

    # ------------------------------------------------------------ messages

    def receive(self, link: FakeLink, message: Any, correlation: int) -> None:
        """Handles one message, as a shell would."""
        if isinstance(message, BorrowRefs):
            self.borrowing.on_borrow(link, message, correlation)
        elif isinstance(message, ReturnRefs):
            self.borrowing.on_return(link, message, correlation)
        elif isinstance(message, GetObject):
            self._on_get(link, message, correlation)
        elif isinstance(message, StreamItem):
            self._on_gift(link, message)
        elif isinstance(message, ReleaseHold):
            self.objects.release_all(self.lent.pop(message.task_id))
        else:
            raise AssertionError(message)

    def _on_get(self, link: FakeLink, message: GetObject, correlation: int) -> None:
        entry = self.entries.get(message.object_id)
        if entry is None or entry.owner is not None:
            link.reply(ErrorReply(ErrorKind.LOST, "unknown"), correlation)
            return

        def answer() -> None:
            assert entry.value is not None
            link.reply(ObjectValue(entry.value), correlation)

        self.objects.call_when_ready(entry, answer)

    # ------------------------------------------------------------ what programs do

    def give(self, entry: Entry, there: Process) -> None:
        """Sends a reference to another process, and holds it until that one has registered."""
        link = self.network.link(self, there, True)
        assert link is not None
        entry.hold()
        self._transfers += 1
        transfer = f"{self.name}{self._transfers}".encode()
        self.lent[transfer] = [entry]
        link.send(StreamItem(transfer, 0, Value(INLINE, b"", (), self.objects.nested_of([entry]))))

    def _on_gift(self, link: FakeLink, message: StreamItem) -> None:
        [(object_id, owner)] = message.value.nested
        entry = self.borrowing.borrowed_entry(object_id, owner)
        entry.hold()
        self.received.append(entry)
        self.borrowing.when_registered([entry], lambda: link.send(ReleaseHold(message.task_id)))

    def drop(self, entry: Entry) -> None:
        """A reference of the program dies."""
        self.released.append(entry)

    def drain(self) -> None:
        """Handles what died."""
        self.objects.drain_released(lambda _item: None)


LOSSES = (b"Lost", b"Freed", b"OwnerDied")
assert {Lost.__name__, Freed.__name__, OwnerDied.__name__} == {loss.decode() for loss in LOSSES}
