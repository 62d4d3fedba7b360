"""Connections over which this node reads objects of others: one per node, opened when first needed and kept."""

from __future__ import annotations

import asyncio

from runtime._transport.bulk import BulkReceiver
from runtime._wire.messages.node import ServeObjects

from .peers import PeerTable


class ObjectSources:
    """Our own connections for objects."""

    def __init__(self, peers: PeerTable) -> None:
        self._peers = peers
        self._open: dict[bytes, BulkReceiver] = {}
        self._opening: dict[bytes, asyncio.Task[BulkReceiver]] = {}

    async def receiver(self, node_id: bytes) -> BulkReceiver:
        """The connection to a node.

        Raises:
            CallError: the node is not alive, or does not answer.
        """
        receiver = self._open.get(node_id)
        if receiver is not None:
            return receiver
        task = self._opening.get(node_id)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._connect(node_id))
            self._opening[node_id] = task
            task.add_done_callback(lambda done: self._opened(node_id, done))
        return await asyncio.shield(task)

    def open_receiver(self, node_id: bytes) -> BulkReceiver | None:
        """The connection if it is there."""
        return self._open.get(node_id)

    def drop(self, node_id: bytes) -> None:
        """The node is dead."""
        receiver = self._open.get(node_id)
        if receiver is not None:
            receiver.close(f"node {node_id.hex()[:12]} died")

    def close(self) -> None:
        """Cuts all of them."""
        for task in self._opening.values():
            task.cancel()
        for receiver in list(self._open.values()):
            receiver.close()

    async def _connect(self, node_id: bytes) -> BulkReceiver:
        channel = await self._peers.connect(node_id)
        try:
            await channel.call(ServeObjects(), timeout_s=5.0)
            receiver = BulkReceiver(lambda _: self._closed(node_id), f"node {node_id.hex()[:12]}")
            channel.take_over(receiver)
        except BaseException:
            channel.close()
            raise
        self._open[node_id] = receiver
        return receiver

    def _opened(self, node_id: bytes, task: asyncio.Task[BulkReceiver]) -> None:
        self._opening.pop(node_id, None)
        if not task.cancelled():
            task.exception()  # every asker has got it

    def _closed(self, node_id: bytes) -> None:
        self._open.pop(node_id, None)
