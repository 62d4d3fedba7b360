"""The objects a process knows: those it owns and those it borrows; putting new ones, and the borrowing protocol.

State changes under the pump's lock.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from runtime import exceptions
from runtime._core.references import Reference, ReferenceTable
from runtime._system import interpreter
from runtime._transport.connection import Connection
from runtime._transport.failures import report
from runtime._wire import serialization
from runtime._wire.messages.base import Ok, WorkerAddress
from runtime._wire.messages.node import StoreFree
from runtime._wire.messages.worker import (
    AddLocation,
    ObjectLost,
    Value,
)
from runtime.object_ref import ObjectRef

from .released import NOWHERE, Released
from .store import Pin
from .unhandled import UnhandledErrors

if TYPE_CHECKING:
    from runtime._process.core_worker import Core

    from .submission import Submission

INLINE_BYTES = 100 * 1024
"""Values up to this size travel in messages and live with their owner; larger ones go to the object store."""

INLINE, INLINE_ERROR, STORED, STORED_ERROR = 0, 1, 2, 3  # Value.kind
# The same bytes each time: pickle writes them once, however many references to objects of one owner it meets.
encode_address = lru_cache(1024)(msgspec.msgpack.Encoder().encode)
decode_address = lru_cache(1024)(msgspec.msgpack.Decoder(WorkerAddress).decode)


class Entry(Reference, eq=False, gc=interpreter.TRACK_RECORDS, kw_only=True):
    """One object. `value` is None until it is there; then callbacks have run."""

    released: Released
    """Where its references go when they die."""
    value: Value | None = None
    callbacks: list[Callable[[], None]] | None = None
    task: Submission | None = None  # what made it, while it lies in a store
    dependents: int = 0  # how many tasks of the lineage have it as an argument
    fetched: bool = False  # `wait` has brought it to this node, or found that it cannot
    seen: bool = False  # an error: somebody was told
    asked: bool = False  # borrowed: the owner has been asked for the value
    on_registered: list[Callable[[], None]] | None = None
    on_free: Callable[[], None] | None = None

    def let_go(self) -> None:
        """Breaks every cycle that it may be part of: nobody asks for it any more."""
        self.callbacks = self.task = self.on_registered = self.on_free = None


def plain_value(value: Any) -> Value | None:
    """The value of something plain and small, which most things are; None: see `Objects.pack`."""
    if type(value) in serialization.PLAIN:
        data = serialization.dump_plain(value)
        if len(data) <= INLINE_BYTES:
            return Value(INLINE, data)
    return None


def adopt(core: Core | None, ref: ObjectRef, binary: bytes) -> None:
    """Fills in a reference made from a bare id: it can be read only if the process knows the object."""
    if core is None:
        _fill(ref, _unknown(binary, NOWHERE))
        return
    with core.lock:
        entry = core.objects.table.entries.get(binary)
        _fill(ref, _unknown(binary, core.released) if entry is None else entry)


def _fill(ref: ObjectRef, entry: Entry) -> None:
    ref._binary = entry.object_id
    ref._entry = entry
    entry.holds += 1


def _unknown(binary: bytes, released: Released) -> Entry:
    error = ValueError(
        f"The owner is unknown of object {binary.hex()}: its id was made up, or comes from another session or from "
        "outside of tasks. Get the reference from the call that made the object, or as an argument."
    )
    entry = Entry(binary, released=released)
    entry.value = Value(INLINE_ERROR, pickle.dumps(error))
    entry.seen = True
    return entry


class Objects:
    """The object table of a process."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.table: ReferenceTable[Entry] = ReferenceTable()
        self._entries = self.table.entries
        self._unhandled = UnhandledErrors()
        self._own_address = encode_address(core.address)
        self.errors = 0
        """How many objects got an error instead of a value so far: whoever waits for several looks again."""
        self.settled = 0
        """How many objects got a value or an error so far."""

    # ------------------------------------------------------------ making references

    def new_ref(self, entry: Entry) -> ObjectRef:
        """A user's reference to an entry. Under the lock."""
        ref = ObjectRef.__new__(ObjectRef)
        ref._binary = entry.object_id
        ref._entry = entry
        entry.holds += 1
        return ref

    def own(self, object_id: bytes) -> Entry:
        """A new object of ours, without a value yet. Under the lock."""
        entry = self._entries[object_id] = Entry(object_id, released=self._core.released)
        return entry

    def borrow(self, binary: bytes, owner: bytes) -> ObjectRef:
        """A reference that came from elsewhere. If it is new here, `Borrowing.register` tells the owner."""
        with self._core.lock:
            return self.new_ref(self._entries.get(binary) or self._entry(binary, decode_address(owner)))

    def borrowed_entry(self, object_id: bytes, owner: WorkerAddress) -> Entry:
        """The entry of somebody else's object; registers the borrow when it is new. Under the lock."""
        entry = self._entry(object_id, owner)
        self._core.borrowing.register()
        return entry

    def _entry(self, object_id: bytes, owner: WorkerAddress) -> Entry:
        entry = self._entries.get(object_id)
        if entry is not None:
            return entry
        if owner.worker_id == self._core.address.worker_id:
            entry = Entry(object_id, released=self._core.released)
            entry.value = self.error_value(exceptions.ObjectFreedError(object_id.hex(), b"", ""))
            return self.table.add(entry)
        return self._core.borrowing.begin(object_id, owner)

    def adopted(self, object_id: bytes, owner: WorkerAddress, value: Value) -> Entry:
        """The entry of what we put for somebody else, who knows of us. Under the lock."""
        entry = self._core.borrowing.enter(object_id, owner)
        entry.registered = True
        entry.value = value
        if value.nested:
            self.contain(entry, value.nested)
        return entry

    def leak(self, entry: Entry) -> None:
        """Keeps an object for ever: a copy of its reference left the engine's sight."""
        with self._core.lock:
            entry.holds += 1

    def owner_address(self, entry: Entry) -> bytes:
        """The encoded address of the owner."""
        return self._own_address if entry.owner is None else encode_address(entry.owner)

    def encoded(self, address: WorkerAddress) -> bytes:
        """An address as users see it: opaque bytes."""
        return encode_address(address)

    def nested_of(self, entries: Sequence[Entry]) -> tuple[tuple[bytes, WorkerAddress], ...]:
        """What a message says of the references inside a value."""
        return tuple((entry.object_id, entry.owner or self._core.address) for entry in entries)

    # ------------------------------------------------------------ letting go

    def release(self, entry: Entry) -> None:
        """Takes one hold away. Under the lock."""
        entry.holds -= 1
        if entry.holds <= 0 and not entry.borrowers:
            dead = self._end(entry)
            if dead:
                self.bury(dead)

    def release_all(self, entries: Iterable[Entry]) -> None:
        """Takes one hold of each away. Under the lock."""
        dead: list[Entry] = []
        for entry in entries:
            entry.holds -= 1
            if entry.holds <= 0 and not entry.borrowers:
                dead += self._end(entry)
        if dead:
            self.bury(dead)

    def _end(self, entry: Entry) -> Iterable[Entry]:
        """Nothing holds it any more. Returns what is to be buried: what is small, ours, and alone, as most are, only
        leaves the table."""
        value = entry.value
        if (
            value is not None
            and value.kind == INLINE
            and entry.owner is None
            and entry.nested is None
            and entry.task is None
            and entry.on_free is None
        ):
            if self._entries.get(entry.object_id) is entry:
                del self._entries[entry.object_id]
            return ()
        return self.table.bury(entry)

    def bury(self, dead: Iterable[Entry]) -> None:
        """Frees what we owned, gives back what we borrowed. Under the lock."""
        freed: list[bytes] = []
        locations: set[bytes] = set()
        borrowed: list[Entry] = []
        for entry in dead:
            if entry.on_free is not None:
                try:
                    entry.on_free()
                except Exception:
                    report("a callback of a freed object")
            if entry.owner is None:
                value = entry.value
                if value is not None and value.kind & 1 and not entry.seen:
                    self._unhandled.report(value)
                if value is not None and value.kind >= STORED:
                    freed.append(entry.object_id)
                    locations.update(value.locations)
                if entry.task is not None:
                    self._core.lineage.forget(entry)
            else:
                borrowed.append(entry)
        if borrowed:
            self._core.store.forget([entry.object_id for entry in borrowed])
            self._core.borrowing.give_back(borrowed)
        if freed:
            self._core.store.free(freed, list(locations))

    # ------------------------------------------------------------ values

    def set_value(self, entry: Entry, value: Value) -> None:
        """The object is there. Under the lock."""
        entry.value = value
        self.settled += 1  # after the value is there, as others look at both without the lock
        if value.kind & 1:
            self.errors += 1
        callbacks, entry.callbacks = entry.callbacks, None
        if callbacks is not None:
            for callback in callbacks:
                try:
                    callback()
                except Exception:
                    report("a callback of an object")

    def when_ready(self, entry: Entry, callback: Callable[[], None]) -> None:
        """Calls back, under the lock, when the value is there (at once if it is)."""
        with self._core.lock:
            if entry.value is None and self._core.pump.failure is not None:
                self.set_value(entry, self.error_value(self._core.pump.failure))
            if entry.value is not None:
                callback()
                return
            if entry.callbacks is None:
                entry.callbacks = []
            entry.callbacks.append(callback)
            if entry.owner is not None:
                self._core.value_requests.ask(entry)
        self._core.pump.kick()

    def fail_pending(self, error: Exception) -> None:
        """Gives every object that is still to come this error: nobody will make it any more. Under the lock."""
        self._fail_all(error, seen=False)

    def close(self) -> None:
        """The program leaves: whoever asks for a reference later must not wait for ever. Under the lock."""
        error = exceptions.RaySystemError(
            "This object was never made: the program called shutdown() before, and what it had started ended then."
        )
        self._fail_all(error, seen=True)
        for entry in self._entries.values():
            entry.let_go()
            entry.released = NOWHERE

    def _fail_all(self, error: Exception, seen: bool) -> None:
        value = self.error_value(error)
        for entry in list(self._entries.values()):
            if entry.value is None:
                entry.seen = entry.seen or seen
                self.set_value(entry, value)

    def when_all_ready(self, entries: Sequence[Entry], callback: Callable[[], None]) -> None:
        """Calls back when every value is there (at once if there are no entries). Under the lock."""
        if not entries:
            callback()
            return
        if self._core.pump.failure is not None:
            self.fail_pending(self._core.pump.failure)
        one = after(len(entries), callback)
        self._core.value_requests.ask_all(entries)
        for entry in entries:
            if entry.value is not None:
                one()
                continue
            if entry.callbacks is None:
                entry.callbacks = []
            entry.callbacks.append(one)
        self._core.pump.kick()

    def error_value(self, error: BaseException) -> Value:
        """An error as a value."""
        try:
            serialized = serialization.serialize(error)
            for entry in serialized.references:
                self.leak(entry)  # an error is passed on from value to value: nobody counts what is inside
            return Value(INLINE_ERROR, serialized.data)
        except Exception:
            plain = exceptions.RaySystemError(f"{type(error).__name__}: {error}")
            return Value(INLINE_ERROR, pickle.dumps(plain))

    def contain(self, entry: Entry, nested: Iterable[tuple[bytes, WorkerAddress]]) -> list[Entry]:
        """Takes the references inside a value that arrived for `entry`; returns theirs. Under the lock."""
        inner = [self._entry(object_id, owner) for object_id, owner in nested]
        self._core.borrowing.register()
        self.table.contain(entry, inner)
        return inner

    # ------------------------------------------------------------ put

    def put(self, value: Any) -> ObjectRef:
        """Makes an object of ours from a value.

        Raises:
            RaySystemError: the node agent is gone.
        """
        core = self._core
        core.check()
        plain = plain_value(value)
        if plain is not None:
            with core.lock:
                entry = self.own(core.ids.put())
                entry.value = plain
                return self.new_ref(entry)
        try:
            serialized = serialization.serialize(value)
        except TypeError as error:
            raise serialization.not_serializable(f"the put value {value!r}", error) from error
        return self.put_serialized(serialized)

    def put_serialized(self, serialized: serialization.Serialized) -> ObjectRef:
        """Makes an object of ours from a value that is serialized already."""
        core = self._core
        object_id = core.ids.put()
        stored = self._inline(serialized) or self._stored(serialized, core.store.put(object_id, serialized))
        with core.lock:
            entry = self.own(object_id)
            entry.value = stored
            if serialized.references:
                self.table.contain(entry, serialized.references)
            return self.new_ref(entry)

    def pack(
        self,
        object_id: bytes,
        serialized: serialization.Serialized,
        owner: WorkerAddress,
        *,
        again: bool = False,
        keeper: bytes = b"",
    ) -> Value:
        """A serialized value as it travels to its owner: inline when small, else written to the store of this node.
        `again`, `keeper`: see `Store.create`."""
        value = self._inline(serialized)
        if value is None:
            size, offset = self._core.store.create(object_id, serialized, owner, again=again, keeper=keeper)
            value = self._stored(serialized, size, offset)
        return value

    def _inline(self, serialized: serialization.Serialized) -> Value | None:
        buffers = serialized.buffers
        if (serialized.size_bytes if buffers else len(serialized.data)) > INLINE_BYTES:
            return None
        nested = self.nested_of(serialized.references) if serialized.references else ()
        return Value(INLINE, serialized.data, tuple(map(bytes, buffers)) if buffers else (), nested)

    def _stored(self, serialized: serialization.Serialized, size: int, offset: int = -1) -> Value:
        nested = self.nested_of(serialized.references) if serialized.references else ()
        return Value(STORED, b"", (), nested, (self._core.address.node_id,), size, offset)

    def supersede(self, entry: Entry | None, object_id: bytes, new: Value) -> None:
        """An object was made again although it had a value (it may have been lost too, without anybody knowing yet), or
        although nobody wants it (no entry). The new value counts, and the other copies go. Under the lock."""
        old = new if entry is None or entry.value is None else entry.value
        if entry is not None:
            entry.value = new
        kept = new.locations if entry is not None else ()
        useless = [node_id for node_id in old.locations if node_id not in kept]
        if useless:
            if new.offset < 0:
                self._core.store.outdate(object_id)
            self._core.agent.send(StoreFree([object_id], useless, False))

    def add_location(self, entry: Entry, node_id: bytes) -> None:
        """One more node has a copy. Under the lock."""
        value = entry.value
        if value is not None and value.kind >= STORED and node_id not in value.locations:
            entry.value = msgspec.structs.replace(value, locations=(*value.locations, node_id))

    # ------------------------------------------------------------ questions of borrowers

    def on_lost(self, connection: Connection, message: ObjectLost, correlation: int) -> None:
        entry = self._entries.get(message.object_id)
        if entry is not None and entry.value is not None and entry.value.kind == STORED:
            left = tuple(node for node in entry.value.locations if node not in message.locations)
            if left:
                entry.value = msgspec.structs.replace(entry.value, locations=left)
            else:
                refusal = self._core.lineage.rebuild(entry, connection.peer.worker_id)
                if refusal is not None:
                    entry.value = self.error_value(refusal)
        connection.reply(Ok(), correlation)

    def on_location(self, _connection: Connection, message: AddLocation, _correlation: int) -> None:
        entry = self._entries.get(message.object_id)
        if entry is not None:
            self.add_location(entry, message.node_id)

    def lends(self) -> bool:
        """Whether others hold references to what this process owns."""
        with self._core.lock:
            return any(entry.owner is None and entry.borrowers for entry in self._entries.values())

    def peer_lost(self, worker_id: bytes) -> None:
        """A process is gone: it borrows nothing any more, and what it owned is lost. Under the lock."""
        self.bury(self.table.borrower_lost(worker_id))
        for object_id in self._core.borrowing.borrowed_from(worker_id):
            entry = self._entries[object_id]
            entry.asked = True
            died = exceptions.OwnerDiedError(object_id.hex(), self.owner_address(entry), "")
            self.set_value(entry, self.error_value(died))  # a value that we happen to have goes with the rest

    # ------------------------------------------------------------ upkeep

    def drain(self) -> None:
        """Handles the references, views and generators that died since the last time. Under the lock."""
        released = self._core.released
        store = self._core.store
        dead: list[Entry] = []
        while released:
            item = released.popleft()
            if item.__class__ is Entry:
                item.holds -= 1
                if item.holds <= 0 and not item.borrowers:
                    dead += self._end(item)
            elif item.__class__ is Pin:
                store.release(item)
            else:
                try:
                    item.abandon()  # a stream
                except Exception:
                    report("abandoning a stream")
        if dead:
            self.bury(dead)


def after(count: int, callback: Callable[[], None]) -> Callable[[], None]:
    """What to call `count` times: the last time it calls `callback`."""
    left = count

    def one() -> None:
        nonlocal left
        left -= 1
        if not left:
            callback()

    return one
