"""Borrowing: what this process holds of others, and what others hold of it.

References come and go in crowds, as a list of them does. So their owners hear of them in crowds too: of new ones when
the value that they came in is rebuilt, of old ones when all that has died by now is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from runtime._wire.messages.base import ErrorKind, ErrorReply, WorkerAddress
from runtime._wire.messages.worker import Borrowed, BorrowRefs, ReturnRefs, Value

from .failures import Lost, OwnerDied
from .objects import ObjectTable
from .outbox import Outbox
from .records import Entry, Link, after
from .released import Released


class Borrowing:
    """Both sides of it, for one process."""

    def __init__(self, objects: ObjectTable, released: Released, outbox: Outbox) -> None:
        self.unanswered = 0
        """How many owners were told of new borrows and have not confirmed them yet."""
        self.new: dict[bytes, Entry] = {}
        """Those whose owners do not know yet, nor were they asked."""
        self._objects = objects
        self._table = objects.table
        self._released = released
        self._outbox = outbox
        self._from: dict[bytes, dict[bytes, None]] = {}  # by the owner's process, in order
        objects.enter = self.begin
        objects.register = self.register
        objects.give_back = self._give_back

    # ------------------------------------------------------------ what we hold

    def _enter(self, object_id: bytes, owner: WorkerAddress) -> Entry:
        """A new entry for an object of another process."""
        entry = self._table.add(Entry(object_id, owner, False, released=self._released))
        self._from.setdefault(owner.worker_id, {})[object_id] = None
        return entry

    def begin(self, object_id: bytes, owner: WorkerAddress) -> Entry:
        """The same, for one whose owner is to hear of it: `register` must follow soon."""
        entry = self.new[object_id] = self._enter(object_id, owner)
        return entry

    def adopted(self, object_id: bytes, owner: WorkerAddress, value: Value) -> Entry:
        """The entry of what we put for another process, which knows that we borrow it."""
        entry = self._enter(object_id, owner)
        entry.registered = True
        entry.value = value
        if value.nested:
            self._objects.contain(entry, value.nested)
        return entry

    def borrowed_entry(self, object_id: bytes, owner: WorkerAddress) -> Entry:
        """The entry of an object of another process; registers the borrow when it is new."""
        entry = self._objects.entry_of(object_id, owner)
        self.register()
        return entry

    def register(self) -> None:
        """Tells the owners of all that is new."""
        if not self.new:
            return
        new, self.new = self.new, {}
        by_owner: dict[bytes, list[Entry]] = {}
        for entry in new.values():
            assert entry.owner is not None
            by_owner.setdefault(entry.owner.worker_id, []).append(entry)
        for entries in by_owner.values():
            self._tell(entries)

    def _tell(self, entries: list[Entry]) -> None:
        self.unanswered += 1

        def answered(reply: Any) -> None:
            self.unanswered -= 1
            gone = isinstance(reply, ErrorReply)
            unknown = () if gone else set(reply.unknown)
            for entry in entries:
                if gone:
                    self.fail(entry, reply.kind)
                elif entry.object_id in unknown:
                    self.fail(entry, ErrorKind.LOST)
                self._registered(entry)

        owner = entries[0].owner
        assert owner is not None
        link = self._outbox.peer(owner)
        if link is None:
            answered(ErrorReply(ErrorKind.UNAVAILABLE, "the owner is gone"))
        else:
            link.call(BorrowRefs([entry.object_id for entry in entries]), answered)

    @staticmethod
    def _registered(entry: Entry) -> None:
        entry.registered = True
        waiting, entry.on_registered = entry.on_registered, None
        for callback in waiting or ():
            callback()

    def fail(self, entry: Entry, kind: str) -> None:
        """The owner is gone, or does not know it (any more)."""
        if entry.value is None:
            failure = OwnerDied if kind == ErrorKind.UNAVAILABLE else Lost
            self._objects.set_value(entry, self._outbox.error(failure(entry.object_id, entry.owner)))

    def when_registered(self, entries: Iterable[Entry], callback: Callable[[], None]) -> None:
        """Calls back once every borrow is known to its owner."""
        waiting = [entry for entry in entries if not entry.registered]
        if not waiting:
            callback()
            return
        one = after(len(waiting), callback)
        for entry in waiting:
            if entry.on_registered is None:
                entry.on_registered = []
            entry.on_registered.append(one)

    def _give_back(self, entries: Iterable[Entry]) -> None:
        """Nothing here holds these any more: tells the owners."""
        known: dict[bytes, tuple[WorkerAddress, list[bytes]]] = {}
        never_told: list[Entry] = []
        for entry in entries:
            assert entry.owner is not None
            worker_id = entry.owner.worker_id
            borrowed = self._from[worker_id]
            del borrowed[entry.object_id]
            if not borrowed:
                del self._from[worker_id]
            if self.new.pop(entry.object_id, None) is None:
                known.setdefault(worker_id, (entry.owner, []))[1].append(entry.object_id)
            else:
                never_told.append(entry)
        for owner, object_ids in known.values():
            link = self._outbox.peer(owner, connect=False)
            if link is not None:
                link.send(ReturnRefs(object_ids))
        for entry in never_told:  # nor will its owner be: nobody has to wait for that any more
            self._registered(entry)

    def borrowed_from(self, worker_id: bytes) -> list[bytes]:
        """What we hold of a process."""
        return list(self._from.get(worker_id, ()))

    # ------------------------------------------------------------ what others hold

    def on_borrow(self, link: Link, message: BorrowRefs, correlation: int) -> None:
        """A process has references to objects of ours."""
        add, borrower = self._table.add_borrower, link.peer.worker_id
        unknown = [object_id for object_id in message.object_ids if not add(object_id, borrower)]
        link.reply(Borrowed(unknown), correlation)

    def on_return(self, link: Link, message: ReturnRefs, _correlation: int) -> None:
        """A process has no references to these objects of ours any more."""
        remove, borrower = self._table.remove_borrower, link.peer.worker_id
        dead: list[Entry] = []
        for object_id in message.object_ids:
            dead += remove(object_id, borrower)
        self._objects.bury(dead)

    def peer_lost(self, worker_id: bytes) -> None:
        """A process is gone: it borrows nothing any more, and what it owned is lost."""
        self._objects.bury(self._table.borrower_lost(worker_id))
        for object_id in self.borrowed_from(worker_id):
            entry = self._table.entries.get(object_id)
            if entry is None:
                continue  # an error of one before it has let go of it
            entry.asked = True
            # A value that we happen to have goes with the rest.
            self._objects.set_value(entry, self._outbox.error(OwnerDied(object_id, entry.owner)))
