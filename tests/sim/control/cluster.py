"""A control store with agents and a user, in virtual time, for tests that say themselves what happens."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from runtime._control.server import ControlStore
from runtime._control.storage.memory import MemoryStorage
from runtime._wire.messages.base import Demand, NodeInfo, Request, ResourceRequest, WorkerAddress
from runtime._wire.messages.control import (
    ActorInfo,
    AddJob,
    ClusterState,
    GetNodes,
    JobInfo,
    WatchActor,
    WatchClusterState,
)
from runtime._wire.messages.groups import PlacementGroupInfo, WatchPlacementGroup
from tests.sim.control import specs
from tests.sim.control.agent import Agent, Behaviour, cpus
from tests.sim.world import SimLink

R = TypeVar("R")


class Rig:
    """The store, its agents, and a connection to ask through."""

    def __init__(self, refuses: Callable[[str], Awaitable[bool]] | None = None) -> None:
        self.storage = MemoryStorage()
        self._refuses = refuses
        self.agents: list[Agent] = []
        self.store = self._new_store()
        self.user = SimLink()

    def _new_store(self) -> ControlStore:
        loop = asyncio.get_running_loop()
        return ControlStore(
            self.storage, "/session", wall_time=loop.time, rng=random.Random(0), refuses=self._refuses
        )

    async def start(self) -> None:
        await self.store.start()
        self.user, theirs = SimLink.delayed(None, None, random.Random(0), 0.0)
        self.store.attach(theirs)

    async def restart(self) -> None:
        """The store dies and comes back with what it had written down; the agents have to reconnect."""
        await self.store.stop()
        for agent in self.agents:
            agent.cut()
        self.store = self._new_store()
        await self.start()

    async def add(
        self,
        count: float = 4,
        *,
        labels: dict[str, str] | None = None,
        behaviour: Behaviour | None = None,
        resources: dict[str, int] | None = None,
    ) -> Agent:
        """One more node."""
        agent = Agent(
            specs.node_id(len(self.agents)),
            {**cpus(count), **(resources or {})},
            behaviour=behaviour or Behaviour(),
            labels=labels or {},
        )
        self.agents.append(agent)
        await agent.join(self.store)
        return agent

    async def ask(self, request: Request[R], timeout_s: float = 60.0) -> R:
        return await self.user.call(request, timeout_s)

    async def actor(self, number: int, *states: str, timeout_s: float = 30.0) -> ActorInfo:
        """The actor, once it is in one of `states`."""
        version = -1
        async with asyncio.timeout(timeout_s):
            while True:
                info = await self.ask(WatchActor(specs.actor_id(number), version))
                if not states or info.state in states:
                    return info
                version = info.version

    async def group(self, number: int, *states: str, timeout_s: float = 30.0) -> PlacementGroupInfo:
        """The placement group, once it is in one of `states`."""
        version = -1
        async with asyncio.timeout(timeout_s):
            while True:
                info = await self.ask(WatchPlacementGroup(specs.group_id(number), version))
                if not states or info.state in states:
                    return info
                version = info.version

    async def node(self, agent: Agent) -> NodeInfo:
        nodes = (await self.ask(GetNodes())).nodes
        return next(node for node in nodes if node.node_id == agent.node_id)

    async def job(self, number: int = 0) -> JobInfo:
        """A driver on the first node."""
        worker_id = specs.DRIVER.worker_id if not number else f"driver-{number}".encode().ljust(28, b".")
        driver = WorkerAddress(worker_id, b"", "/driver.sock")
        return await self.ask(AddJob(self.agents[0].node_id, driver, 77, "ns", "python x.py", "{}"))

    async def state(self) -> ClusterState:
        return await self.ask(WatchClusterState())


@asynccontextmanager
async def rig(*nodes: float, refuses: Callable[[str], Awaitable[bool]] | None = None) -> AsyncIterator[Rig]:
    """A started store with a node per number of CPUs."""
    made = Rig(refuses)
    await made.start()
    try:
        for count in nodes:
            await made.add(count)
        yield made
    finally:
        for agent in made.agents:
            agent.crash()
        await made.store.stop()


def demand(units: dict[str, int], count: int, infeasible: bool = False) -> Demand:
    return Demand(ResourceRequest(units), count, infeasible)


def counts(demands: Sequence[Demand]) -> dict[tuple[tuple[str, int], ...], int]:
    """Demands as shape -> count."""
    return {tuple(sorted(d.request.resources.items())): d.count for d in demands}
