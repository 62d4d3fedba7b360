"""Leases between two nodes in virtual time: real services and channels, with a worker pool that takes its time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

from runtime._core.ledger import Ledger
from runtime._core.placement import NodeView
from runtime._core.resources import UNIT
from runtime._core.workers import PoolKey, Worker, WorkerEvent, WorkerTable
from runtime._node.cluster import Cluster
from runtime._node.lease_service import LeaseService
from runtime._node.peers import PeerTable
from runtime._node.processes import Peer, Process
from runtime._node.worker_pool import Taker, WorkerPool
from runtime._transport.channel import Channel, LoopbackChannel
from runtime._wire.messages.base import Message, ResourceRequest, WorkerAddress
from runtime._wire.messages.node import (
    LeaseDemand,
    LeaseGranted,
    LeaseLost,
    LeaseRecall,
    LeaseReturn,
    RemoteLease,
    RemoteLeaseLost,
    RemoteLeaseReturn,
)
from tests.sim.world import run_virtual

BUILD_S = 300.0
JOB = b"j" * 4


class SlowPool:
    """Hands out a new worker after `BUILD_S`, as if its environment had to be built."""

    def __init__(self) -> None:
        self.table = WorkerTable()
        self.acquired = 0
        self.returned: list[Worker] = []
        self.stopped: list[Worker] = []

    def acquire(self, key: PoolKey, event: WorkerEvent, taker: Taker, devices: tuple[str, ...] = ()) -> None:
        self.acquired += 1
        number = self.acquired
        asyncio.get_running_loop().call_later(BUILD_S, self._built, key, event, taker, number)

    def give_back(self, worker: Worker) -> None:
        self.returned.append(worker)

    def stop_worker(self, worker: Worker, reason: str, intended: bool) -> None:
        self.stopped.append(worker)

    def _built(self, key: PoolKey, event: WorkerEvent, taker: Taker, number: int) -> None:
        worker = self.table.add(number.to_bytes(28, "big"), key)
        worker.channel = LoopbackChannel()
        worker.channel.context = Process(
            worker.channel, WorkerAddress(worker.worker_id, b"", ""), JOB, 1, worker
        )
        self.table.registered(worker, 0.0)
        taken = self.table.take(key, event, 0.0)
        assert taken is worker
        taker(worker)


class OnePeer:
    """The connection to the other node, instead of a table of them."""

    def __init__(self) -> None:
        self.link: Channel | None = None

    async def channel(self, node_id: bytes) -> Channel:
        assert self.link is not None
        return self.link

    def open_channel(self, node_id: bytes) -> Channel | None:
        return self.link


class Side:
    """One node."""

    def __init__(self, name: bytes, cpus: int) -> None:
        self.node_id = name * 28
        self.ledger = Ledger({"CPU": cpus * UNIT})
        self.cluster = Cluster(self.node_id, self.ledger, {}, lambda _: None)
        self.pool = SlowPool()
        self.peers = OnePeer()
        self.leases = LeaseService(
            self.ledger,
            self.cluster,
            cast(WorkerPool, self.pool),
            cast(PeerTable, self.peers),
            8,
            lambda _demand, _why: None,
            lambda: None,
        )

    def handle(self, channel: Channel, message: Message) -> Awaitable[Message] | None:
        """What the other agent says, as `PeerHandler` passes it on."""
        if isinstance(message, RemoteLease):
            return self.leases.remote_lease(channel, message)
        if isinstance(message, RemoteLeaseReturn):
            self.leases.give_back(channel, message)
        elif isinstance(message, RemoteLeaseLost):
            self.leases.remote.lost(message)
        elif isinstance(message, LeaseRecall):
            self.leases.remote.recalled(message)
        return None


class Pair:
    """A node without CPUs, with a driver that needs one, and a node that has one."""

    def __init__(self) -> None:
        self.here, self.there = Side(b"h", 0), Side(b"t", 1)
        ours, theirs = LoopbackChannel.pair(self.here.handle, self.there.handle)
        theirs.context = Peer(theirs, self.here.node_id)
        ours.on_close = lambda _: self.here.leases.remote.node_lost(self.there.node_id, "cut")
        theirs.on_close = self.there.leases.owner_gone
        self.link = self.here.peers.link = ours
        self.here.cluster.table.others[self.there.node_id] = NodeView(
            self.there.node_id, self.there.ledger.total, dict(self.there.ledger.available), {}
        )
        self.heard: list[Message] = []
        agent_side, driver_side = LoopbackChannel.pair(None, self._hear)
        agent_side.context = Process(agent_side, WorkerAddress(b"d" * 28, b"", ""), JOB, 1)
        agent_side.on_close = self.here.leases.owner_gone
        self.driver: Process = agent_side.context
        self.driver_link = driver_side

    def demand(self, count: int) -> None:
        request = ResourceRequest({"CPU": UNIT})
        self.here.leases.demand(self.driver, LeaseDemand(b"k", count, request))

    def free(self) -> int:
        return self.there.ledger.available.get("CPU", 0)

    def close(self) -> None:
        self.link.close()
        self.here.leases.close()
        self.there.leases.close()

    def _hear(self, _: Channel, message: Message) -> None:
        self.heard.append(message)


def run(scenario: Callable[[Pair], Awaitable[None]]) -> None:
    async def whole() -> None:
        pair = Pair()
        try:
            await scenario(pair)
        finally:
            pair.close()
            await asyncio.sleep(1.0)

    run_virtual(whole())


def test_a_lease_elsewhere_may_take_as_long_as_its_environment() -> None:
    async def scenario(pair: Pair) -> None:
        pair.demand(1)
        await asyncio.sleep(BUILD_S + 1)
        [granted] = pair.heard
        assert isinstance(granted, LeaseGranted)
        assert pair.there.pool.acquired == 1
        pair.here.leases.give_back(pair.driver.channel, LeaseReturn(granted.lease_id))
        await asyncio.sleep(1.0)
        assert pair.free() == UNIT
        assert len(pair.there.pool.returned) == 1

    run(scenario)


def test_a_lease_that_comes_when_its_owner_is_gone_goes_back() -> None:
    async def scenario(pair: Pair) -> None:
        pair.demand(1)
        await asyncio.sleep(BUILD_S / 2)
        assert pair.free() == 0
        pair.driver.channel.close()
        await asyncio.sleep(BUILD_S)
        assert pair.free() == UNIT
        assert pair.heard == []

    run(scenario)


def test_a_lease_whose_demand_was_withdrawn_goes_back() -> None:
    async def scenario(pair: Pair) -> None:
        pair.demand(1)
        await asyncio.sleep(BUILD_S / 2)
        pair.demand(0)
        await asyncio.sleep(BUILD_S)
        assert pair.free() == UNIT
        assert pair.heard == []

    run(scenario)


def test_a_lease_that_is_being_made_ends_with_the_connection() -> None:
    async def scenario(pair: Pair) -> None:
        pair.demand(1)
        await asyncio.sleep(BUILD_S / 2)
        pair.link.close()
        await asyncio.sleep(BUILD_S)
        assert pair.free() == UNIT
        assert pair.heard == []

    run(scenario)


def test_what_is_said_of_a_lease_in_the_turn_of_its_grant_reaches_the_owner() -> None:
    async def scenario(pair: Pair) -> None:
        pair.demand(1)
        await asyncio.sleep(BUILD_S)
        there = pair.there.leases
        for _ in range(100):
            if there.holders():
                break
            await asyncio.sleep(0)
        assert pair.heard == []
        there.recall_all()
        there.worker_ended(there.holders()[0].worker.use, "it died")
        await asyncio.sleep(1.0)
        assert [type(message) for message in pair.heard] == [LeaseGranted, LeaseRecall, LeaseLost]
        assert pair.free() == UNIT

    run(scenario)
