"""What agents of other nodes say to this one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from runtime._transport.channel import CallError, Channel, StreamChannel
from runtime._wire.messages.base import ErrorKind, Message, Ok
from runtime._wire.messages.node import (
    AgentHello,
    FreeObjects,
    LeaseRecall,
    ListState,
    RemoteLease,
    RemoteLeaseLost,
    RemoteLeaseReturn,
    ServeObjects,
    StoreStatus,
    TakeOutput,
)

from .processes import Peer

if TYPE_CHECKING:
    from .agent import NodeAgent


class PeerHandler:
    """Connections that other agents opened to us, and the dispatch of their messages."""

    def __init__(self, agent: NodeAgent) -> None:
        self._agent = agent
        self._channels: set[Channel] = set()

    def accept(self, channel: Channel) -> None:
        """An agent has connected and proved the secret; its first message must be `AgentHello`."""
        self._channels.add(channel)
        channel.handler = self._handle
        channel.on_close = self._closed

    def on_our_connection(self, channel: Channel, message: Message) -> None:
        """What a peer says, unasked, on a connection that we opened."""
        if isinstance(message, RemoteLeaseLost):
            self._agent.leases.remote.lost(message)
        elif isinstance(message, LeaseRecall):
            self._agent.leases.remote.recalled(message)
        else:
            raise CallError(ErrorKind.INVALID, f"unexpected {type(message).__name__} of {channel.name}")

    def drop(self, node_id: bytes) -> None:
        """The node is dead: whatever it holds here ends."""
        for channel in list(self._channels):
            if isinstance(channel.context, Peer) and channel.context.node_id == node_id:
                channel.close()

    def close(self) -> None:
        """Cuts all of them off."""
        for channel in list(self._channels):
            channel.close()

    def _handle(self, channel: Channel, message: Message) -> Awaitable[Message | None] | Message | None:
        agent, peer = self._agent, channel.context
        if isinstance(message, AgentHello):
            channel.context = Peer(channel, message.node_id)
            channel.name = f"the agent of node {message.node_id.hex()[:12]}"
            return Ok()
        if not isinstance(peer, Peer):
            raise CallError(ErrorKind.INVALID, "say hello first")
        if isinstance(message, ServeObjects) and isinstance(channel, StreamChannel):
            # When our answer is out; it is the last word on the channel.
            asyncio.get_running_loop().call_soon(self._serve_objects, channel, peer.node_id)
            return Ok()
        if isinstance(message, StoreStatus):
            return agent.objects.own_status(message)
        if isinstance(message, ListState):
            return agent.state.collect(message)
        if isinstance(message, RemoteLease):
            return agent.leases.remote_lease(channel, message)
        if isinstance(message, RemoteLeaseReturn):
            agent.leases.give_back(channel, message)
            return None
        if isinstance(message, TakeOutput):
            return agent.output.take(message)
        if isinstance(message, FreeObjects):
            agent.store.free(message.object_ids)
            return None
        raise CallError(ErrorKind.INVALID, f"a node agent does not take {type(message).__name__}")

    def _serve_objects(self, channel: StreamChannel, node_id: bytes) -> None:
        self._channels.discard(channel)
        if not channel.closed:
            self._agent.object_server.accept(channel, node_id)

    def _closed(self, channel: Channel) -> None:
        self._channels.discard(channel)
        if isinstance(channel.context, Peer):
            self._agent.leases.owner_gone(channel)
