"""This process's view of its node's object store: the shared mapping, and the pins that keep objects readable.

The agent decides where objects lie and when they go; this process writes into space it was given and reads in place.
A pin lives while the process refers to the object, or while any array that was read in place still does.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from runtime import exceptions
from runtime._ownership.released import Released
from runtime._transport.connection import Connection
from runtime._wire import serialization
from runtime._wire.messages.base import ErrorKind, ErrorReply, Ok, WorkerAddress
from runtime._wire.messages.node import (
    StoreAbort,
    StoreCreate,
    StoreFree,
    StorePin,
    StorePinned,
    StoreSeal,
    StoreSettle,
    StoreUnpin,
)

from . import context, mapped_files
from .links import Links
from .store_writer import StoreWriter
from .unpickling import unpickle

LINGER_S = 0.1
"""Pins of nothing stay this long: the next task often wants the same object."""
ANSWER_S = 10.0
"""How much later than its time limit the agent's answer may come."""
UNUSED_SHARE = 16
"""Unused pins may hold at most 1/UNUSED_SHARE of the store."""
AHEAD_SHARE = 4
"""Objects on their way here that nobody waits for may take 1/AHEAD_SHARE of the store."""
PRIVATE_FROM_BYTES = 64 * 1024
"""What must be writable is copied up to here, and mapped privately from here on."""


class Pin:
    """An object that the node keeps for this process. `count`: reasons to keep it; see `Store.release`. `path`: the
    file that holds it, when it is not in shared memory. `freed`: nobody refers to the object any more."""

    __slots__ = ("count", "freed", "object_id", "offset", "path", "released", "size_bytes", "unused_since")

    def __init__(
        self, object_id: bytes, offset: int, size_bytes: int, released: Released, path: str = ""
    ) -> None:
        self.object_id = object_id
        self.offset = offset
        self.size_bytes = size_bytes
        self.count = 0
        self.freed = False
        self.unused_since = 0.0
        self.released = released
        self.path = path


