"""Workers of several interpreters on a real node."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from runtime._core.workers import WorkerState
from runtime._node import worker_pool
from runtime._wire.messages.base import ResourceRequest
from runtime._wire.messages.node import LeaseDemand, LeaseFailed, LeaseGranted, LeaseReturn

from .conftest import MakeWorld
from .world import Client

OWN_PYTHON = '{"env_vars": {"PYTHONHASHSEED": "1"}}'


async def lease(driver: Client, env: str, key: bytes = b"e") -> LeaseGranted:
    driver.channel.send(LeaseDemand(key, 1, ResourceRequest({"CPU": 10_000}), env))
    return (await driver.wait(LeaseGranted))[0]


def test_an_interpreter_that_nobody_uses_ends(world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "UNUSED_S", 0.2)

    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            driver = await w.driver(agent)
            granted = await lease(driver, OWN_PYTHON)
            hosts = agent.pool._hosts
            assert len(hosts) == 2
            assert (driver.registered.job_id, OWN_PYTHON) in agent.environments.current
            await asyncio.sleep(0)
            driver.channel.send(LeaseReturn(granted.lease_id))
            await w.until(lambda: len(hosts) == 1)
            assert agent.environments.current == [(driver.registered.job_id, "")]
            again = await lease(driver, OWN_PYTHON)
            assert again.worker.worker_id != granted.worker.worker_id

    asyncio.run(scenario())


def test_a_zygote_that_is_killed_takes_its_own_workers_only(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            driver = await w.driver(agent)
            plain = await lease(driver, "", b"p")
            other = await lease(driver, OWN_PYTHON)
            [host] = [h for h in agent.pool._hosts.values() if h.interpreter.variables]
            assert host._zygote is not None
            os.kill(host._zygote.pid, signal.SIGKILL)
            table = agent.pool.table
            await w.until(lambda: table.get(other.worker.worker_id) is None)
            worker = table.get(plain.worker.worker_id)
            assert worker is not None
            assert worker.state is WorkerState.LEASED
            await w.until(lambda: host.is_up)
            again = await lease(driver, OWN_PYTHON, b"f")
            assert table.get(again.worker.worker_id) is not None

    asyncio.run(scenario())


def test_a_python_that_does_not_start_fails_all_that_wait(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            driver = await w.driver(agent)
            env = '{"py_executable": "false"}'
            for key in (b"1", b"2"):
                driver.channel.send(LeaseDemand(key, 1, ResourceRequest({}), env))
            failed = await driver.wait(LeaseFailed, 2)
            assert {message.class_key for message in failed} == {b"1", b"2"}
            assert "does not start" in failed[0].message
            assert len(agent.pool._hosts) == 1

    asyncio.run(scenario())


def test_a_delayed_zygote_comes_when_a_worker_is_wanted(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node(zygote_delay_s=1000.0)
            assert agent.pool._hosts == {}
            driver = await w.driver(agent)
            granted = await lease(driver, "")
            assert agent.pool.table.get(granted.worker.worker_id) is not None
            assert len(agent.pool._hosts) == 1

    asyncio.run(scenario())


def test_a_delayed_zygote_comes_by_itself(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node(zygote_delay_s=0.01)
            hosts = agent.pool._hosts
            await w.until(lambda: any(host.is_up for host in hosts.values()))
            (host,) = hosts.values()
            await host.wait_ready()
            await lease(await w.driver(agent), "")
            assert list(hosts.values()) == [host]

    asyncio.run(scenario())


def refuse(*_: object) -> None:
    """Instead of starting a process."""
    raise BlockingIOError("no process is left")


def test_an_agent_whose_zygote_cannot_be_started_again_ends(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> str:
        async with world() as w:
            agent = await w.node()
            [host] = agent.pool._hosts.values()
            assert host._zygote is not None
            monkeypatch.setattr("runtime._node.zygote_host.spawn_zygote", refuse)
            os.kill(host._zygote.pid, signal.SIGKILL)
            async with asyncio.timeout(60):
                await agent.finished.wait()
            return agent.reason

    assert asyncio.run(scenario()) == "the worker zygote cannot be started again: no process is left"


def test_an_agent_whose_delayed_zygote_cannot_be_started_ends(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime._node.zygote_host.spawn_zygote", refuse)

    async def scenario() -> str:
        async with world() as w:
            agent = await w.node(zygote_delay_s=0.01)
            async with asyncio.timeout(60):
                await agent.finished.wait()
            return agent.reason

    assert asyncio.run(scenario()) == "the worker zygote cannot be started: no process is left"
