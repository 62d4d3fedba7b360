"""Borrowing: what this process holds of others, and what others hold of it.

References come and go in crowds, as a list of them does. So their owners are told in crowds too: of new ones when the
value that they came in is rebuilt, of old ones when all that has died by now is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from runtime import exceptions
from runtime._transport.connection import Connection
from runtime._wire.messages.base import ErrorKind, ErrorReply, WorkerAddress
from runtime._wire.messages.worker import Borrowed, BorrowRefs, ReturnRefs

from .objects import Entry, after

if TYPE_CHECKING:
    from runtime._process.core_worker import Core


_SETTLE_S = 5.0
"""An owner answers from its background thread, at once; one that is stopped or cut off is not waited for longer."""


class Borrowing:
    """Both sides of it, for one process. All methods but `register` and `settle` run under the pump's lock."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._new: dict[bytes, Entry] = {}  # their owners do not know yet, nor were they asked
        self._from: dict[bytes, dict[bytes, None]] = {}  # by the owner's process, in order
        self._unanswered = 0  # owners that were told and have not said yet that they know

    # ------------------------------------------------------------ what we hold

    def enter(self, object_id: bytes, owner: WorkerAddress) -> Entry:
        """A new entry for somebody else's object."""
        entry = self._core.objects.table.add(Entry(object_id, owner, False, released=self._core.released))
        self._from.setdefault(owner.worker_id, {})[object_id] = None
        return entry

    def begin(self, object_id: bytes, owner: WorkerAddress) -> Entry:
        """The same, for one whose owner is to hear of it: `register` tells, and somebody must call that soon."""
        entry = self._new[object_id] = self.enter(object_id, owner)
        return entry

    def register(self) -> None:
        """Tells the owners of all that is new. From any thread."""
        if self._new:
            with self._core.lock:
                new, self._new = self._new, {}
                by_owner: dict[bytes, list[Entry]] = {}
                for entry in new.values():
                    assert entry.owner is not None
                    by_owner.setdefault(entry.owner.worker_id, []).append(entry)
                for entries in by_owner.values():
                    self._tell(entries)

    def settle(self) -> None:
        """Waits until the owners know what this process holds of theirs, so that whoever sent it may go. From any
        thread."""
        self.register()
        self._core.pump.wait(lambda: not self._unanswered, _SETTLE_S)

    def _tell(self, entries: list[Entry]) -> None:
        self._unanswered += 1

        def answered(reply: Any) -> None:
            self._unanswered -= 1
            gone = isinstance(reply, ErrorReply)
            unknown = () if gone else set(reply.unknown)
            for entry in entries:
                if gone:
                    self.fail(entry, reply.kind)
                elif entry.object_id in unknown:
                    self.fail(entry, ErrorKind.LOST)
                entry.registered = True
                waiting, entry.on_registered = entry.on_registered, None
                for callback in waiting or ():
                    callback()

        connection = self._core.peer(entries[0].owner)
        if connection is None:
            answered(ErrorReply(ErrorKind.UNAVAILABLE, "the owner is gone"))
        else:
            connection.call(BorrowRefs([entry.object_id for entry in entries]), answered)

    def fail(self, entry: Entry, kind: str) -> None:
        """The owner is gone, or does not know it (any more)."""
        if entry.value is not None:
            return
        error = exceptions.OwnerDiedError if kind == ErrorKind.UNAVAILABLE else exceptions.ObjectLostError
        objects = self._core.objects
        owner = objects.owner_address(entry)
        objects.set_value(entry, objects.error_value(error(entry.object_id.hex(), owner, "")))

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

    def give_back(self, entries: Iterable[Entry]) -> None:
        """Nothing here holds these any more: tells the owners."""
        known: dict[bytes, tuple[WorkerAddress, list[bytes]]] = {}
        for entry in entries:
            assert entry.owner is not None
            worker_id = entry.owner.worker_id
            borrowed = self._from[worker_id]
            del borrowed[entry.object_id]
            if not borrowed:
                del self._from[worker_id]
            if self._new.pop(entry.object_id, None) is None:  # else the owner has never heard of it
                known.setdefault(worker_id, (entry.owner, []))[1].append(entry.object_id)
        for owner, object_ids in known.values():
            connection = self._core.peer(owner, connect=False)
            if connection is not None:
                connection.send(ReturnRefs(object_ids))

    def borrowed_from(self, worker_id: bytes) -> list[bytes]:
        """What we hold of a process."""
        return list(self._from.get(worker_id, ()))

    # ------------------------------------------------------------ what others hold

    def on_borrow(self, connection: Connection, message: BorrowRefs, correlation: int) -> None:
        add, borrower = self._core.objects.table.add_borrower, connection.peer.worker_id
        unknown = [object_id for object_id in message.object_ids if not add(object_id, borrower)]
        connection.reply(Borrowed(unknown), correlation)

    def on_return(self, connection: Connection, message: ReturnRefs, _correlation: int) -> None:
        remove, borrower = self._core.objects.table.remove_borrower, connection.peer.worker_id
        dead: list[Entry] = []
        for object_id in message.object_ids:
            dead += remove(object_id, borrower)
        self._core.objects.bury(dead)
