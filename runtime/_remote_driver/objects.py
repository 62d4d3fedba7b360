"""The objects that a remote driver has heard of, their values, and what it tells its driver process of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, cast

import msgspec

from runtime import exceptions
from runtime._owner.effects import Effects
from runtime._owner.links import Links
from runtime._owner.objects import INLINE_BYTES, Objects
from runtime._owner.store import Store
from runtime._owner.unpickling import unpickle
from runtime._ownership.records import STORED, Entry
from runtime._wire import serialization
from runtime._wire.messages.base import WorkerAddress
from runtime._wire.messages.worker import Value
from runtime.object_ref import ObjectRef

from . import messages
from .requests import Requests

AHEAD = 4
"""How many pieces of a large value are asked for at a time."""


class RemoteObjects(Objects):
    """The object table: everything in it is owned elsewhere, by the driver process or by those that it borrows from."""

    def __init__(self, core: Requests, effects: Effects) -> None:
        # No store: what goes to one is uploaded.
        super().__init__(cast(Links, core), core.released, core.ids, cast(Store, None), effects)
        self._remote = core
        self._told: dict[bytes, int] = {}  # how often the driver process has counted a reference of ours
        self._promised: set[bytes] = set()  # made by `own`, without a value yet
        self.enter = self._enter
        self.register = lambda: None  # the driver process registers
        self.give_back = self._give_back

    def track(self, object_id: bytes) -> Entry:
        """A new object that the driver process owns and counts for us. Under the lock."""
        self._told[object_id] = 1
        return self._enter(object_id, self._remote.address)

    def _enter(self, object_id: bytes, owner: WorkerAddress) -> Entry:
        return self.table.add(Entry(object_id, owner, True, released=self._remote.released))

    def tell_of(self, object_id: bytes, owner: WorkerAddress) -> None:
        """The driver process has counted one more reference of ours. Under the lock."""
        if object_id not in self._entries:
            self._enter(object_id, owner)
        self._told[object_id] = self._told.get(object_id, 0) + 1

    def _give_back(self, entries: list[Entry]) -> None:
        """Nothing here refers to these any more."""
        gone = [entry.object_id for entry in entries if entry.object_id in self._told]
        if gone:
            self._remote.send(messages.Release(gone, [self._told.pop(object_id) for object_id in gone]))

    def own(self, object_id: bytes, holds: int = 0) -> Entry:
        """An object that this program gives its value (`set_value`). Under the lock."""
        self._remote.send(messages.Own(object_id))
        self._promised.add(object_id)
        entry = self.track(object_id)
        for _ in range(holds):
            entry.hold()
        return entry

    def set_value(self, entry: Entry, value: Value) -> None:
        """See `Objects.set_value`."""
        super().set_value(entry, value)
        if entry.object_id in self._promised:
            self._promised.discard(entry.object_id)
            if self._remote.link.failure is None:
                nested = [inner for inner, _ in value.nested]
                is_error = bool(value.kind & 1)
                self._remote.send(messages.Put(entry.object_id, value.data, value.buffers, nested, is_error))
        self._remote.tell()

    def put(self, value: Any) -> ObjectRef:
        """See `Objects.put`."""
        self._remote.check()
        try:
            serialized = serialization.serialize(value)
        except TypeError as error:
            raise serialization.not_serializable(f"the put value {value!r}", error) from error
        return self.put_serialized(serialized)

    def put_serialized(self, serialized: serialization.Serialized) -> ObjectRef:
        """See `Objects.put_serialized`."""
        remote = self._remote
        object_id = remote.ids.put()
        nested = [entry.object_id for entry in serialized.references]
        if serialized.size_bytes <= INLINE_BYTES:
            buffers = tuple(map(bytes, serialized.buffers))
            value = Value(0, serialized.data, buffers, self.nested_of(serialized.references))
            remote.send(messages.Put(object_id, serialized.data, buffers, nested), waits=True)
        else:
            try:
                size = self._upload(object_id, serialized, nested)
            except BaseException:
                if remote.link.failure is None:
                    remote.send(messages.DropUpload(object_id))
                raise
            value = Value(STORED, size_bytes=size, locations=(remote.address.node_id,))
        with remote.lock:
            entry = self.track(object_id)
            entry.value = value
            if serialized.references:
                self.table.contain(entry, serialized.references)
            return self.new_ref(entry)

    def _upload(self, object_id: bytes, serialized: serialization.Serialized, nested: list[bytes]) -> int:
        parts = [
            memoryview(serialized.data),
            *(memoryview(buffer).cast("B") for buffer in serialized.buffers),
        ]
        total, at = sum(part.nbytes for part in parts), 0
        for part in parts:
            for start in range(0, part.nbytes, messages.CHUNK_BYTES):
                piece = part[start : start + messages.CHUNK_BYTES]
                # msgspec takes a view as bytes, and copies once.
                self._remote.send(messages.Upload(object_id, total, at, piece), waits=True)  # type: ignore[arg-type]
                at += piece.nbytes
        sizes = [part.nbytes for part in parts]
        stored: int = self._remote.request(
            lambda number: messages.PutUploaded(number, object_id, sizes[0], sizes[1:], nested), int
        )
        return stored


class Interest:
    """Asks for values: the `Asking` of a remote driver. Under the lock."""

    def __init__(self, core: Requests, objects: RemoteObjects) -> None:
        self._core = core
        self._objects = objects

    def ask(self, entry: Entry) -> None:
        """Wants the value of an object, once."""
        if not entry.asked and entry.value is None:
            entry.asked = True
            self._core.send(messages.Watch([entry.object_id]))

    def ask_all(self, entries: Iterable[Entry]) -> None:
        """Wants those of all of them that have none."""
        wanted = []
        for entry in entries:
            if entry.value is None and not entry.asked:
                entry.asked = True
                wanted.append(entry.object_id)
        if wanted:
            self._core.send(messages.Watch(wanted))

    def take(self, message: messages.Ready) -> None:
        """A value has come."""
        objects = self._objects
        value = message.value
        for object_id, owner in value.nested:
            objects.tell_of(object_id, owner)
        if value.kind >= STORED:
            value = msgspec.structs.replace(value, locations=(self._core.address.node_id,), offset=-1)
        entry = objects.table.entries.get(message.object_id)
        if entry is not None and entry.value is None:
            if value.nested:
                objects.contain(entry, value.nested)
            objects.set_value(entry, value)
            return
        for object_id, _ in value.nested:  # it was let go of meanwhile
            inner = objects.table.entries.get(object_id)
            if inner is not None:
                inner.hold()
                objects.release(inner)


class NoBorrowing:
    """The `Borrowing` of a remote driver: the driver process borrows for it."""

    def register(self) -> None:
        """Nothing is to be registered."""


class RemotePin:
    """A value in an object store that is to be fetched."""

    __slots__ = ("block",)

    def __init__(self, block: memoryview) -> None:
        self.block = block

    def abandon(self) -> None:
        """Nothing is pinned here."""


class RemoteStore:
    """Brings values here from the object stores of the cluster."""

    def __init__(self, core: Requests, objects: RemoteObjects) -> None:
        self._core = core
        self._objects = objects

    def fetch(self, object_id: bytes, _locations: Sequence[bytes], timeout_s: float | None) -> RemotePin:
        """See `Store.fetch`: brings the whole value, piece by piece."""
        core = self._core
        entry = self._objects.table.entries.get(object_id)
        value = entry.value if entry is not None else None
        if entry is None or value is None:
            raise exceptions.ObjectLostError(object_id.hex(), b"", "")
        size, chunk = value.size_bytes, messages.CHUNK_BYTES
        block = serialization.aligned_room(size)
        pending: list[tuple[int, Future[Any]]] = []
        try:
            for start in (*range(0, size, chunk), None):
                if start is not None:
                    length = min(chunk, size - start)
                    pending.append((start, self._piece(object_id, start, length, start + length >= size)))
                while pending and (start is None or len(pending) >= AHEAD):
                    at, future = pending.pop(0)
                    piece = msgspec.msgpack.decode(future.result(timeout_s), type=memoryview)
                    block[at : at + len(piece)] = piece
        except TimeoutError:
            raise exceptions.GetTimeoutError(
                f"Object {object_id.hex()} did not arrive within {timeout_s} s."
            ) from None
        except exceptions.ObjectLostError as error:
            with (
                core.lock
            ):  # the driver process has tried what there is to try: this is what `get` raises from now on
                entry.value = self._objects.error_value(error)
            raise
        return RemotePin(block)

    def _piece(self, object_id: bytes, offset: int, size: int, is_last: bool) -> Future[Any]:
        return self._core.ask_driver(lambda number: messages.Fetch(number, object_id, offset, size, is_last))

    def read(self, pin: RemotePin) -> tuple[Any, list[Any]]:
        """Rebuilds a value that was fetched."""
        data, buffers = serialization.read_block(pin.block.toreadonly())
        return unpickle(data, buffers)

    def prefetch(
        self, _object_id: bytes, _locations: Sequence[bytes], callback: Callable[[Any], None]
    ) -> None:
        """Values come when they are read."""
        callback(None)

    def forget(self, object_ids: list[bytes]) -> None:
        """Nothing is pinned here."""

    def say_all(self) -> None:
        """Nothing is placed from here."""
