"""The object store of one node as its agent serves it: create, seal, pin, free, and waiting for room or for
a writer.

Fast cases answer at once; those that must wait return an awaitable. Errors are `CallError`s, ready for the
wire.

When memory is short, copies that are elsewhere too are evicted, then primary copies that nobody uses go to disk
(`Spiller`), and what finds no room even so, because everything is in use, is written to a file from the start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence

import msgspec

from runtime._core.store_index import IdClash, StoredObject, StoreIndex
from runtime._transport.bulk import Piece
from runtime._transport.channel import CallError
from runtime._wire.messages.base import ErrorKind
from runtime._wire.messages.node import StorePinned, StoreSpace

from .arena import Arena
from .settling import Ask, Settling
from .spiller import Spiller, SpillSettings
from .trimmer import Trimmer

Holder = Hashable
MIB = 1 << 20


async def nobody(_holder: Holder, _give_back: bool) -> None:
    """There are no processes to ask."""


log = logging.getLogger(__name__)


class _WaitingCreate(msgspec.Struct, eq=False):
    object_id: bytes
    size_bytes: int
    holder: Holder
    owner_worker: bytes
    owner_node: bytes
    primary: bool
    tag: str
    done: asyncio.Future[StoreSpace]


class ObjectStore:
    """Objects of one node. Lives on the agent's loop.

    Args:
        capacity_bytes: size of the shared memory.
        spilling: where objects go when it is full, and from when on.
        on_change: called when an object is made or goes (the node may have become idle or busy).
        ask: asks a process what it has placed.
        on_report: called with a line about spilling for the drivers.
    """

    def __init__(
        self,
        capacity_bytes: int,
        spilling: SpillSettings,
        on_change: Callable[[], None] = lambda: None,
        ask: Ask = nobody,
        on_report: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self.arena = Arena(capacity_bytes)
        self.index = StoreIndex(self.arena.capacity_bytes, self._file_dropped)
        self.settling = Settling(self.index.allotments, ask)
        self._spiller = Spiller(self.index, self.arena, spilling, self._retry_creates, on_report)
        self._trimmer = Trimmer(self.index.allocator, self.arena)
        self._on_change = on_change
        self.restored_bytes = 0
        self.restored_count = 0
        self._creates: list[_WaitingCreate] = []
        self._readers: dict[bytes, list[asyncio.Future[None]]] = {}

    def close(self) -> None:
        """Ends every wait, the mapping, and what is on disk."""
        for waiting in self._creates:
            if not waiting.done.done():
                waiting.done.set_exception(CallError(ErrorKind.UNAVAILABLE, "the node is stopping"))
        self._creates.clear()
        self.settling.close()
        self._wake_readers(list(self._readers))
        self._spiller.close()
        self._trimmer.close()
        self.arena.close()

    def create(
        self,
        object_id: bytes,
        size_bytes: int,
        holder: Holder,
        *,
        owner_worker: bytes = b"",
        owner_node: bytes = b"",
        primary: bool = True,
        tag: str = "",
        timeout_s: float = 30.0,
    ) -> StoreSpace | Awaitable[StoreSpace]:
        """Takes space, in memory or in a file, for an object that `holder` will fill and seal.

        Raises (or the awaitable does):
            CallError: EXISTS when it is sealed here; CLASH when another owner's object has the id; OUT_OF_DISK when
                neither memory nor disk has room; FULL when there is none within `timeout_s`.
        """
        done: asyncio.Future[StoreSpace] = asyncio.get_running_loop().create_future()
        waiting = _WaitingCreate(object_id, size_bytes, holder, owner_worker, owner_node, primary, tag, done)
        self._try_create(waiting)
        if done.done():
            self._spiller.spill_above_threshold()
            return done.result()
        self._creates.append(waiting)
        return self._wait_for_room(waiting, timeout_s)

    def seal(self, object_id: bytes, holder: Holder) -> None:
        """The writer has filled it; readers that wait get it. The writer keeps its pin."""
        self.index.seal(object_id, holder)
        self._wake_readers([object_id])
        if self._creates:
            self._retry_creates()

    def allot(self, holder: Holder, size_bytes: int, count: int) -> Sequence[tuple[int, int]]:
        """Reserves ranges in which `holder` may place `count` objects of this size; none when memory is short."""
        return () if self._creates else self.index.allotments.allot(holder, size_bytes, count)

    def give_back(self, holder: Holder, ranges: Iterable[tuple[int, int]]) -> None:
        """The holder needs these parts of what it was allotted no more."""
        self.index.allotments.give_back(holder, ranges)
        self._retry_creates()

    def add(
        self,
        holder: Holder,
        objects: Iterable[tuple[bytes, int, int]],
        keeper: Holder | None,
        *,
        owner_worker: bytes,
        owner_node: bytes,
        tag: str = "",
    ) -> None:
        """Enters objects, (id, offset, size), that `holder` has placed; `keeper` pins them."""
        for object_id, offset, size_bytes in objects:
            try:
                self.index.place(
                    object_id,
                    offset,
                    size_bytes,
                    holder,
                    keeper,
                    owner_worker=owner_worker,
                    owner_node=owner_node,
                    tag=tag,
                )
            except IdClash as clash:
                log.error("%s", clash)  # readers get the error; the writer does not wait for a reply
        if self._creates:
            self._retry_creates()
        self._spiller.spill_above_threshold()
        self._on_change()

    def abort(self, object_id: bytes, holder: Holder) -> None:
        """The writer gives up; nothing remains."""
        if self.index.abort(object_id, holder):
            self._wake_readers([object_id])
            self._retry_creates()
            self._on_change()

    def pin(self, object_id: bytes, holder: Holder) -> StorePinned | None:
        """Pins the local copy; None when there is none that can be read.

        Raises:
            CallError: CLASH, objects of two owners have this id.
        """
        entry = self.lend(object_id, holder)
        if entry is None:
            return None
        if entry.offset is None:
            self.restored_bytes += entry.size_bytes
            self.restored_count += 1
            return StorePinned(0, entry.size_bytes, entry.file)
        return StorePinned(entry.offset, entry.size_bytes)

    def unpin(self, object_ids: Iterable[bytes], holder: Holder) -> None:
        """Takes one pin of `holder` from each."""
        released = False
        for object_id in object_ids:
            released |= self.index.unpin(object_id, holder)
        if released:
            self._retry_creates()
            self._spiller.spill_above_threshold()

    def free(self, object_ids: Iterable[bytes], unpinning: Holder | None = None) -> None:
        """Nobody refers to these objects any more; `unpinning` reads none of them."""
        if self.index.free(object_ids, unpinning):
            self._retry_creates()
        self._on_change()

    def drop_holder(self, holder: Holder) -> None:
        """A process is gone: what it wrote unsealed, its pins and its waits go."""
        for waiting in [w for w in self._creates if w.holder is holder]:
            self._creates.remove(waiting)
            waiting.done.cancel()
        unsealed = self.index.unsealed_of(holder)
        if self.index.drop_holder(holder):
            self._retry_creates()
        self._wake_readers(unsealed)
        self._on_change()

    def drop_owners(self, worker_ids: Iterable[bytes]) -> None:
        """Frees what dead processes owned."""
        self._dropped(self.index.drop_owners(worker_ids))

    def drop_node(self, node_id: bytes) -> None:
        """Frees what the processes of a dead node owned."""
        self._dropped(self.index.drop_node(node_id))

    def drop_where(self, condition: Callable[[StoredObject], bool]) -> None:
        """Frees what finished jobs left."""
        self._dropped(self.index.drop_where(condition))

    def _dropped(self, released: bool) -> None:
        if released:
            self._retry_creates()
        self._on_change()

    def is_being_written(self, object_id: bytes) -> bool:
        """Whether the object is here but not sealed yet."""
        return object_id in self.index and self.index.sealed(object_id) is None

    async def wait_written(self, object_id: bytes) -> None:
        """Returns when the present writer has sealed or given up. The caller sets the deadline."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        readers = self._readers.setdefault(object_id, [])
        readers.append(future)
        try:
            await future
        finally:
            if future in readers:
                readers.remove(future)
            if not readers and self._readers.get(object_id) is readers:
                del self._readers[object_id]

    def lend(self, object_id: bytes, holder: Holder) -> StoredObject | None:
        """Pins the local copy for a holder that wants pieces of it; None when there is none that can be read.

        Raises:
            CallError: CLASH, objects of two owners have this id.
        """
        try:
            return self.index.pin(object_id, holder)
        except IdClash as clash:
            raise CallError(ErrorKind.CLASH, str(clash)) from None

    async def piece(self, entry: StoredObject, offset: int, length: int) -> Piece:
        """Part of an object that is lent.

        Raises:
            CallError: LOST when its file cannot be read.
        """
        size = entry.size_bytes
        length = max(0, min(length, size - offset))
        if entry.offset is not None:
            return Piece(size, length, entry.offset + offset, self.arena.fd)
        try:
            data = await self._spiller.read(entry.file, offset, length)
        except OSError as error:
            raise CallError(ErrorKind.LOST, f"its file cannot be read: {error}") from None
        return Piece(size, len(data), data=data)

    def window(self, space: StoreSpace, offset: int, length: int) -> memoryview | None:
        """The memory of part of an object that was created here, to be released; None when it goes to a file."""
        return None if space.path else self.arena.view(space.offset + offset, length)

    async def write(self, space: StoreSpace, offset: int, data: bytes | memoryview) -> None:
        """Fills part of an object that was created here.

        Raises:
            CallError: LOST when its file is gone.
        """
        if not space.path:
            self.arena.write(space.offset + offset, data)
            return
        try:
            await self._spiller.write_at(space.path, offset, data)
        except OSError as error:
            raise CallError(
                ErrorKind.LOST, f"its copy was removed while it was being written: {error}"
            ) from None

    async def _wait_for_room(self, waiting: _WaitingCreate, timeout_s: float) -> StoreSpace:
        try:
            async with asyncio.timeout(timeout_s):
                if self.index.allotments and waiting.size_bytes <= self.arena.capacity_bytes:
                    await self.settling.reclaim()  # returns what is free of them before anything has to go
                await self._spiller.wait_for_room(waiting.done, waiting.size_bytes, self._wanted_bytes)
                if not waiting.done.done():
                    return await self._create_in_file(waiting)
                return waiting.done.result()
        except TimeoutError:
            raise CallError(
                ErrorKind.FULL, self._full(waiting.size_bytes, f"within {timeout_s:g} s")
            ) from None
        except asyncio.CancelledError:
            if waiting.done.cancelled():  # by drop_holder: the process that asked is gone
                raise CallError(ErrorKind.UNAVAILABLE, "the requesting process has ended") from None
            raise
        finally:
            if waiting in self._creates:
                self._creates.remove(waiting)

    async def _create_in_file(self, waiting: _WaitingCreate) -> StoreSpace:
        """Everything in memory is in use: the object goes to disk at once."""
        try:
            path = await self._spiller.reserve(waiting.object_id.hex(), waiting.size_bytes)
        except OSError as error:
            text = self._full(waiting.size_bytes, "now")
            raise CallError(ErrorKind.OUT_OF_DISK, f"{text} Its disk is full: {error}.") from None
        if waiting.done.done() or waiting.object_id in self.index:
            self._file_dropped(path)
            return await waiting.done  # it got memory after all, or somebody else makes it
        self.index.create_in_file(
            waiting.object_id,
            waiting.size_bytes,
            waiting.holder,
            path,
            owner_worker=waiting.owner_worker,
            owner_node=waiting.owner_node,
            primary=waiting.primary,
            tag=waiting.tag,
        )
        self._on_change()
        return StoreSpace(0, path)

    def _try_create(self, waiting: _WaitingCreate) -> None:
        """Completes the wait if possible now."""
        object_id = waiting.object_id
        if object_id in self.index:
            if self.index.owner_of(object_id) != waiting.owner_worker:
                waiting.done.set_exception(CallError(ErrorKind.CLASH, str(IdClash(object_id))))
            elif self.index.sealed(object_id) is not None:
                waiting.done.set_exception(
                    CallError(ErrorKind.EXISTS, f"object {object_id.hex()} is sealed on this node")
                )
            return
        entry = self.index.create(
            object_id,
            waiting.size_bytes,
            waiting.holder,
            owner_worker=waiting.owner_worker,
            owner_node=waiting.owner_node,
            primary=waiting.primary,
            tag=waiting.tag,
        )
        if entry is not None:
            assert entry.offset is not None
            waiting.done.set_result(StoreSpace(entry.offset))
            self._trimmer.wake()
            self._on_change()

    def _retry_creates(self) -> None:
        """Memory may have come back."""
        self._trimmer.wake()
        for waiting in list(self._creates):
            if not waiting.done.done():
                self._try_create(waiting)
            if waiting.done.done() and waiting in self._creates:
                self._creates.remove(waiting)

    def _wanted_bytes(self) -> int:
        return sum(waiting.size_bytes for waiting in self._creates if not waiting.done.done())

    def _file_dropped(self, path: str) -> None:
        self._spiller.delete(path)

    def _wake_readers(self, object_ids: Iterable[bytes]) -> None:
        for object_id in object_ids:
            for future in self._readers.pop(object_id, ()):
                if not future.done():
                    future.set_result(None)

    def _full(self, size_bytes: int, when: str) -> str:
        index = self.index
        holders = "; ".join(
            f"objects owned by {owner.hex()[:12] or 'other nodes'}: {size / MIB:.1f} MiB in {count}"
            for owner, size, count in index.biggest_holders()
        )
        return (
            f"no room for {size_bytes / MIB:.1f} MiB in the object store {when}: "
            f"{index.used_bytes / MIB:.1f} of {self.arena.capacity_bytes / MIB:.1f} MiB are used and "
            f"{index.spilled_bytes / MIB:.1f} MiB were spilled ({holders or 'by nothing'}). Drop references that "
            "are not needed, or start the node with more object_store_memory."
        )
