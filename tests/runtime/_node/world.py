"""Real node agents with a real control store, zygotes and workers, and clients that speak to them."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeVar

from runtime._control.server import ControlStore
from runtime._control.storage import open_storage
from runtime._core.resources import to_units
from runtime._node.agent import NodeAgent
from runtime._node.config import AgentConfig
from runtime._transport.channel import Channel, Handler, LoopbackChannel, StreamChannel
from runtime._transport.unix import connect_unix
from runtime._wire.messages.base import Message, ResourceRequest, WorkerAddress
from runtime._wire.messages.node import LeaseDemand, LeaseGranted, Register, Registered

M = TypeVar("M", bound=Message)
STORE_BYTES = 64 << 20


class Client:
    """A driver without a core worker: it says what it is told to and remembers what it hears."""

    def __init__(self) -> None:
        self.heard: list[Message] = []
        self.news = asyncio.Event()
        self.address = WorkerAddress(os.urandom(28), b"", "")
        self.channel: StreamChannel
        self.registered: Registered

    async def join(self, agent: NodeAgent, **config: Any) -> Client:
        self.channel = await connect_unix(agent.unix_path, self._handle, "the agent")
        self.registered = await self.channel.call(
            Register(True, self.address, os.getpid(), job_config=json.dumps(config))
        )
        return self

    async def wait(self, kind: type[M], count: int = 1) -> list[M]:
        """The messages of a kind, once there are `count`; they are taken."""
        async with asyncio.timeout(60):
            while True:
                found = [message for message in self.heard if isinstance(message, kind)]
                if len(found) >= count:
                    self.heard = [message for message in self.heard if not isinstance(message, kind)]
                    return found
                self.news.clear()
                await self.news.wait()

    def demand(self, count: int, key: bytes = b"k", **amounts: float) -> None:
        self.channel.send(LeaseDemand(key, count, ResourceRequest(to_units(amounts)), name="f"))

    async def lease(self, key: bytes = b"k", **amounts: float) -> LeaseGranted:
        self.demand(1, key, **amounts)
        return (await self.wait(LeaseGranted))[0]

    def _handle(self, channel: Channel, message: Message) -> None:
        self.heard.append(message)
        self.news.set()


class World:
    """One control store and the nodes that joined it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.control = ControlStore(open_storage(":memory:"), str(root))
        self.agents: list[NodeAgent] = []
        self._clients: list[Client] = []

    async def node(self, **options: Any) -> NodeAgent:
        amounts = options.pop("resources", {"CPU": 2})

        async def connect(handler: Handler) -> Channel:
            ours, theirs = LoopbackChannel.pair(handler, None)
            self.control.attach(theirs)
            return ours

        agent = NodeAgent(
            AgentConfig(
                node_id=os.urandom(28),
                session_dir=str(self._root / f"n{len(self.agents)}"),
                host="127.0.0.1",
                total=to_units(amounts),
                labels={},
                store_bytes=STORE_BYTES,
                secret=b"s" * 32,
                control_address="",
                connect_control=connect,
                remove_session_dir=True,
                **options,
            )
        )
        self.agents.append(agent)
        await agent.start()
        return agent

    async def driver(self, agent: NodeAgent, **config: Any) -> Client:
        client = await Client().join(agent, **config)
        self._clients.append(client)
        return client

    async def until(self, condition: Callable[[], bool]) -> None:
        """Waits for a condition that no message announces."""
        async with asyncio.timeout(60):
            while True:
                if condition():
                    return
                await asyncio.sleep(0.01)

    async def close(self) -> None:
        for client in self._clients:
            client.channel.close()
        for agent in self.agents:
            await agent.stop()
        await self.control.stop()


def exists(path: str) -> bool:
    return Path(path).exists()


MakeWorld = Callable[[], AbstractAsyncContextManager[World]]
