"""Leases of a real node agent with real workers."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path

import psutil

from runtime._core.resources import UNIT
from runtime._node import worker_pool
from runtime._wire.messages.base import ErrorKind, ResourceRequest, SchedulingStrategy
from runtime._wire.messages.control import AUTOSCALER
from runtime._wire.messages.node import (
    DriverLogs,
    LeaseDemand,
    LeaseFailed,
    LeaseGranted,
    LeaseLost,
    LeaseReturn,
)
from tests.processes import is_alive
from tests.runtime._node.world import MakeWorld, exists


def test_a_driver_leases_a_worker(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            driver = await w.driver(agent)
            granted = await driver.lease(CPU=1)
            assert granted.resources == {"CPU": UNIT}
            assert granted.worker.node_id == agent.config.node_id
            assert exists(granted.worker.unix_path)
            assert agent.ledger.available["CPU"] == UNIT

    asyncio.run(scenario())


def test_a_returned_worker_is_leased_again(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            driver = await w.driver(await w.node())
            first = await driver.lease(CPU=1)
            driver.channel.send(LeaseReturn(first.lease_id))
            second = await driver.lease(CPU=1)
            assert second.worker.worker_id == first.worker.worker_id
            assert second.lease_id != first.lease_id

    asyncio.run(scenario())


def test_a_discarded_worker_is_not(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            driver = await w.driver(agent)
            first = await driver.lease(CPU=1)
            driver.channel.send(LeaseReturn(first.lease_id, discard=True))
            second = await driver.lease(CPU=2)
            assert second.worker.worker_id != first.worker.worker_id
            await w.until(lambda: agent.pool.table.get(first.worker.worker_id) is None)

    asyncio.run(scenario())


def test_what_does_not_fit_waits_for_a_return(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            driver = await w.driver(await w.node())
            driver.demand(3, CPU=1)
            first, _ = await driver.wait(LeaseGranted, 2)
            assert driver.heard == []
            driver.channel.send(LeaseReturn(first.lease_id))
            assert len(await driver.wait(LeaseGranted)) == 1

    asyncio.run(scenario())


def test_the_owner_hears_how_a_worker_died(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            driver = await w.driver(agent)
            granted = await driver.lease(CPU=1)
            worker = agent.pool.table.get(granted.worker.worker_id)
            assert worker is not None
            os.kill(worker.pid, signal.SIGKILL)
            lost = (await driver.wait(LeaseLost))[0]
            assert lost.lease_id == granted.lease_id
            assert "signal 9" in lost.reason
            assert agent.ledger.available["CPU"] == 2 * UNIT
            assert not exists(granted.worker.unix_path)

    asyncio.run(scenario())


def test_workers_die_with_the_owner_of_their_leases(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            driver = await w.driver(agent)
            granted = await driver.lease(CPU=1)
            worker = agent.pool.table.get(granted.worker.worker_id)
            assert worker is not None
            driver.channel.close()
            await w.until(lambda: not is_alive(worker.pid))
            await w.until(lambda: agent.ledger.available == agent.ledger.total)
            await w.until(lambda: len(agent.pool.table) == 0)
            assert not agent.is_busy()

    asyncio.run(scenario())


def test_workers_die_with_the_agent_even_if_the_zygote_is_killed(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            driver = await w.driver(agent)
            await driver.lease(CPU=1)
            workers = [worker.pid for worker in agent.pool.table if worker.pid]
            zygote = psutil.Process(workers[0]).ppid()
            os.kill(zygote, signal.SIGKILL)
            lost = (await driver.wait(LeaseLost))[0]
            assert "zygote" in lost.reason
            await w.until(lambda: not any(is_alive(pid) for pid in workers))
            assert (await driver.lease(CPU=1)).worker.worker_id

    asyncio.run(scenario())


def test_an_affinity_that_cannot_be_met_fails(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            driver = await w.driver(await w.node())
            strategy = SchedulingStrategy("NODE_AFFINITY", b"n" * 28)
            driver.channel.send(LeaseDemand(b"k", 1, ResourceRequest({"CPU": UNIT}, strategy)))
            failed = (await driver.wait(LeaseFailed))[0]
            assert failed.kind == ErrorKind.INVALID

    asyncio.run(scenario())


def test_an_environment_that_cannot_be_built_fails(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            driver = await w.driver(agent, runtime_env={"working_dir": f"gcs://_ray_pkg_{'0' * 64}.zip"})
            driver.demand(1, CPU=1)
            failed = (await driver.wait(LeaseFailed))[0]
            assert failed.kind == ErrorKind.RUNTIME_ENV
            assert "no such package" in failed.message
            assert agent.ledger.available == agent.ledger.total

    asyncio.run(scenario())


def test_an_infeasible_demand_is_explained_and_reported(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            driver = await w.driver(agent)
            driver.demand(2, CPU=16)
            note = (await driver.wait(DriverLogs))[0]
            assert (note.name, note.pid) == (AUTOSCALER, 0)
            assert note.lines == [
                "2 f task(s) wait for {CPU: 16}: No available node types can fulfill resource request"
            ]
            demands = agent.leases.demands()
            assert [(d.count, d.infeasible) for d in demands] == [(2, True)]

    asyncio.run(scenario())


def test_idle_workers_above_the_number_of_cpus_go(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node(resources={"CPU": 1})
            driver = await w.driver(agent)
            driver.demand(3)
            for granted in await driver.wait(LeaseGranted, 3):
                driver.channel.send(LeaseReturn(granted.lease_id))
            await w.until(lambda: len(agent.pool.table) == 1)

    asyncio.run(scenario())


def test_idle_workers_beside_as_many_leased_ones_as_cpus_go(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node(resources={"CPU": 1})
            driver = await w.driver(agent)
            driver.demand(2)
            granted = await driver.wait(LeaseGranted, 2)
            driver.channel.send(LeaseReturn(granted[0].lease_id))
            await w.until(lambda: len(agent.pool.table) == 1)

    asyncio.run(scenario())


def test_a_node_without_cpus_keeps_no_idle_worker(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node(resources={})
            driver = await w.driver(agent)
            driver.channel.send(LeaseReturn((await driver.lease()).lease_id))
            await w.until(lambda: len(agent.pool.table) == 0)

    asyncio.run(scenario())


def test_gpu_ids_are_handed_out(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            driver = await w.driver(await w.node(resources={"CPU": 2, "GPU": 2}))
            one = await driver.lease(b"a", GPU=1)
            two = await driver.lease(b"b", GPU=1)
            assert {*one.gpu_ids, *two.gpu_ids} == {"0", "1"}

    asyncio.run(scenario())


def test_a_full_node_leases_from_another_and_hears_of_deaths_there(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            here, there = await w.node(resources={"CPU": 1}), await w.node(resources={"CPU": 1})
            driver = await w.driver(here)
            driver.demand(2, CPU=1)
            granted = await driver.wait(LeaseGranted, 2)
            remote = next(g for g in granted if g.worker.node_id == there.config.node_id)
            worker = there.pool.table.get(remote.worker.worker_id)
            assert worker is not None
            os.kill(worker.pid, signal.SIGKILL)
            lost = (await driver.wait(LeaseLost))[0]
            assert lost.lease_id == remote.lease_id
            assert "signal 9" in lost.reason
            assert (await driver.lease(CPU=1)).worker.node_id == there.config.node_id

    asyncio.run(scenario())


def test_short_leases_elsewhere_leave_nothing_taken(world: MakeWorld) -> None:
    """Given back before the other node's next report, which so has nothing new to say."""

    async def scenario() -> None:
        async with world() as w:
            here, there = await w.node(resources={"CPU": 0}), await w.node(resources={"CPU": 1})
            driver = await w.driver(here)
            for _ in range(20):
                granted = await driver.lease(CPU=1)
                assert granted.worker.node_id == there.config.node_id
                driver.channel.send(LeaseReturn(granted.lease_id))

    asyncio.run(scenario())


