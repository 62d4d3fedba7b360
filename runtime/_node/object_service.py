"""What processes and other agents ask of this node's object store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable

from runtime._core.ids import job_of_object
from runtime._core.store_index import StoredObject
from runtime._core.store_use import use_of
from runtime._store.service import ObjectStore
from runtime._transport.channel import CallError, Channel
from runtime._wire.messages.base import ErrorKind, Message
from runtime._wire.messages.node import (
    FreeObjects,
    JobStore,
    NodeStore,
    StoreAdd,
    StoreAllot,
    StoreAllotted,
    StoreCreate,
    StoreFree,
    StorePin,
    StorePinned,
    StoreSettle,
    StoreStatus,
    StoreStatuses,
    StoreUnpin,
    TagStore,
)

from .object_puller import ObjectPuller
from .peers import PeerTable

_STATUS_TIMEOUT_S = 5.0
_SETTLE_TIMEOUT_S = 10.0


async def ask_what_is_placed(process: Channel, give_back: bool) -> None:
    """Asks a process what it has placed, until it answers or is gone."""
    try:
        await process.call(StoreSettle(give_back), _SETTLE_TIMEOUT_S)
    except CallError:
        pass  # it has ended, or is stopped


class ObjectService:
    """The store of one node, for its processes and for the other nodes."""

    def __init__(
        self,
        node_id: bytes,
        store: ObjectStore,
        puller: ObjectPuller,
        peers: PeerTable,
        other_nodes: Callable[[], Iterable[bytes]],
        process: Callable[[bytes], Channel | None],
    ) -> None:
        self._node_id = node_id
        self._store = store
        self._puller = puller
        self._peers = peers
        self._other_nodes = other_nodes
        self._process = process
        self._tasks: set[asyncio.Task[None]] = set()

    def create(self, holder: Channel, message: StoreCreate) -> Message | Awaitable[Message]:
        """Space for an object that the process will write."""
        owner = message.owner
        return self._store.create(
            message.object_id,
            message.size_bytes,
            holder,
            owner_worker=owner.worker_id,
            owner_node=owner.node_id,
            tag=message.tag,
            timeout_s=message.timeout_s,
        )

    def allot(self, holder: Channel, message: StoreAllot) -> StoreAllotted:
        """Space that the process will place objects in."""
        return StoreAllotted(list(self._store.allot(holder, message.size_bytes, message.count)))

    def add(self, holder: Channel, message: StoreAdd) -> None:
        """The process has placed these. What was made for a process of this node that is gone, or is owned by one,
        goes at once: nobody else will free it."""
        keeper = self._process(message.keeper) if message.keeper else holder
        owner_is_gone = message.owner_node == self._node_id and self._process(message.owner_worker) is None
        self._store.add(
            holder,
            message.objects,
            keeper,
            owner_worker=message.owner_worker,
            owner_node=message.owner_node,
            tag=message.tag,
        )
        if keeper is None or owner_is_gone:
            self._store.free([object_id for object_id, _, _ in message.objects])

    def unpin(self, holder: Channel, message: StoreUnpin) -> None:
        """The process reads these no more."""
        unknown = self._unknown(message.object_ids)
        self._store.unpin(message.object_ids, holder)
        if unknown:
            self._when_settled(lambda: self._store.unpin(unknown, holder))

    def pin(self, holder: Channel, message: StorePin) -> Message | Awaitable[Message]:
        """At once when the object is here, else after it was written or pulled."""
        pinned = self._store.pin(message.object_id, holder)
        return pinned if pinned is not None else self._pin_later(holder, message)

    def free(self, holder: Channel, message: StoreFree) -> None:
        """The owner says that nobody refers to these any more, wherever they are."""
        unpinning = holder if message.unpinned else None
        if message.here or self._node_id in message.locations:
            unknown = self._unknown(message.object_ids) if self._node_id in message.locations else ()
            self._store.free(message.object_ids, unpinning)
            if unknown:
                self._when_settled(lambda: self._store.free(unknown, unpinning))
        for node_id in message.locations:
            if node_id != self._node_id:
                self._forward(node_id, FreeObjects(message.object_ids))

    async def status(self, message: StoreStatus) -> StoreStatuses:
        """What this store, or every store of the cluster, holds."""
        await self._store.settling.settle()
        stores = list(self.own_status(message).stores)
        if message.everywhere:
            request = StoreStatus(message.object_ids)
            answers = await asyncio.gather(*[self._ask(peer, request) for peer in self._other_nodes()])
            stores += [store for answer in answers for store in answer]
        return StoreStatuses(stores)

    def own_status(self, message: StoreStatus) -> StoreStatuses:
        """What this store holds."""
        index = self._store.index
        on_disk = [object_id for object_id in message.object_ids if index.is_on_disk(object_id)]
        use = use_of(index.entries())
        store = NodeStore(
            self._node_id,
            index.allocator.capacity,
            index.used_bytes,
            use.in_memory,
            index.spilled_bytes,
            index.spilled_count,
            self._store.restored_bytes,
            self._store.restored_count,
            on_disk,
            index.allotments.allotted_bytes,
            index.evictable_bytes,
            [JobStore(job_id, *held) for job_id, held in use.jobs.items()],
            [TagStore(tag, *held) for tag, held in use.largest_tags()],
        )
        return StoreStatuses([store])

    async def _ask(self, node_id: bytes, request: StoreStatus) -> list[NodeStore]:
        try:
            async with asyncio.timeout(_STATUS_TIMEOUT_S):
                peer = await self._peers.channel(node_id)
                return (await peer.call(request, _STATUS_TIMEOUT_S)).stores
        except (CallError, TimeoutError):
            return []  # it dies, or is too busy to say

    def owners_dead(self, worker_ids: set[bytes]) -> None:
        """Objects of dead owners go."""
        self._store.drop_owners(worker_ids)

    def node_dead(self, node_id: bytes) -> None:
        """All processes of that node are gone."""
        self._store.drop_node(node_id)

    def job_finished(self, job_id: bytes, driver_id: bytes) -> None:
        """Objects of the driver go, and the copies here of what the job made elsewhere. What its detached
        actors own stays until they end."""

        def is_left_over(entry: StoredObject) -> bool:
            if entry.primary:
                return entry.owner_worker == driver_id
            return job_of_object(entry.object_id) == job_id

        self._store.drop_where(is_left_over)

    def close(self) -> None:
        """Ends what is still on its way."""
        for task in self._tasks:
            task.cancel()

    async def _pin_later(self, holder: Channel, message: StorePin) -> StorePinned:
        object_id = message.object_id
        settled = not self._store.index.allotments
        try:
            async with asyncio.timeout(message.timeout_s):
                while True:
                    if holder.closed:
                        raise CallError(ErrorKind.UNAVAILABLE, "the requesting process has ended")
                    # First of all: it may have been sealed since the request was read.
                    pinned = self._store.pin(object_id, holder)
                    if pinned is not None:
                        return pinned
                    if self._store.is_being_written(object_id):
                        await self._store.wait_written(object_id)
                    elif not settled and self._node_id in message.locations:
                        await self._store.settling.settle()
                        settled = True
                    else:
                        await self._bring(object_id, message.locations)
        except TimeoutError:
            text = f"object {object_id.hex()} did not arrive within {message.timeout_s} s"
            raise CallError(ErrorKind.TIMEOUT, text) from None

    async def _bring(self, object_id: bytes, locations: list[bytes]) -> None:
        try:
            await self._puller.pull(object_id, locations)
        except CallError as error:
            if error.kind != ErrorKind.EXISTS:  # else a process of this node made it again meanwhile
                raise

    def _forward(self, node_id: bytes, message: FreeObjects) -> None:
        channel = self._peers.open_channel(node_id)
        if channel is not None:
            channel.send(message)
            return
        self._spawn(self._connect_and_send(node_id, message))

    def _unknown(self, object_ids: list[bytes]) -> list[bytes]:
        """Which of these a process may have placed here without our knowing yet."""
        index = self._store.index
        return (
            [object_id for object_id in object_ids if not index.knows(object_id)] if index.allotments else []
        )

    def _when_settled(self, then: Callable[[], None]) -> None:
        async def settled() -> None:
            await self._store.settling.settle()
            then()

        self._spawn(settled())

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect_and_send(self, node_id: bytes, message: FreeObjects) -> None:
        try:
            channel = await self._peers.channel(node_id)
        except CallError:
            return  # a node that cannot be reached dies, and its copies with it
        channel.send(message)
