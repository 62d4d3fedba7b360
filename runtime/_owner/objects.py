"""The objects of a process for its program: references to them, and putting new ones. What becomes of them decides
`runtime._ownership`, whose table this is, under the pump's lock.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from runtime import exceptions
from runtime._core.ids import TaskIds
from runtime._ownership.objects import ObjectTable
from runtime._ownership.outbox import Outbox
from runtime._ownership.records import INLINE, INLINE_ERROR, STORED, Entry
from runtime._ownership.released import Released
from runtime._transport.failures import report
from runtime._wire import serialization
from runtime._wire.messages.base import WorkerAddress
from runtime._wire.messages.worker import Value
from runtime.object_ref import ObjectRef

from .errors import decode_address, encode_address
from .links import Links
from .store import Pin, Store

INLINE_BYTES = 100 * 1024
"""Values up to this size travel in messages and live with their owner; larger ones go to the object store."""


def plain_value(value: Any) -> Value | None:
    """The value of something plain and small, which most things are; None: see `Objects.pack`."""
    if type(value) in serialization.PLAIN:
        data = serialization.dump_plain(value)
        if len(data) <= INLINE_BYTES:
            return Value(INLINE, data)
    return None


class Objects(ObjectTable):
    """The object table of a process, and its users' references. What is inherited needs the lock."""

    def __init__(
        self, links: Links, released: Released, task_ids: TaskIds, store: Store, outbox: Outbox
    ) -> None:
        super().__init__(links.address, released, outbox)
        self._links = links
        self._ids = task_ids
        self._store = store
        self._own_address = encode_address(links.address)
        self._has_new_borrows = False

    # ------------------------------------------------------------ references

    def hold_known(self, binary: bytes) -> Entry | None:
        """The entry of an object, with one more hold, if it is known here. From any thread."""
        with self._links.lock:
            entry = self._entries.get(binary)
            if entry is not None:
                entry.hold()
            return entry

    def new_ref(self, entry: Entry) -> ObjectRef:
        """A user's reference to an entry. Under the lock."""
        entry.hold()
        return self.held_ref(entry)

    def held_ref(self, entry: Entry) -> ObjectRef:
        """The same, for a hold that is counted already."""
        ref = ObjectRef.__new__(ObjectRef)
        ref._binary = entry.object_id
        ref._entry = entry
        return ref

    def borrow(self, binary: bytes, owner: bytes) -> ObjectRef:
        """A reference that came from elsewhere. If it is new here, `register_borrows` tells the owner."""
        with self._links.lock:
            entry = self._entries.get(binary)
            if entry is None:
                entry = self.entry_of(binary, decode_address(owner))
                self._has_new_borrows = True
            return self.new_ref(entry)

    def register_borrows(self) -> None:
        """Tells the owners of all that `borrow` has brought. From any thread."""
        if self._has_new_borrows:
            with self._links.lock:
                self._has_new_borrows = False
                self.register()

    def leak(self, entry: Entry) -> None:
        """Keeps an object for ever: a copy of its reference left the engine's sight."""
        with self._links.lock:
            entry.hold()

    def owner_address(self, entry: Entry) -> bytes:
        """The encoded address of the owner."""
        return self._own_address if entry.owner is None else encode_address(entry.owner)

    def call_site(self, object_id: bytes) -> str:
        """See `TaskIds.site_of`."""
        return self._ids.site_of(object_id)

    def encoded(self, address: WorkerAddress) -> bytes:
        """An address as users see it: opaque bytes."""
        return encode_address(address)

    def lends(self) -> bool:
        """Whether others hold references to what this process owns. From any thread."""
        with self._links.lock:
            return self.has_borrowers()

    def drain(self) -> None:
        """Handles the references, views and generators that died since the last time. Under the lock."""
        self.drain_released(self._let_go)

    def _let_go(self, item: Any) -> None:
        if item.__class__ is Pin:
            self._store.release(item)
            return
        try:
            item.abandon()  # a stream
        except Exception:
            report("abandoning a stream")

    # ------------------------------------------------------------ values

    def when_ready(self, entry: Entry, callback: Callable[[], None]) -> None:
        """Calls back, under the lock, when the value is there (at once if it is). From any thread."""
        with self._links.lock:
            self.note_failure()
            self.call_when_ready(entry, callback)
        self._links.pump.kick()

    def note_failure(self) -> None:
        """Nothing will come any more if the pump has failed. Under the lock."""
        if self.failure is None and self._links.pump.failure is not None:
            self.failure = self.error_value(self._links.pump.failure)

    def fail_pending(self, error: Exception) -> None:
        """Gives every object that is still to come this error: nobody will make it any more. Under the lock."""
        self.failure = self.error_value(error)
        self.fail_all(self.failure)

    def close(self) -> None:
        """The program leaves: readers of a reference must not wait for ever. Under the lock."""
        error = exceptions.RaySystemError(
            "This object was never made: the program called shutdown() before, and what it had started ended then."
        )
        self.end(self.error_value(error))

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

    # ------------------------------------------------------------ put

    def put(self, value: Any) -> ObjectRef:
        """Makes an object of ours from a value.

        Raises:
            RaySystemError: the node agent is gone.
        """
        self._links.check()
        plain = plain_value(value)
        if plain is not None:
            with self._links.lock:
                entry = self.own(self._ids.put(), 1)
                entry.value = plain
                return self.held_ref(entry)
        try:
            serialized = serialization.serialize(value)
        except TypeError as error:
            raise serialization.not_serializable(f"the put value {value!r}", error) from error
        return self.put_serialized(serialized)

    def put_serialized(self, serialized: serialization.Serialized) -> ObjectRef:
        """Makes an object of ours from a value that is serialized already."""
        object_id = self._ids.put()
        stored = self._inline(serialized) or self._stored(serialized, self._store.put(object_id, serialized))
        with self._links.lock:
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
            size, offset = self._store.create(object_id, serialized, owner, again=again, keeper=keeper)
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
        return Value(STORED, b"", (), nested, (self._links.address.node_id,), size, offset)
