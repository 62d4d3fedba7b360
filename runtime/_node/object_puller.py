"""Brings copies of objects from other nodes here, in chunks, each object once however many ask for it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from runtime._core.transfers import CHUNK_BYTES, BytesBudget, Pull, PullState, ReadChunk
from runtime._store.service import ObjectStore
from runtime._transport.channel import CallError
from runtime._wire.messages.base import ErrorKind
from runtime._wire.messages.node import ObjectChunk, ReadObject, StoreSpace

from .peers import PeerTable

log = logging.getLogger(__name__)
IN_FLIGHT_BYTES = 64 << 20
_ROOM_TIMEOUT_S = 600.0
_CHUNK_TIMEOUT_S = 30.0
_HANDOVER_S = 0.1


@dataclass(slots=True, eq=False)
class _Active:
    pull: Pull
    task: asyncio.Task[None]
    waiters: int = 0


@dataclass(slots=True)
class _Budget:
    """A `BytesBudget` that can be waited for, first come first served."""

    bytes: BytesBudget
    waiting: deque[tuple[int, asyncio.Future[None]]] = field(default_factory=deque)

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

    def __init__(self, node_id: bytes, store: ObjectStore, peers: PeerTable) -> None:
        self._node_id = node_id
        self._store = store
        self._peers = peers
        self._active: dict[bytes, _Active] = {}
        self._budget = _Budget(BytesBudget(IN_FLIGHT_BYTES))

    async def pull(self, object_id: bytes, locations: Iterable[bytes]) -> None:
        """Returns when a sealed copy is here. The caller sets the deadline.

        Raises:
            CallError: LOST when no location has it; FULL or OUT_OF_DISK when there is no room for it.
        """
        sources = [node_id for node_id in locations if node_id != self._node_id]
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

    def close(self) -> None:
        """Ends all pulls."""
        for active in self._active.values():
            active.task.cancel()

    async def _run(self, object_id: bytes, pull: Pull) -> None:
        reads: dict[asyncio.Task[ObjectChunk], ReadChunk] = {}
        loop = asyncio.get_running_loop()
        space: StoreSpace | None = None
        try:
            while pull.state not in (PullState.DONE, PullState.LOST):
                for read in pull.next_reads():
                    reads[loop.create_task(self._read(object_id, read))] = read
                finished, _ = await asyncio.wait(reads, return_when=asyncio.FIRST_COMPLETED)
                for task in finished:
                    read = reads.pop(task)
                    error = task.exception()
                    if isinstance(error, CallError):
                        log.info("node %s gave no chunk: %s", read.source.hex()[:12], error)
                        pull.source_failed(read.source)
                        continue
                    chunk = task.result()
                    if not pull.received(read, chunk.total_bytes):
                        continue
                    if space is None:
                        space = await self._make_room(object_id, chunk)
                    await self._store.write(space, read.offset, chunk.data)
        except BaseException:
            self._store.abort(object_id, self)
            raise
        finally:
            for task in reads:
                task.cancel()
        if pull.state is PullState.LOST:
            self._store.abort(object_id, self)
            raise CallError(ErrorKind.LOST, f"no node has a copy of object {object_id.hex()} any more")
        self._store.seal(object_id, self)
        # The waiters pin when their turn comes; until then the copy must not be evicted.
        loop.call_later(_HANDOVER_S, self._store.unpin, [object_id], self)

    async def _make_room(self, object_id: bytes, chunk: ObjectChunk) -> StoreSpace:
        space = self._store.create(
            object_id,
            chunk.total_bytes,
            self,
            owner_worker=chunk.owner_worker,
            owner_node=chunk.owner_node,
            primary=False,
            timeout_s=_ROOM_TIMEOUT_S,
        )
        return space if isinstance(space, StoreSpace) else await space

    async def _read(self, object_id: bytes, read: ReadChunk) -> ObjectChunk:
        await self._budget.take(CHUNK_BYTES)
        try:
            peer = await self._peers.channel(read.source)
            return await peer.call(ReadObject(object_id, read.offset, read.length), _CHUNK_TIMEOUT_S)
        finally:
            self._budget.give_back(CHUNK_BYTES)