def test_leases_elsewhere_end_with_their_owner(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            here, there = await w.node(resources={"CPU": 1}), await w.node(resources={"CPU": 1})
            driver = await w.driver(here)
            driver.demand(2, CPU=1)
            await driver.wait(LeaseGranted, 2)
            driver.channel.close()
            await w.until(lambda: there.ledger.available == there.ledger.total)
            await w.until(lambda: len(there.pool.table) == 0)

    asyncio.run(scenario())


def test_leases_on_a_node_that_stops_are_lost(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            here, there = await w.node(resources={"CPU": 1}), await w.node(resources={"CPU": 1})
            driver = await w.driver(here)
            driver.demand(2, CPU=1)
            await driver.wait(LeaseGranted, 2)
            await there.stop()
            w.agents.remove(there)
            lost = (await driver.wait(LeaseLost))[0]
            assert lost.node_died

    asyncio.run(scenario())


def test_a_worker_that_hangs_before_it_registers_is_replaced(world: MakeWorld, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            start = agent.pool._start
            right = start["agent_socket"]
            with socket.socket(socket.AF_UNIX) as silent:
                silent.bind(str(tmp_path / "silent"))
                silent.listen()
                start["agent_socket"] = str(tmp_path / "silent")
                driver = await w.driver(agent)
                driver.demand(1, CPU=1)
                await w.until(lambda: any(worker.pid for worker in agent.pool.table))
                start["agent_socket"] = right
                for worker in agent.pool.table:
                    worker.idle_since -= worker_pool.START_S  # as if it had started so long ago
                assert await driver.wait(LeaseGranted)

    asyncio.run(scenario())
