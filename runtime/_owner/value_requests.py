"""Values of objects that others own: asking for them one by one, which waits until they are there, or for many at once,
which gives what is there now.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from runtime._ownership.borrowing import Borrowing
from runtime._ownership.records import Entry
from runtime._transport.connection import Connection
from runtime._wire.messages.base import ErrorKind, ErrorReply, WorkerAddress
from runtime._wire.messages.worker import GetObject, GetReady, ObjectValue, ReadyValues, Value

from .links import Links
from .objects import Objects
from .store import Store

AT_ONCE = 1000
"""So many are asked for in one message; the answers of an owner with more leave one after the other."""
READY_BYTES = 8 << 20
"""What one answer may carry."""


class ValueRequests:
    """Both sides of it, for one process. Everything here runs under the pump's lock."""

    def __init__(self, links: Links, objects: Objects, borrowing: Borrowing, store: Store) -> None:
        self._links = links
        self._objects = objects
        self._borrowing = borrowing
        self._store = store

    def ask(self, entry: Entry) -> None:
        """Asks the owner for the value, unless that was done or it is ours."""
        if entry.owner is None or entry.asked:
            return
        entry.asked = True

        def answered(reply: Any) -> None:
            if isinstance(reply, ObjectValue):
                self._take(entry, reply.value)
            else:
                self._borrowing.fail(entry, reply.kind)

        connection = self._links.peer(entry.owner)
        if connection is None:
            answered(ErrorReply(ErrorKind.UNAVAILABLE, "the owner is gone"))
        else:
            connection.call(GetObject(entry.object_id), answered)

    def ask_all(self, entries: Iterable[Entry]) -> None:
        """The same for all of them that have no value yet."""
        by_owner: dict[bytes, list[Entry]] = {}
        for entry in entries:
            if entry.value is None and entry.owner is not None and not entry.asked:
                by_owner.setdefault(entry.owner.worker_id, []).append(entry)
        for wanted in by_owner.values():
            if len(wanted) == 1:
                self.ask(wanted[0])
                continue
            wanted = list(dict.fromkeys(wanted))
            for start in range(0, len(wanted), AT_ONCE):
                self._ask_for_ready(wanted[start : start + AT_ONCE])

    def _ask_for_ready(self, entries: list[Entry]) -> None:
        owner: WorkerAddress | None = entries[0].owner
        assert owner is not None
        for entry in entries:
            entry.asked = True

        def answered(reply: Any) -> None:
            if isinstance(reply, ErrorReply):
                for entry in entries:
                    self._borrowing.fail(entry, reply.kind)
                return
            for entry, value in zip(entries, reply.values, strict=True):
                if value is not None:
                    self._take(entry, value)
                elif entry.value is None:
                    entry.asked = False
                    self.ask(entry)

        connection = self._links.peer(owner)
        if connection is None:
            answered(ErrorReply(ErrorKind.UNAVAILABLE, "the owner is gone"))
        else:
            connection.call(GetReady([entry.object_id for entry in entries]), answered)

    def _take(self, entry: Entry, value: Value) -> None:
        objects = self._objects
        if value.nested and objects.table.entries.get(entry.object_id) is entry:  # not dropped meanwhile
            objects.contain(entry, value.nested)
        objects.set_value(entry, value)

    # ------------------------------------------------------------ the owner's side

    def on_get(self, connection: Connection, message: GetObject, correlation: int) -> None:
        objects = self._objects
        entry = objects.table.entries.get(message.object_id)
        if entry is None or entry.owner is not None:
            connection.reply(
                ErrorReply(ErrorKind.LOST, f"object {message.object_id.hex()} is not owned here any more"),
                correlation,
            )
            return

        def answer() -> None:
            assert entry.value is not None
            entry.seen = True
            self._store.say_all()
            connection.reply(ObjectValue(entry.value), correlation)

        objects.when_ready(entry, answer)

    def on_get_ready(self, connection: Connection, message: GetReady, correlation: int) -> None:
        entries = self._objects.table.entries
        values: list[Value | None] = []
        room = READY_BYTES
        for object_id in message.object_ids:
            entry = entries.get(object_id)
            value = entry.value if entry is not None and entry.owner is None else None
            if value is not None:
                room -= value.inline_bytes
                if room < 0:
                    value = None
                elif entry is not None:
                    entry.seen = True
            values.append(value)
        self._store.say_all()
        connection.reply(ReadyValues(values), correlation)
