"""Jobs on a real node agent: their drivers, their working directories, their output, the node's own life."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from runtime._core import environments
from runtime._core.environments import package_key, package_uri
from runtime._node import registry
from runtime._node.worker_pool import WorkerPool
from runtime._transport.channel import CallError
from runtime._transport.unix import connect_unix
from runtime._wire.messages.base import ErrorKind
from runtime._wire.messages.control import (
    Drain,
    GetClusterInfo,
    GetNodes,
    JobInfo,
    KvPut,
    ListJobs,
    Resume,
)
from runtime._wire.messages.node import (
    DriverLogs,
    LeaseGranted,
    LeaseRecall,
    LeaseReturn,
    Register,
    StoreUnpin,
)
from tests.runtime._node.world import Client, MakeWorld, exists


async def upload(driver: Client, key: str, data: bytes) -> None:
    """Puts a package there before any job names it."""
    await driver.channel.call(KvPut(environments.PACKAGE_HOLDS, b"test", environments.hold([key])))
    await driver.channel.call(KvPut(environments.PACKAGES, key.encode(), data))


def package(files: dict[str, str]) -> tuple[str, bytes]:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    data = buffer.getvalue()
    return hashlib.sha256(data).hexdigest(), data


def append(session_dir: str, worker_id: bytes, text: str) -> None:
    """Writes into a worker's output file as the worker would."""
    log = next(Path(session_dir, "logs").glob(f"worker-{worker_id.hex()}*.out"))
    with log.open("a") as file:
        file.write(text)


async def only_job(driver: Client) -> JobInfo:
    return (await driver.channel.call(ListJobs())).jobs[0]


