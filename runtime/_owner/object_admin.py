"""What programs ask of owners besides values: to own what somebody else has put, to free at once, and where objects
are. Handlers run under the pump's lock; the rest waits and must not hold it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from runtime import exceptions
from runtime._core import ids
from runtime._ownership.borrowing import Borrowing
from runtime._ownership.lineage import Lineage
from runtime._ownership.records import STORED, Entry
from runtime._transport.connection import Connection
from runtime._wire import serialization
from runtime._wire.messages.base import ErrorKind, ErrorReply, Ok, WorkerAddress
from runtime._wire.messages.node import StoreFree
from runtime._wire.messages.worker import AdoptObject, ForceFree, GetLocations, Location, Locations
from runtime.object_ref import ObjectRef

from .links import Links
from .objects import Objects
from .store import Store

ADOPT_TIMEOUT_S = 60.0
AT_ONCE = 10_000
"""Locations asked for in one message."""


class ObjectAdmin:
    """Both sides of them, for one process."""

    def __init__(
        self,
        links: Links,
        task_ids: ids.TaskIds,
        objects: Objects,
        borrowing: Borrowing,
        store: Store,
        lineage: Lineage,
    ) -> None:
        self._links = links
        self._ids = task_ids
        self._objects = objects
        self._borrowing = borrowing
        self._store = store
        self._lineage = lineage

    # ------------------------------------------------------------ owning what somebody else put

    def put_for(self, value: Any, owner: WorkerAddress) -> ObjectRef:
        """Stores a value that another process will own: it goes with that process, not with this one.

        Raises:
            OwnerDiedError: that process is gone.
            RaySystemError: it has another object with the same id.
        """
        links, objects = self._links, self._objects
        links.check()
        if owner.worker_id == links.address.worker_id:
            return objects.put(value)
        serialized = serialization.serialize(value)
        object_id = self._ids.put()
        stored = objects.pack(object_id, serialized, owner)
        with links.lock:
            connection = links.peer(owner)
        reply: Any = None
        if connection is not None:
            # The references inside stay held by `value` until the owner has them.
            reply = links.pump.call(connection, AdoptObject(object_id, stored), ADOPT_TIMEOUT_S)
        if reply is None or isinstance(reply, ErrorReply):
            with links.lock:
                self._store.forget([object_id])
                links.agent.send(StoreFree([object_id], []))
            if reply is not None and reply.kind == ErrorKind.CLASH:
                raise exceptions.RaySystemError(reply.message)
            raise exceptions.OwnerDiedError(object_id.hex(), objects.encoded(owner), "")
        with links.lock:
            return objects.new_ref(self._borrowing.adopted(object_id, owner, stored))

    def on_adopt(self, connection: Connection, message: AdoptObject, correlation: int) -> None:
        objects = self._objects
        if message.object_id in objects.table.entries:
            text = f"This process has an object with the id {message.object_id.hex()} already."
            connection.reply(ErrorReply(ErrorKind.CLASH, text), correlation)
            return
        entry = objects.own(message.object_id)
        entry.value = message.value
        objects.table.add_borrower(message.object_id, connection.peer.worker_id)
        inner = objects.contain(entry, message.value.nested) if message.value.nested else []
        self._borrowing.when_registered(inner, lambda: connection.reply(Ok(), correlation))

    # ------------------------------------------------------------ freeing by hand

    def free(self, refs: Iterable[ObjectRef]) -> None:
        """Frees values although there are references: whoever reads one from now on gets `ObjectFreedError`."""
        with self._links.lock:
            for ref in refs:
                entry = ref._entry
                self._objects.when_ready(entry, partial(self._free, entry))
        self._links.pump.kick()

    def on_free(self, _connection: Connection, message: ForceFree, _correlation: int) -> None:
        entry = self._objects.table.entries.get(message.object_id)
        if entry is not None and entry.owner is None:
            self._objects.when_ready(entry, lambda: self._free(entry))

    def _free(self, entry: Entry) -> None:
        links, objects = self._links, self._objects
        value = entry.value
        if value is None or value.kind & 1:
            return
        objects.bury(objects.table.empty(entry))
        if entry.owner is not None:
            self._store.forget([entry.object_id])
            connection = links.peer(entry.owner)
            if connection is not None:
                connection.send(ForceFree(entry.object_id))
        else:
            if value.kind == STORED:
                self._store.empty(entry.object_id, list(value.locations))
            if entry.task is not None:
                self._lineage.forget(entry)
        freed = exceptions.ObjectFreedError(entry.object_id.hex(), objects.owner_address(entry), "")
        entry.value = objects.error_value(freed)

    # ------------------------------------------------------------ where objects are

    def locations(self, refs: Sequence[ObjectRef], timeout_s: float | None) -> dict[ObjectRef, Location]:
        """What the owners say, each asked at once for up to `AT_ONCE`; without the objects of those that are gone.

        Raises:
            GetTimeoutError: an owner did not answer in time.
        """
        links = self._links
        found: dict[ObjectRef, Location] = {}
        by_owner: dict[bytes, list[ObjectRef]] = {}
        left = 0

        def answered(asked: list[ObjectRef], reply: Any) -> None:
            nonlocal left
            left -= 1
            if isinstance(reply, Locations):
                found.update(zip(asked, reply.found, strict=True))

        with links.lock:
            for ref in dict.fromkeys(refs):
                owner = ref._entry.owner
                if owner is None:
                    found[ref] = self._location(ref._entry)
                else:
                    by_owner.setdefault(owner.worker_id, []).append(ref)
            for theirs in by_owner.values():
                owner = theirs[0]._entry.owner
                assert owner is not None
                connection = links.peer(owner)
                for start in range(0, len(theirs) if connection is not None else 0, AT_ONCE):
                    assert connection is not None
                    asked = theirs[start : start + AT_ONCE]
                    left += 1
                    connection.call(GetLocations([ref.binary() for ref in asked]), partial(answered, asked))
        links.pump.kick()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        if not links.wait(lambda: not left, None if deadline is None else deadline - time.monotonic()):
            raise exceptions.GetTimeoutError(
                f"Owners did not say in time where their objects are: {left} requests are not answered."
            )
        return {ref: found[ref] for ref in dict.fromkeys(refs) if ref in found}

    def known_locations(self, refs: Sequence[ObjectRef]) -> dict[ObjectRef, Location]:
        """What this process knows by itself."""
        with self._links.lock:
            return {ref: self._location(ref._entry) for ref in refs}

    def on_locations(self, connection: Connection, message: GetLocations, correlation: int) -> None:
        entries = self._objects.table.entries
        found = [
            self._location(entry) if (entry := entries.get(object_id)) is not None else Location([], -1)
            for object_id in message.object_ids
        ]
        connection.reply(Locations(found), correlation)

    def _location(self, entry: Entry) -> Location:
        value = entry.value
        if value is None:
            return Location([], -1)
        if value.kind >= STORED:
            return Location(list(value.locations), value.size_bytes)
        here = entry.owner is None and ids.is_put(entry.object_id)
        return Location([self._links.address.node_id] if here else [], value.inline_bytes)