class Store:
    """All methods but `fetch`, `put` and `create` run under the pump's lock.

    Args:
        drain: handles what has died; its space is what the next object wants.
        path: the file with the node's shared memory.

    Attributes:
        ahead_limit_bytes: how much may be on its way here that nobody waits for.
    """

    def __init__(
        self,
        links: Links,
        released: Released,
        drain: Callable[[], None],
        path: str,
        capacity_bytes: int,
    ) -> None:
        self._links = links
        self._released = released
        self._drain = drain
        self._path = path
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._map = mmap.mmap(fd, capacity_bytes)
        finally:
            os.close(fd)
        self.writer = StoreWriter(links, capacity_bytes)
        self.ahead_limit_bytes = capacity_bytes // AHEAD_SHARE
        self._unused_limit = capacity_bytes // UNUSED_SHARE
        self._unused_bytes = 0
        self._pins: dict[bytes, Pin] = {}
        self._unused: dict[bytes, Pin] = {}
        self._views: dict[int, tuple[Any, Pin]] = {}

    def put(self, object_id: bytes, serialized: serialization.Serialized) -> int:
        """Writes a new object that this process owns. Returns its size in bytes.

        Raises: see `create`.
        """
        size, offsets = serialization.layout(serialized.data, serialized.buffers)
        offset = self._place(serialized, size, offsets)
        if offset is None:
            self._create(object_id, serialized, self._links.address, size, offsets)
        else:
            with self._links.lock:
                self.writer.say_later(object_id, offset, size, context.tag())
                self._made(object_id, offset, size)
            if self._released.resting:
                self._released.wake()  # or nobody would say it for long
        return size

    def create(
        self,
        object_id: bytes,
        serialized: serialization.Serialized,
        owner: WorkerAddress,
        *,
        again: bool = False,
        keeper: bytes = b"",
    ) -> tuple[int, int]:
        """Writes an object and seals it. Returns its size in bytes, and where it is pinned for `keeper`, if not -1.

        Args:
            again: it may have been made before, and be here.
            keeper: a process of this node that wants to pin it.

        Raises:
            ObjectStoreFullError: nothing could be freed in time; the message says who holds what.
            OutOfDiskError: neither memory nor disk has room.
        """
        size, offsets = serialization.layout(serialized.data, serialized.buffers)
        offset = None if again else self._place(serialized, size, offsets)
        if offset is None:
            self._create(object_id, serialized, owner, size, offsets)
            return size, -1
        with self._links.lock:
            self.writer.say(object_id, offset, size, owner, keeper, context.tag())
            if not keeper:
                self._made(object_id, offset, size)
        return size, offset if keeper else -1

    def _place(self, serialized: serialization.Serialized, size: int, offsets: list[int]) -> int | None:
        self._drain()  # what was dropped a moment ago is the space we want
        offset = self.writer.place(size)
        if offset is not None:
            try:
                self._write(offset, serialized, size, offsets)
            except BaseException:
                self.writer.abandon(offset)
                raise
        return offset

    def _write(
        self, offset: int, serialized: serialization.Serialized, size: int, offsets: list[int]
    ) -> None:
        with memoryview(self._map) as whole, whole[offset : offset + size] as target:
            serialization.write_block(target, serialized.data, serialized.buffers, offsets)

    def _create(
        self,
        object_id: bytes,
        serialized: serialization.Serialized,
        owner: WorkerAddress,
        size: int,
        offsets: list[int],
    ) -> None:
        reply = self._links.call_agent(StoreCreate(object_id, size, owner, tag=context.tag()), 60.0)
        if isinstance(reply, ErrorReply):
            if reply.kind == ErrorKind.EXISTS:
                return  # ours: an earlier or later attempt of its task has made it too
            if reply.kind == ErrorKind.CLASH:
                raise exceptions.RaySystemError(reply.message)
            if reply.kind == ErrorKind.OUT_OF_DISK:
                raise exceptions.OutOfDiskError(reply.message)
            raise exceptions.ObjectStoreFullError(reply.message)
        try:
            if reply.path:
                mapped = memoryview(mapped_files.map(reply.path, size)).cast("B")
                serialization.write_block(mapped, serialized.data, serialized.buffers, offsets)
                del mapped
            else:
                self._write(reply.offset, serialized, size, offsets)
        except BaseException:
            self._links.agent.send(StoreAbort(object_id))
            raise
        with self._links.lock:
            self._links.agent.send(StoreSeal(object_id))
            self._made(object_id, reply.offset, size, reply.path)

    def _made(self, object_id: bytes, offset: int, size: int, path: str = "") -> None:
        """The node keeps it for us, for a moment if nothing here uses it."""
        pin = Pin(object_id, offset, size, self._released, path)
        self._pins[object_id] = pin
        self._rest(pin)

    def take_over(self, object_id: bytes, offset: int, size: int) -> None:
        """Whoever made it had it pinned for us."""
        self.outdate(object_id)
        self._made(object_id, offset, size)

    def say_all(self) -> None:
        """Others are about to hear of our objects."""
        self.writer.say_all()

    def on_settle(self, connection: Connection, message: StoreSettle, correlation: int) -> None:
        """The agent needs to know of our objects, or memory is short."""
        self.writer.say_all()
        if message.give_back:
            self.writer.give_back()
        connection.reply(Ok(), correlation)

    def fetch(self, object_id: bytes, locations: Sequence[bytes], timeout_s: float | None) -> Pin:
        """Makes an object readable here and takes one count of its pin.

        Raises:
            ObjectLostError: no node has it any more.
            GetTimeoutError: it did not arrive within `timeout_s` (None: no limit).
        """
        with self._links.lock:
            pin = self._pins.get(object_id)
            if pin is not None:
                self._keep(pin)
                return pin
        limit = None if timeout_s is None else max(timeout_s, 0.001)
        request = StorePin(object_id, list(locations), limit)
        # Without a limit it ends with the object's arrival or loss, or with the agent.
        reply = self._links.call_agent(request, None if limit is None else limit + ANSWER_S)
        if isinstance(reply, ErrorReply):
            if reply.kind == ErrorKind.TIMEOUT:
                raise exceptions.GetTimeoutError(
                    f"Object {object_id.hex()} did not arrive within {limit:g} s."
                )
            if reply.kind == ErrorKind.OUT_OF_DISK:
                raise exceptions.OutOfDiskError(reply.message)
            if reply.kind == ErrorKind.FULL:
                raise exceptions.ObjectStoreFullError(reply.message)
            if reply.kind == ErrorKind.CLASH:
                raise exceptions.RaySystemError(reply.message)
            raise exceptions.ObjectLostError(object_id.hex(), b"", "")
        assert isinstance(reply, StorePinned)
        with self._links.lock:
            known = self._pins.get(object_id)
            if known is not None:  # another thread fetched it meanwhile
                self._links.agent.send(StoreUnpin([object_id]))
                self._keep(known)
                return known
            pin = Pin(object_id, reply.offset, reply.size_bytes, self._released, reply.path)
            self._pins[object_id] = pin
            pin.count = 1
            return pin

    def prefetch(
        self, object_id: bytes, locations: Sequence[bytes], callback: Callable[[ErrorReply | None], None]
    ) -> None:
        """Has an object brought to this node, however long that takes. It stays a moment for whoever reads it then.
        Calls back with what went wrong, if anything."""
        if object_id in self._pins:
            callback(None)
            return

        def answered(reply: Any) -> None:
            if isinstance(reply, ErrorReply):
                callback(reply)
                return
            if object_id in self._pins:
                self._links.agent.send(StoreUnpin([object_id]))
            else:
                pin = Pin(object_id, reply.offset, reply.size_bytes, self._released, reply.path)
                self._pins[object_id] = pin
                self._rest(pin)
            callback(None)

        self._links.agent.call(StorePin(object_id, list(locations)), answered)

    def read(self, pin: Pin) -> tuple[Any, list[Any]]:
        """Rebuilds the value in place. Returns it with the references made on the way."""
        view = self.view(pin)
        data, buffers = serialization.read_block(view)
        return unpickle(data, buffers, functools.partial(self._writable, pin, view))

    def _writable(self, pin: Pin, view: memoryview, buffer: Any) -> Any:
        """The bytes of one buffer of an object where they may be changed without changing the object."""
        if buffer.nbytes < PRIVATE_FROM_BYTES:
            return bytearray(buffer)
        offset = _address(buffer) - _address(view)
        try:
            if pin.path:
                return mapped_files.map_private(pin.path, offset, buffer.nbytes, buffer)
            return mapped_files.map_private(self._path, pin.offset + offset, buffer.nbytes, buffer)
        except OSError:  # the file was freed a moment ago, or there are too many mappings
            return bytearray(buffer)

    def _keep(self, pin: Pin) -> None:
        if not pin.count and self._unused.pop(pin.object_id, None) is not None:
            self._unused_bytes -= pin.size_bytes
        pin.count += 1

    def _rest(self, pin: Pin) -> None:
        """Nothing uses it now. What is kept for a moment may be no large part of the store: others wait for room."""
        pin.unused_since = time.monotonic()
        self._unused[pin.object_id] = pin
        self._unused_bytes += pin.size_bytes
        if self._unused_bytes > self._unused_limit:
            self.forget(list(self._unused))

    def view(self, pin: Pin) -> memoryview:
        """A read-only view that holds one count of the pin until its last user dies.

        Raises:
            ObjectLostError: it lay in a file, and was freed a moment ago.
        """
        if pin.path:
            try:
                block = mapped_files.map(pin.path, pin.size_bytes)
            except OSError:
                raise exceptions.ObjectLostError(pin.object_id.hex(), b"", "") from None
        else:
            block = (ctypes.c_ubyte * pin.size_bytes).from_buffer(self._map, pin.offset)
        views, released = self._views, pin.released

        def died(ref: weakref.ref[Any]) -> None:
            views.pop(id(ref), None)
            released.add(pin)

        ref = weakref.ref(block, died)
        with self._links.lock:
            self._keep(pin)
            views[id(ref)] = (ref, pin)
        return memoryview(block).cast("B").toreadonly()

    def release(self, pin: Pin) -> None:
        """Takes one count away; at zero the pin lingers a moment."""
        pin.count -= 1
        if pin.count:
            return
        if self._pins.get(pin.object_id) is pin:
            self._rest(pin)
            if pin.freed:
                self.forget([pin.object_id])
        else:  # the object was made anew meanwhile, with a pin of its own
            self._links.agent.send(StoreUnpin([pin.object_id]))

    def free(self, object_ids: list[bytes], locations: list[bytes]) -> None:
        """Nobody refers to these objects of ours any more."""
        unpinned = []
        read = []
        for object_id in object_ids:
            pin = self._unused.pop(object_id, None)
            if pin is not None:
                self._unused_bytes -= pin.size_bytes
                del self._pins[object_id]
                if not self.writer.forget(object_id):
                    unpinned.append(object_id)
                continue
            pin = self._pins.get(object_id)
            if pin is None:
                unpinned.append(object_id)
            else:
                pin.freed = True
                read.append(object_id)
        if read:
            self.writer.say_all()
            self._links.agent.send(StoreFree(read, locations))
        if unpinned:
            self._links.agent.send(StoreFree(unpinned, locations, unpinned=True))

    def empty(self, object_id: bytes, locations: list[bytes]) -> None:
        """The value of an object of ours goes, although there are references to it."""
        self.forget([object_id])
        self.writer.say_all()
        self._links.agent.send(StoreFree([object_id], locations))

    def outdate(self, object_id: bytes) -> None:
        """The object was made again: what is pinned here is an earlier copy of it."""
        if object_id in self._unused:
            self.forget([object_id])
        else:
            self._pins.pop(object_id, None)

    def forget(self, object_ids: list[bytes]) -> None:
        """Give these pins back at once, unless a value read in place still needs them."""
        dropped = []
        for object_id in object_ids:
            pin = self._unused.pop(object_id, None)
            if pin is not None:
                self._unused_bytes -= pin.size_bytes
                del self._pins[object_id]
                dropped.append(object_id)
        if dropped:
            self.writer.say_all()
            self._links.agent.send(StoreUnpin(dropped))

    @property
    def lingers(self) -> bool:
        """Whether there are pins to give back soon."""
        return bool(self._unused) or self.writer.lingers

    def tick(self, now: float) -> None:
        """Gives pins back that nothing has used for a while, and space."""
        self.writer.tick(now)
        if self._unused:
            self.forget([p.object_id for p in self._unused.values() if now - p.unused_since >= LINGER_S])

    def close(self) -> None:
        """Unmaps, unless a value read in place is still alive: then the mapping goes with it."""
        try:
            self._map.close()
        except BufferError:
            pass


def _address(buffer: Any) -> int:
    import numpy as np  # who wants writable buffers has it

    address: int = np.frombuffer(buffer, np.uint8).__array_interface__["data"][0]
    return address
