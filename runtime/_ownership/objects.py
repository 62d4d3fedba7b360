"""The objects that a process knows: their values, who waits for them, and what ends with the last hold."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from runtime._wire.messages.base import WorkerAddress
from runtime._wire.messages.worker import AddLocation, Value

from .failures import Freed
from .outbox import Outbox
from .records import INLINE, STORED, Entry, Link, after, release_all
from .references import ReferenceTable
from .released import NOWHERE, Released


class ObjectTable:
    """The object table of a process. See `Outbox` for what comes out.

    Args:
        address: of this process.
        released: what has died and waits for `drain_released`.
    """

    def __init__(self, address: WorkerAddress, released: Released, outbox: Outbox) -> None:
        self.table = ReferenceTable()
        self.errors = 0
        """How many objects got an error instead of a value so far: readers of several look again."""
        self.settled = 0
        """How many objects got a value or an error so far."""
        self.elsewhere = 0
        """How many of them got a value that lies in the store of another node."""
        self.metadata: dict[bytes, bytes] = {}
        """What came with items of streams, by object, while there are references. See `StreamItem.metadata`."""
        self.failure: Value | None = None
        """What objects get that nobody will make any more, once that is so for all of them."""
        self.enter: Callable[[bytes, WorkerAddress], Entry]
        """Makes the entry of a new borrowed object; set by `Borrowing`."""
        self.register: Callable[[], None]
        """Tells the owners of new borrowed objects; set by `Borrowing`."""
        self.give_back: Callable[[list[Entry]], None]
        """Takes borrowed entries that have ended; set by `Borrowing`."""
        self.forget_task: Callable[[Entry], None]
        """Takes a freed result of a task; set by `Lineage`."""
        self._due: deque[Callable[[], None]] = deque()  # callbacks of objects that got values
        self._calling = False
        self._entries = self.table.entries
        self._address = address
        self._released = released
        self._outbox = outbox

    # ------------------------------------------------------------ entries

    def own(self, object_id: bytes, holds: int = 0) -> Entry:
        """A new object of ours, without a value yet."""
        entry = self._entries[object_id] = Entry(object_id, None, True, holds, released=self._released)
        return entry

    def entry_of(self, object_id: bytes, owner: WorkerAddress) -> Entry:
        """The entry of an object that came from elsewhere, made if need be. `Borrowing.register` must follow."""
        entry = self._entries.get(object_id)
        if entry is not None:
            return entry
        if owner.worker_id == self._address.worker_id:
            entry = Entry(object_id, released=self._released)
            entry.value = self._outbox.error(Freed(object_id))
            return self.table.add(entry)
        return self.enter(object_id, owner)

    def nested_of(self, entries: Sequence[Entry]) -> tuple[tuple[bytes, WorkerAddress], ...]:
        """What a message says of the references inside a value."""
        return tuple((entry.object_id, entry.owner or self._address) for entry in entries)

    def has_borrowers(self) -> bool:
        """Whether others hold references to what this process owns."""
        return any(entry.owner is None and entry.borrowers for entry in self._entries.values())

    def describe(self, entry: Entry, metadata: bytes) -> None:
        """Keeps what came with an item."""
        known, object_id = self.metadata, entry.object_id
        known[object_id] = metadata

        def forget() -> None:
            known.pop(object_id, None)

        entry.on_free = forget

    # ------------------------------------------------------------ letting go

    def release(self, entry: Entry) -> None:
        """Takes one hold away."""
        if entry.release():
            dead = self._end(entry)
            if dead:
                self.bury(dead)

    def release_all(self, entries: Iterable[Entry]) -> None:
        """Takes one hold of each away."""
        dead: list[Entry] = []
        for entry in release_all(entries):
            dead += self._end(entry)
        if dead:
            self.bury(dead)

    def drain_released(self, let_go: Callable[[Any], None]) -> None:
        """Handles the references that died since the last time; `let_go` takes the other things that died."""
        released = self._released
        dead: list[Entry] = []
        while released:
            item = released.popleft()
            if item.__class__ is not Entry:
                let_go(item)
            elif item.release():
                dead += self._end(item)
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
        """Frees what we owned, gives back what we borrowed."""
        freed: list[bytes] = []
        locations: set[bytes] = set()
        borrowed: list[Entry] = []
        for entry in dead:
            on_free, entry.on_free = entry.on_free, None
            if on_free is not None:
                try:
                    on_free()
                except Exception:
                    self._outbox.callback_failed("a callback of a freed object")
            if entry.owner is None:
                if entry.callbacks is not None:  # nobody will make it any more
                    entry.seen = True
                    self.set_value(entry, self._outbox.error(Freed(entry.object_id)))
                value = entry.value
                if value is not None and value.kind & 1 and not entry.seen:
                    self._outbox.unhandled(value)
                if value is not None and value.kind >= STORED:
                    freed.append(entry.object_id)
                    locations.update(value.locations)
                if entry.task is not None:
                    self.forget_task(entry)
            else:
                borrowed.append(entry)
        if borrowed:
            self._outbox.forget([entry.object_id for entry in borrowed])
            self.give_back(borrowed)
        if freed:
            self._outbox.free(freed, list(locations))

    # ------------------------------------------------------------ values

    def set_value(self, entry: Entry, value: Value) -> None:
        """The object is there."""
        entry.value = value
        self.settled += 1  # after the value is there, as others look at both without the lock
        if value.kind:
            self.errors += value.kind & 1
            if value.kind >= STORED and self._address.node_id not in value.locations:
                self.elsewhere += 1
        callbacks, entry.callbacks = entry.callbacks, None
        if callbacks is not None:
            self._due.extend(callbacks)
            if not self._calling:
                self._call_back()

    def _call_back(self) -> None:
        """A callback may give other objects values. Their callbacks follow it and are not nested in it: an error passes
        through a chain of tasks of any length."""
        self._calling = True
        try:
            while self._due:
                try:
                    self._due.popleft()()
                except Exception:
                    self._outbox.callback_failed("a callback of an object")
        finally:
            self._calling = False

    def call_when_ready(self, entry: Entry, callback: Callable[[], None]) -> None:
        """Calls back when the value is there (at once if it is)."""
        if entry.value is None and self.failure is not None:
            self.set_value(entry, self.failure)
        if entry.value is not None:
            callback()
            return
        if entry.callbacks is None:
            entry.callbacks = []
        entry.callbacks.append(callback)
        if entry.owner is not None:
            self._outbox.request_values((entry,))

    def when_all_ready(self, entries: Sequence[Entry], callback: Callable[[], None]) -> None:
        """Calls back when every value is there (at once if there are no entries)."""
        if not entries:
            callback()
            return
        if self.failure is not None:
            self.fail_all(self.failure)
        one = after(len(entries), callback)
        self._outbox.request_values(entries)
        for entry in entries:
            if entry.value is not None:
                one()
                continue
            if entry.callbacks is None:
                entry.callbacks = []
            entry.callbacks.append(one)

    def fail_all(self, error: Value, seen: bool = False) -> None:
        """Gives this error to every object that is still to come. `seen`: nobody is to be warned of it."""
        for entry in list(self._entries.values()):
            if entry.value is None:
                entry.seen = entry.seen or seen
                self.set_value(entry, error)

    def end(self, error: Value) -> None:
        """The process leaves: objects that are still to come get `error`, and nothing waits any more."""
        self.fail_all(error, seen=True)
        for entry in self._entries.values():
            entry.detach()
            entry.released = NOWHERE

    def contain(self, entry: Entry, nested: Iterable[tuple[bytes, WorkerAddress]]) -> list[Entry]:
        """Takes the references inside a value that arrived for `entry`; returns theirs."""
        inner = [self.entry_of(object_id, owner) for object_id, owner in nested]
        self.register()
        self.table.contain(entry, inner)
        return inner

    def supersede(self, entry: Entry | None, object_id: bytes, new: Value) -> None:
        """An object was made again although it had a value (it may have been lost too, without anybody knowing yet), or
        although nobody wants it (no entry). The new value counts, and the other copies go."""
        old = new if entry is None or entry.value is None else entry.value
        if entry is not None:
            entry.value = new
        kept = new.locations if entry is not None else ()
        useless = [node_id for node_id in old.locations if node_id not in kept]
        if useless:
            self._outbox.drop_copies(object_id, useless, outdated=new.offset < 0)

    def add_location(self, entry: Entry, node_id: bytes) -> None:
        """One more node has a copy, of a value that another one may have replaced meanwhile."""
        value = entry.value
        if value is None:
            return
        if value.kind < STORED:
            self._outbox.drop_copies(entry.object_id, [node_id], outdated=False)
        elif node_id not in value.locations:
            entry.value = msgspec.structs.replace(value, locations=(*value.locations, node_id))

    def on_location(self, _link: Link, message: AddLocation, _correlation: int) -> None:
        """A borrower's node has a copy."""
        entry = self._entries.get(message.object_id)
        if entry is not None:
            self.add_location(entry, message.node_id)