def test_a_driver_is_a_job_until_its_socket_closes(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            first = await w.driver(agent)
            assert (await only_job(first)).state == "RUNNING"
            second = await w.driver(agent)
            first.channel.close()
            job_id = first.registered.job_id
            await w.until(lambda: agent.jobs.get(job_id) is None)
            assert (await only_job(second)).state == "FINISHED"

    asyncio.run(scenario())


def test_workers_are_started_before_they_are_needed(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node(resources={"CPU": 3})
            await w.driver(agent)
            await w.until(lambda: agent.pool.table.counts().idle == 3)

    asyncio.run(scenario())


def test_requests_for_the_control_store_are_passed_on(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            driver = await w.driver(agent)
            nodes = (await driver.channel.call(GetNodes())).nodes
            assert [node.node_id for node in nodes] == [agent.config.node_id]
            info = await driver.channel.call(GetClusterInfo())
            assert info.cluster_id == driver.registered.cluster_id

    asyncio.run(scenario())


def test_nothing_is_answered_before_registration(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            channel = await connect_unix(agent.unix_path)
            with pytest.raises(CallError, match="register first"):
                await channel.call(GetNodes())
            with pytest.raises(CallError, match="token") as caught:
                await channel.call(Register(False, Client().address, os.getpid(), startup_token=999))
            assert caught.value.kind == ErrorKind.INVALID
            channel.close()

    asyncio.run(scenario())


def test_workers_run_in_the_jobs_working_directory(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            digest, data = package({"module.py": "VALUE = 1\n", "data/file.txt": "x"})
            await upload(await w.driver(agent), package_key(digest), data)
            runtime_env = {"working_dir": package_uri(digest), "env_vars": {"JOB_SAYS": "hello"}}
            driver = await w.driver(agent, runtime_env=runtime_env)
            granted = await driver.lease(CPU=1)
            worker = agent.pool.table.get(granted.worker.worker_id)
            assert worker is not None
            folder = psutil.Process(worker.pid).cwd()
            assert folder.startswith(f"{agent.config.session_dir}/environments/")
            assert exists(f"{folder}/data/file.txt")
            assert agent.environments.ready((driver.registered.job_id, "")) is not None

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ["../outside.py", "/etc/outside.py"])
def test_a_package_that_reaches_outside_is_refused(world: MakeWorld, name: str) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            digest, data = package({name: "x"})
            await upload(await w.driver(agent), package_key(digest), data)
            driver = await w.driver(agent, runtime_env={"working_dir": package_uri(digest)})
            with pytest.raises(CallError, match="leads out") as caught:
                await agent.environments.prepare((driver.registered.job_id, ""))
            assert caught.value.kind == ErrorKind.RUNTIME_ENV

    asyncio.run(scenario())


def test_a_package_with_other_content_is_refused(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            key = package_key("0" * 64)
            await upload(await w.driver(agent), key, b"PK")
            driver = await w.driver(agent, runtime_env={"working_dir": f"gcs://{key}"})
            with pytest.raises(CallError, match="does not match"):
                await agent.environments.prepare((driver.registered.job_id, ""))

    asyncio.run(scenario())


def test_lines_of_workers_reach_the_driver(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            driver = await w.driver(agent)
            granted = await driver.lease(CPU=1)
            worker = agent.pool.table.get(granted.worker.worker_id)
            assert worker is not None
            append(agent.config.session_dir, worker.worker_id, "\x01name:work\none\ntwo\n")
            lines = (await driver.wait(DriverLogs))[0]
            assert (lines.name, lines.lines, lines.pid) == ("work", ["one", "two"], worker.pid)

    asyncio.run(scenario())


def test_lines_count_before_the_zygote_tells_of_the_worker(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WorkerPool, "worker_forked", lambda *_: None)

    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            driver = await w.driver(agent)
            granted = await driver.lease(CPU=1)
            append(agent.config.session_dir, granted.worker.worker_id, "the only line\n")
            heard = [line for batch in await driver.wait(DriverLogs) for line in batch.lines]
            assert heard == ["the only line"]

    asyncio.run(scenario())


def test_a_drained_node_grants_nothing_and_is_refused_while_busy(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            driver = await w.driver(agent)
            granted = await driver.lease(CPU=1)
            with pytest.raises(CallError) as caught:
                agent._control_handler.handle(driver.channel, Drain("test", only_if_idle=True))
            assert caught.value.kind == ErrorKind.BUSY
            agent._control_handler.handle(driver.channel, Drain("test", only_if_idle=False))
            driver.demand(1, CPU=1)
            await driver.channel.call(GetNodes())
            assert not [m for m in driver.heard if isinstance(m, LeaseGranted)]
            assert granted.lease_id

    asyncio.run(scenario())


def test_a_drained_node_asks_its_leases_back_and_works_again_when_it_is_called_back(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            driver = await w.driver(agent)
            granted = await driver.lease(CPU=1)
            assert [(held.request.resources, held.count) for held in agent.leases.held()] == [
                ({"CPU": 10_000}, 1)
            ]
            assert agent.bound_by() == "a driver"
            agent._control_handler.handle(driver.channel, Drain("test", only_if_idle=False))
            assert (await driver.wait(LeaseRecall))[0].lease_id == granted.lease_id
            driver.channel.send(LeaseReturn(granted.lease_id))
            await w.until(lambda: agent.leases.count == 0)
            assert agent.leases.held() == []
            driver.demand(1, CPU=1)
            await driver.channel.call(GetNodes())
            assert not [m for m in driver.heard if isinstance(m, LeaseGranted)]
            agent._control_handler.handle(driver.channel, Resume("test"))
            assert (await driver.wait(LeaseGranted))[0].resources == {"CPU": 10_000}

    asyncio.run(scenario())


async def at_once(condition: Callable[[], bool]) -> None:
    """Returns in the very step of the loop after which the condition is true."""
    async with asyncio.timeout(60):
        while True:
            if condition():
                return
            await asyncio.sleep(0)


def test_a_worker_that_comes_while_its_node_drains_is_not_leased(world: MakeWorld) -> None:
    """Nobody would ask that lease back: whoever has it would send task after task."""

    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            driver = await w.driver(agent)
            driver.demand(1, CPU=1)
            await at_once(lambda: agent.leases.count == 1)
            assert not agent.leases.holders()
            agent._control_handler.handle(driver.channel, Drain("test", only_if_idle=False))
            await w.until(lambda: agent.leases.count == 0)
            assert agent.ledger.available == agent.ledger.total
            await driver.channel.call(GetNodes())
            assert not [m for m in driver.heard if isinstance(m, LeaseGranted)]
            agent._control_handler.handle(driver.channel, Resume("test"))
            await driver.wait(LeaseGranted)

    asyncio.run(scenario())


def test_a_worker_that_comes_while_another_node_drains_is_not_leased(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            here, there = await w.node(resources={"CPU": 0}), await w.node(resources={"CPU": 1})
            driver = await w.driver(here)
            driver.demand(1, CPU=1)
            await at_once(lambda: there.leases.count == 1)
            assert not there.leases.holders()
            there._control_handler.handle(driver.channel, Drain("test", only_if_idle=False))
            third = await w.node(resources={"CPU": 1})
            assert (await driver.wait(LeaseGranted))[0].worker.node_id == third.config.node_id
            await w.until(lambda: there.leases.count == 0)
            assert there.ledger.available == there.ledger.total

    asyncio.run(scenario())


def test_a_lease_that_is_asked_back_as_it_is_granted(world: MakeWorld) -> None:
    """The request comes behind the grant, before the asking agent has taken note of it."""

    async def scenario() -> None:
        async with world() as w:
            here, there = await w.node(resources={"CPU": 0}), await w.node(resources={"CPU": 1})
            driver = await w.driver(here)
            driver.demand(1, CPU=1)
            await at_once(lambda: bool(there.leases.holders()))
            there._control_handler.handle(driver.channel, Drain("test", only_if_idle=False))
            granted = (await driver.wait(LeaseGranted))[0]
            assert (await driver.wait(LeaseRecall))[0].lease_id == granted.lease_id

    asyncio.run(scenario())


def test_an_idle_node_says_since_when(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            assert agent.reporter.idle_since_s > 0
            driver = await w.driver(agent)
            await w.until(lambda: agent.is_busy())
            agent.reporter.note_idleness()
            assert agent.reporter.idle_since_s == 0
            driver.channel.close()
            await w.until(lambda: agent.reporter.idle_since_s > 0)

    asyncio.run(scenario())


def test_an_agent_is_found_while_it_lives(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            found = registry.records()
            assert [record.unix_path for record in found] == [agent.unix_path]
            await agent.stop()
            w.agents.clear()
            assert registry.records() == []

    asyncio.run(scenario())


def test_an_agent_for_one_driver_ends_with_it(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node(exit_with_driver=True)
            driver = await w.driver(agent)
            driver.channel.send(StoreUnpin([]))
            driver.channel.close()
            async with asyncio.timeout(60):
                await agent.finished.wait()
            assert "driver" in agent.reason

    asyncio.run(scenario())


def test_an_agent_without_control_store_ends(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node(control_reconnect_s=0.1)

            async def refuse(handler: Any) -> Any:
                raise CallError(ErrorKind.UNAVAILABLE, "gone")

            agent.control._connect = refuse
            await w.control.stop()
            async with asyncio.timeout(60):
                await agent.finished.wait()
            assert "control store" in agent.reason

    asyncio.run(scenario())


def test_a_driver_learns_the_version_of_python(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            driver = await w.driver(await w.node())
            assert driver.registered.python_version == "{}.{}".format(*sys.version_info)

    asyncio.run(scenario())
