"""Connections to the agents of other nodes, opened when first needed and kept."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from runtime._transport.channel import CallError, Channel, Handler, StreamChannel
from runtime._transport.tcp import connect_tcp
from runtime._wire.messages.base import ErrorKind
from runtime._wire.messages.node import AgentHello

log = logging.getLogger(__name__)
NEW_NODE_S = 2.0
"""How long a node that we know nothing of may take to become known here."""


class PeerTable:
    """Our own connections to other agents, one per node; what they open to us is not here.

    Args:
        node_id: of this node.
        secret: the cluster's secret.
        address_of: host:port of a live node, or None.
        is_dead: whether a node is known to have died.
        handler: gets what a peer says on our connection.
        on_lost: called with the node id when a connection ends.
    """

    def __init__(
        self,
        node_id: bytes,
        secret: bytes,
        address_of: Callable[[bytes], str | None],
        is_dead: Callable[[bytes], bool],
        handler: Handler,
        on_lost: Callable[[bytes], None],
    ) -> None:
        self._node_id = node_id
        self._secret = secret
        self._address_of = address_of
        self._is_dead = is_dead
        self._handler = handler
        self._on_lost = on_lost
        self._channels: dict[bytes, Channel] = {}
        self._opening: dict[bytes, asyncio.Task[Channel]] = {}

    def open_channel(self, node_id: bytes) -> Channel | None:
        """The connection if it is there."""
        return self._channels.get(node_id)

    async def channel(self, node_id: bytes) -> Channel:
        """The connection to a node.

        Raises:
            CallError: the node is not alive, or does not answer.
        """
        channel = self._channels.get(node_id)
        if channel is not None:
            return channel
        task = self._opening.get(node_id)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._open(node_id))
            self._opening[node_id] = task
            task.add_done_callback(lambda done: self._opened(node_id, done))
        return await asyncio.shield(task)

    def drop(self, node_id: bytes) -> None:
        """The node is dead."""
        channel = self._channels.get(node_id)
        if channel is not None:
            channel.close()

    def close(self) -> None:
        for task in self._opening.values():
            task.cancel()
        for channel in list(self._channels.values()):
            channel.close()

    async def connect(self, node_id: bytes) -> StreamChannel:
        """A new connection to a node, on which we have said who we are.

        Raises:
            CallError: the node is not alive, or does not answer.
        """
        address = await self._await_address(node_id)
        if not address:
            raise CallError(ErrorKind.UNAVAILABLE, f"node {node_id.hex()[:12]} is not alive")
        host, _, port = address.rpartition(":")
        name = f"the agent of node {node_id.hex()[:12]}"
        channel = await connect_tcp(host, int(port), self._secret, self._handler, name)
        channel.context = node_id
        try:
            await channel.call(AgentHello(self._node_id), timeout_s=5.0)
        except BaseException:
            channel.close()
            raise
        return channel

    async def _open(self, node_id: bytes) -> Channel:
        channel = await self.connect(node_id)
        self._channels[node_id] = channel
        channel.on_close = self._closed
        return channel

    async def _await_address(self, node_id: bytes) -> str | None:
        """The address of a node, which others may have heard of a moment before us."""
        deadline = asyncio.get_running_loop().time() + NEW_NODE_S
        while not (address := self._address_of(node_id)) and not self._is_dead(node_id):
            if asyncio.get_running_loop().time() > deadline:
                return None
            await asyncio.sleep(NEW_NODE_S / 40)
        return address

    def _opened(self, node_id: bytes, task: asyncio.Task[Channel]) -> None:
        self._opening.pop(node_id, None)
        if not task.cancelled() and task.exception() is not None:
            log.info("no connection to node %s: %s", node_id.hex()[:12], task.exception())

    def _closed(self, channel: Channel) -> None:
        if self._channels.get(channel.context) is channel:
            del self._channels[channel.context]
            self._on_lost(channel.context)
