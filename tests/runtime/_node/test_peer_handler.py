"""What other agents may say to this one, and when."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from runtime._node.peer_handler import PeerHandler
from runtime._transport.channel import CallError, LoopbackChannel
from runtime._wire.messages.base import ErrorKind, Message, Ok
from runtime._wire.messages.node import (
    AgentHello,
    Blocked,
    FreeObjects,
    LeaseRecall,
    MayEnd,
    RemoteLeaseLost,
    RemoteLeaseReturn,
    ServeObjects,
    StoreStatus,
)

NODE = b"n" * 28


class Parts:
    """The parts of an agent: they note what reaches them."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []
        remote = SimpleNamespace(lost=self.note("lost"), recalled=self.note("recalled"))
        self.leases = SimpleNamespace(
            remote=remote,
            remote_lease=self.note("lease"),
            give_back=self.note("give back"),
            owner_gone=self.note("gone"),
        )
        self.objects = SimpleNamespace(own_status=self.note("status"))
        self.store = SimpleNamespace(free=self.note("free"))
        nothing = SimpleNamespace()
        parts: Any = (self.leases, self.objects, nothing, self.store, nothing, nothing)
        self.handler = PeerHandler(*parts)

    def note(self, name: str) -> Any:
        return lambda *args: self.heard.append((name, args[-1]))

    def connect(self) -> LoopbackChannel:
        """A channel of another agent, at its end."""
        theirs, ours = LoopbackChannel.pair(None, None)
        self.handler.accept(ours)
        return theirs


async def refused(channel: LoopbackChannel, message: Any) -> str:
    with pytest.raises(CallError) as caught:
        await channel.call(message, timeout_s=60.0)
    return caught.value.kind


def test_an_agent_says_hello_first() -> None:
    async def body() -> None:
        parts = Parts()
        theirs = parts.connect()
        assert await refused(theirs, StoreStatus()) == ErrorKind.INVALID
        assert await theirs.call(AgentHello(NODE), timeout_s=60.0) == Ok()
        theirs.send(FreeObjects([b"o"]))
        theirs.send(RemoteLeaseReturn(b"lease"))
        await theirs.call(AgentHello(NODE), timeout_s=60.0)  # what was sent before has arrived
        assert [name for name, _ in parts.heard] == ["free", "give back"]

    asyncio.run(body())


def test_what_agents_do_not_say_is_refused() -> None:
    async def body() -> None:
        parts = Parts()
        theirs = parts.connect()
        await theirs.call(AgentHello(NODE), timeout_s=60.0)
        for message in (MayEnd(), ServeObjects()):  # objects travel on sockets only
            assert await refused(theirs, message) == ErrorKind.INVALID
        assert not parts.heard

    asyncio.run(body())


@pytest.mark.parametrize(
    ("message", "heard"), [(RemoteLeaseLost(b"l", b"w", "it died"), "lost"), (LeaseRecall(b"l"), "recalled")]
)
def test_what_comes_on_our_connections(message: Message, heard: str) -> None:
    parts = Parts()
    channel: Any = SimpleNamespace(name="a peer")
    parts.handler.on_our_connection(channel, message)
    assert parts.heard == [(heard, message)]
    with pytest.raises(CallError, match="unexpected Blocked of a peer"):
        parts.handler.on_our_connection(channel, Blocked())


def test_leases_of_a_dead_node_end_with_its_connection() -> None:
    async def body() -> None:
        parts = Parts()
        theirs = parts.connect()
        await theirs.call(AgentHello(NODE), timeout_s=60.0)
        parts.handler.drop(b"x" * 28)
        assert not parts.heard
        parts.handler.drop(NODE)
        assert [name for name, _ in parts.heard] == ["gone"]

    asyncio.run(body())
