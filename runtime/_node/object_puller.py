"""Brings copies of objects from other nodes here, in chunks, each object once however many ask for it."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Iterable

import msgspec

from runtime._core.transfers import CHUNK_BYTES, BytesBudget, Pull, PullState, ReadChunk
from runtime._store.service import ObjectStore
from runtime._transport.bulk import Answer, Incoming
from runtime._transport.channel import CallError
from runtime._wire.messages.base import ErrorKind
from runtime._wire.messages.node import ReadDone, ReadObject, StoreSpace

from .object_server import decode_owner
from .object_sources import ObjectSources

log = logging.getLogger(__name__)
IN_FLIGHT_BYTES = 64 << 20
_ROOM_TIMEOUT_S = 600.0
_HANDOVER_S = 0.1


class _Read(msgspec.Struct, eq=False):
    """One chunk on its way, to its place in the store's memory or, while that is not known or a file, to `data`."""

    chunk: ReadChunk
    window: memoryview | None
    incoming: Incoming | None = None
    data: bytes = b""

    def let_go(self) -> None:
        if self.incoming is not None:
            self.incoming.let_go()
        if self.window is not None:
            self.window.release()


class _Active(msgspec.Struct, eq=False):
    pull: Pull
    task: asyncio.Task[None]
    waiters: int = 0


class _Budget(msgspec.Struct):
    """A `BytesBudget` that can be waited for, first come first served."""

    bytes: BytesBudget
    waiting: deque[tuple[int, asyncio.Future[None]]] = msgspec.field(default_factory=deque)

    async def take(self, size_bytes: int) -> None:
        if not self.waiting and self.bytes.take(size_bytes):
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append((size_bytes, future))
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.give_back(size_bytes)
            raise

    def give_back(self, size_bytes: int) -> None:
        self.bytes.give_back(size_bytes)
        while self.waiting:
            wanted, future = self.waiting[0]
            if not future.done():
                if not self.bytes.take(wanted):
                    return
                future.set_result(None)
            self.waiting.popleft()


class ObjectPuller:
    """All pulls of one node. The bytes in flight are bounded over all of them."""

    def __init__(self, node_id: bytes, store: ObjectStore, sources: ObjectSources) -> None:
        self._node_id = node_id
        self._store = store
        self._sources = sources
        self._active: dict[bytes, _Active] = {}
        self._rng = random.Random()
        self._budget = _Budget(BytesBudget(IN_FLIGHT_BYTES))

    async def pull(self, object_id: bytes, locations: Iterable[bytes]) -> None:
        """Returns when a sealed copy is here. The caller sets the deadline.

        Raises:
            CallError: LOST when no location has it; FULL or OUT_OF_DISK when there is no room for it.
        """
        sources = [node_id for node_id in locations if node_id != self._node_id]
        self._rng.shuffle(sources)  # every copy bears its share
        active = self._active.get(object_id)
        if active is None:
            pull = Pull(sources)
            task = asyncio.get_running_loop().create_task(self._run(object_id, pull))
            active = self._active[object_id] = _Active(pull, task)
            task.add_done_callback(lambda _: self._active.pop(object_id, None))
        else:
            active.pull.add_sources(sources)
        active.waiters += 1
        try:
            await asyncio.shield(active.task)
        finally:
            active.waiters -= 1
            if not active.waiters and not active.task.done():
                active.task.cancel()

    async def close(self) -> None:
        """Ends all pulls; returns when none writes any more."""
        tasks = [active.task for active in self._active.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, object_id: bytes, pull: Pull) -> None:
        loop = asyncio.get_running_loop()
        reads: dict[asyncio.Task[Answer], _Read] = {}
        used: set[bytes] = set()
        space: StoreSpace | None = None
        try:
            while pull.state not in (PullState.DONE, PullState.LOST):
                for chunk in pull.next_reads():
                    used.add(chunk.source)
                    window = None if space is None else self._store.window(space, chunk.offset, chunk.length)
                    read = _Read(chunk, window)
                    reads[loop.create_task(self._read(object_id, read))] = read
                finished, _ = await asyncio.wait(reads, return_when=asyncio.FIRST_COMPLETED)
                for task in finished:
                    read = reads.pop(task)
                    error = task.exception()
                    if isinstance(error, CallError):
                        log.info("node %s gave no chunk: %s", read.chunk.source.hex()[:12], error)
                        pull.source_failed(read.chunk.source)
                        continue
                    answer = task.result()
                    if not pull.received(read.chunk, answer.total_bytes):
                        continue
                    if space is None:
                        space = await self._make_room(object_id, answer)
                    if read.window is None:
                        await self._store.write(space, read.chunk.offset, read.data)
                _give_up(reads, but=pull.source)
        except BaseException:
            _give_up(reads)
            self._store.abort(object_id, self)
            raise
        finally:
            for node_id in used:
                receiver = self._sources.open_receiver(node_id)
                if receiver is not None:
                    receiver.send(ReadDone(object_id))
        if pull.state is PullState.LOST:
            self._store.abort(object_id, self)
            raise CallError(ErrorKind.LOST, f"no node has a copy of object {object_id.hex()} any more")
        self._store.seal(object_id, self)
        # The waiters pin when their turn comes; until then the copy must not be evicted.
        loop.call_later(_HANDOVER_S, self._store.unpin, [object_id], self)

    async def _make_room(self, object_id: bytes, answer: Answer) -> StoreSpace:
        owner_worker, owner_node = decode_owner(answer.about)
        space = self._store.create(
            object_id,
            answer.total_bytes,
            self,
            owner_worker=owner_worker,
            owner_node=owner_node,
            primary=False,
            timeout_s=_ROOM_TIMEOUT_S,
        )
        return space if isinstance(space, StoreSpace) else await space

    async def _read(self, object_id: bytes, read: _Read) -> Answer:
        """Reads one chunk and returns what its source says of the object."""
        chunk = read.chunk
        await self._budget.take(CHUNK_BYTES)
        try:
            receiver = await self._sources.receiver(chunk.source)
            message = ReadObject(object_id, chunk.offset, chunk.length)
            read.incoming = receiver.request(message, chunk.length, read.window)
            answer = await read.incoming.done  # the receiver gives up on a source that stays silent
            if read.window is None and read.incoming.data is not None:
                read.data = bytes(read.incoming.data)
            return answer
        finally:
            read.let_go()
            self._budget.give_back(CHUNK_BYTES)


def _give_up(reads: dict[asyncio.Task[Answer], _Read], but: bytes = b"") -> None:
    """Ends what other nodes than `but` were asked for. When this returns, nothing of it is written here any more."""
    for task, read in list(reads.items()):
        if read.chunk.source != but:
            del reads[task]
            read.let_go()
            task.cancel()
