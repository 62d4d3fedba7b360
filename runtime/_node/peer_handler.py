"""What agents of other nodes say to this one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from runtime._store.service import ObjectStore
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

from .lease_service import LeaseService
from .object_server import ObjectServer
from .object_service import ObjectService
from .output import OutputRouter
from .processes import Peer
from .state_service import StateService

Result = Awaitable[Message | None] | Message | None


class PeerHandler:
    """Connections of other agents, and which part of this one serves which of their messages."""

    def __init__(
        self,
        leases: LeaseService,
        objects: ObjectService,
        object_server: ObjectServer,
        store: ObjectStore,
        state: StateService,
        output: OutputRouter,
    ) -> None:
        self._leases = leases
        self._object_server = object_server
        self._channels: set[Channel] = set()
        self._handlers: dict[type[Message], Callable[[Channel, Any], Result]] = {
            ServeObjects: self._serve_objects,
            StoreStatus: lambda _, m: objects.own_status(m),
            ListState: lambda _, m: state.collect(m),
            RemoteLease: leases.remote_lease,
            RemoteLeaseReturn: lambda c, m: leases.give_back(c, m),
            TakeOutput: lambda _, m: output.take(m),
            FreeObjects: lambda _, m: store.free(m.object_ids),
        }
        """On connections that other agents opened to us."""
        self._unasked: dict[type[Message], Callable[[Any], None]] = {
            RemoteLeaseLost: leases.remote.lost,
            LeaseRecall: leases.remote.recalled,
        }
        """On connections that we opened."""

    def accept(self, channel: Channel) -> None:
        """An agent has connected and proved the secret; its first message must be `AgentHello`."""
        self._channels.add(channel)
        channel.handler = self._handle
        channel.on_close = self._closed

    def on_our_connection(self, channel: Channel, message: Message) -> None:
        """What a peer says, unasked, on a connection that we opened."""
        handler = self._unasked.get(type(message))
        if handler is None:
            raise CallError(ErrorKind.INVALID, f"unexpected {type(message).__name__} of {channel.name}")
        handler(message)

    def drop(self, node_id: bytes) -> None:
        """The node is dead: whatever it holds here ends."""
        for channel in list(self._channels):
            if isinstance(channel.context, Peer) and channel.context.node_id == node_id:
                channel.close()

    def close(self) -> None:
        """Cuts all of them off."""
        for channel in list(self._channels):
            channel.close()

    def _handle(self, channel: Channel, message: Message) -> Result:
        if isinstance(message, AgentHello):
            channel.context = Peer(channel, message.node_id)
            channel.name = f"the agent of node {message.node_id.hex()[:12]}"
            return Ok()
        if not isinstance(channel.context, Peer):
            raise CallError(ErrorKind.INVALID, "the first message must be a hello")
        handler = self._handlers.get(type(message))
        if handler is None:
            raise CallError(ErrorKind.INVALID, f"a node agent does not take {type(message).__name__}")
        return handler(channel, message)

    def _serve_objects(self, channel: Channel, _message: ServeObjects) -> Ok:
        if not isinstance(channel, StreamChannel):
            raise CallError(ErrorKind.INVALID, "objects are only sent over sockets")
        # When our answer is out; it is the last word on the channel.
        asyncio.get_running_loop().call_soon(self._hand_over, channel, channel.context.node_id)
        return Ok()

    def _hand_over(self, channel: StreamChannel, node_id: bytes) -> None:
        self._channels.discard(channel)
        if not channel.closed:
            self._object_server.accept(channel, node_id)

    def _closed(self, channel: Channel) -> None:
        self._channels.discard(channel)
        if isinstance(channel.context, Peer):
            self._leases.owner_gone(channel)
