"""Gives objects of this node to other nodes, over connections that carry nothing else."""

from __future__ import annotations

import msgspec

from runtime._core.store_index import StoredObject
from runtime._store.service import ObjectStore
from runtime._transport.bulk import BulkSender, Piece
from runtime._transport.channel import CallError, StreamChannel
from runtime._wire.messages.base import ErrorKind, Message
from runtime._wire.messages.node import ReadDone, ReadObject

_owner = msgspec.msgpack.Decoder(tuple[bytes, bytes])


def decode_owner(about: bytes) -> tuple[bytes, bytes]:
    """With the end of which worker and node every copy of an object goes, from what its source says of it.

    Raises:
        CallError: INVALID, it says something else.
    """
    try:
        return _owner.decode(about)
    except msgspec.MsgspecError as error:
        raise CallError(ErrorKind.INVALID, f"the request for an object cannot be decoded: {error}") from None


class ObjectServer:
    """All connections over which other nodes read. What a node reads is pinned here until it says that it is done."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._readers: dict[BulkSender, tuple[bytes, dict[bytes, StoredObject]]] = {}

    def readers(self) -> set[bytes]:
        """The nodes that have read, or do."""
        return {node_id for node_id, _ in self._readers.values()}

    def is_read(self, object_id: bytes) -> bool:
        """Whether another node reads this object now."""
        return any(object_id in lent for _, lent in self._readers.values())

    def accept(self, channel: StreamChannel, node_id: bytes) -> None:
        """The peer waits for objects on this connection."""
        sender = BulkSender(self._answer, self._closed, f"reads of node {node_id.hex()[:12]}")
        self._readers[sender] = (node_id, {})
        channel.take_over(sender)

    def drop(self, node_id: bytes) -> None:
        """The node is dead."""
        for sender, (reader, _) in list(self._readers.items()):
            if reader == node_id:
                sender.close()

    def close(self) -> None:
        """Cuts all readers off."""
        for sender in list(self._readers):
            sender.close()

    async def _answer(self, sender: BulkSender, message: Message) -> Piece | None:
        _, lent = self._readers[sender]
        if isinstance(message, ReadDone):
            if lent.pop(message.object_id, None) is not None:
                self._store.unpin([message.object_id], sender)
            return None
        if not isinstance(message, ReadObject):
            raise CallError(ErrorKind.INVALID, f"{type(message).__name__} asks for no object")
        entry = lent.get(message.object_id) or self._store.lend(message.object_id, sender)
        if entry is None and self._store.index.allotments:
            await self._store.settling.settle()
            entry = self._store.lend(message.object_id, sender)
        if entry is None:
            raise CallError(ErrorKind.NOT_FOUND, f"this node has no object {message.object_id.hex()}")
        lent[message.object_id] = entry
        piece = await self._store.piece(entry, message.offset, message.length)
        piece.about = msgspec.msgpack.encode((entry.owner_worker, entry.owner_node))
        return piece

    def _closed(self, sender: BulkSender) -> None:
        if self._readers.pop(sender, None) is not None:
            self._store.drop_holder(sender)
