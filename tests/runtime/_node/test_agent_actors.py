"""Actors on a real node agent: resources, constructors, repeated requests, ends."""

from __future__ import annotations

import asyncio
import os
import pathlib
import pickle
import signal
from typing import Any

import cloudpickle
import msgspec
import pytest

from runtime._core.ids import actor_id
from runtime._core.resources import UNIT
from runtime._core.workers import WorkerState
from runtime._node import reporter
from runtime._node.agent import NodeAgent
from runtime._transport.channel import CallError
from runtime._wire.messages import codec
from runtime._wire.messages.base import ErrorKind, ResourceRequest
from runtime._wire.messages.control import (
    ActorSpec,
    ActorStarted,
    GetNodes,
    KvPut,
    RegisterActor,
    StartActor,
    StopActor,
)
from runtime._wire.messages.worker import ActorSetup, Push, Value
from tests.polling import eventually
from tests.processes import is_alive
from tests.runtime._node.world import Client, MakeWorld

KEY = b"k" * 16


class Plain:
    """An actor that does nothing."""


class Broken:
    """An actor that cannot be made."""

    def __init__(self) -> None:
        raise ValueError("broken on purpose")


class Dying:
    """An actor whose process ends in its constructor."""

    def __init__(self) -> None:
        os._exit(7)


async def spec(driver: Client, cls: type, cpus: float = 1, held: dict[str, int] | None = None) -> ActorSpec:
    cloudpickle.register_pickle_by_value(__import__(__name__, fromlist=["x"]))
    await driver.channel.call(KvPut("functions", KEY, cloudpickle.dumps(cls)))
    job_id = driver.registered.job_id
    name = actor_id(job_id)
    setup = ActorSetup(name, 1, "", "", cls.__name__)
    push = Push(bytes(8) + name, KEY, "__init__", None, [], 0, driver.address, actor=setup)
    return ActorSpec(
        name,
        job_id,
        cls.__name__,
        "",
        "",
        driver.address,
        False,
        0,
        0,
        1,
        ResourceRequest({"CPU": round(cpus * UNIT)}),
        held or {},
        "",
        KEY,
        codec.encode(push),
    )


async def start(agent: NodeAgent, made: ActorSpec, restarts: int = 0) -> ActorStarted:
    async with asyncio.timeout(60):
        return await agent.actors.start(StartActor(made, restarts))


def test_an_actor_keeps_only_what_it_holds(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            driver = await w.driver(agent)
            started = await start(agent, await spec(driver, Plain))
            assert started.error == b""
            assert agent.ledger.available["CPU"] == 2 * UNIT
            await start(agent, await spec(driver, Plain, held={"CPU": UNIT}))
            assert agent.ledger.available["CPU"] == UNIT
            assert len(agent.actors.alive()) == 2

    asyncio.run(scenario())


def test_the_control_store_counts_what_an_actor_holds_once(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporter, "LOOK_S", 1000.0)  # which would put it right by and by

    async def scenario() -> None:
        async with world() as w, asyncio.timeout(60):
            agent = await w.node(resources={"CPU": 100})
            driver = await w.driver(agent)
            for count in range(1, 6):
                made = await spec(driver, Plain, held={"CPU": UNIT})
                await driver.channel.call(RegisterActor(made))
                await w.until(lambda count=count: len(agent.actors.alive()) == count)
                while await free(driver) != (100 - count) * UNIT:  # noqa: ASYNC110 (asked from outside)
                    await asyncio.sleep(0.01)

    async def free(driver: Client) -> int:
        (node,) = (await driver.channel.call(GetNodes())).nodes
        return node.available["CPU"]

    asyncio.run(scenario())


def test_a_repeated_request_finds_the_same_actor(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            made = await spec(await w.driver(agent), Plain)
            first, second = await asyncio.gather(start(agent, made), start(agent, made))
            third = await start(agent, made)
            assert first.pid == second.pid == third.pid

    asyncio.run(scenario())


def test_without_the_resources_it_is_refused_at_once(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            made = await spec(await w.driver(agent), Plain, cpus=3)
            with pytest.raises(CallError) as caught:
                await start(agent, made)
            assert caught.value.kind == ErrorKind.BUSY
            assert agent.actors.count == 0

    asyncio.run(scenario())


def test_a_constructor_that_raises_carries_its_error(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            started = await start(agent, await spec(await w.driver(agent), Broken))
            value: Any = msgspec.msgpack.decode(started.error, type=Value)
            assert value.kind == 1
            assert b"broken on purpose" in value.data
            await w.until(lambda: not is_alive(started.pid))
            assert agent.actors.count == 0
            assert agent.ledger.available == agent.ledger.total

    asyncio.run(scenario())


def test_a_process_whose_constructor_raised_has_not_crashed(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    """Not even when the answer and the process's end are heard of at the same time."""
    crashes: list[str] = []
    gate = str(tmp_path / "gate")
    os.mkfifo(gate)

    class BrokenOnCommand:
        def __init__(self) -> None:
            with open(gate):
                raise ValueError("broken on purpose")

    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            monkeypatch.setattr(agent.output, "crash_notice", lambda _, reason: crashes.append(reason))
            starting = asyncio.create_task(start(agent, await spec(await w.driver(agent), BrokenOnCommand)))
            await w.until(lambda: any(holder.worker.pid for holder in agent.actors.holders()))
            pid = agent.actors.holders()[0].worker.pid
            # From here on the agent hears nothing until the process has gone.
            assert opened(gate)
            assert eventually(lambda: not is_alive(pid))
            assert (await starting).error
            await w.until(lambda: agent.ledger.available == agent.ledger.total)
        assert crashes == []

    asyncio.run(scenario())


def test_the_last_messages_of_a_process_count_even_if_its_end_is_heard_of_first(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setattr("runtime._node.worker_pool._LAST_MESSAGES_S", 1000.0)
    crashes: list[str] = []
    gate = str(tmp_path / "gate")
    os.mkfifo(gate)

    class BrokenOnCommand:
        def __init__(self) -> None:
            with open(gate):
                raise ValueError("broken on purpose")

    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            monkeypatch.setattr(agent.output, "crash_notice", lambda _, reason: crashes.append(reason))
            starting = asyncio.create_task(start(agent, await spec(await w.driver(agent), BrokenOnCommand)))
            await w.until(lambda: any(holder.worker.pid for holder in agent.actors.holders()))
            worker = agent.actors.holders()[0].worker
            worker.channel._transport.pause_reading()
            await asyncio.to_thread(opened, gate)
            await w.until(lambda: not worker.host.runs(worker))
            worker.channel._transport.resume_reading()
            assert (await starting).error
            await w.until(lambda: worker.state is WorkerState.DEAD)
        assert crashes == []

    asyncio.run(scenario())


def opened(gate: str) -> bool:
    """Lets whoever reads it go on."""
    os.close(os.open(gate, os.O_WRONLY))
    return True


def test_a_process_that_dies_in_the_constructor_says_how(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            made = await spec(await w.driver(agent), Dying)
            with pytest.raises(CallError, match="exit code 7"):
                await start(agent, made)
            assert agent.ledger.available == agent.ledger.total

    asyncio.run(scenario())


def test_a_stopped_actor_gives_back_what_it_held(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            made = await spec(await w.driver(agent), Plain, held={"CPU": UNIT})
            started = await start(agent, made)
            agent.actors.stop(StopActor(made.actor_id, graceful=False))
            await w.until(lambda: agent.ledger.available == agent.ledger.total)
            assert not is_alive(started.pid)

    asyncio.run(scenario())


def test_a_graceful_stop_lets_the_worker_end_by_itself(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            made = await spec(await w.driver(agent), Plain)
            started = await start(agent, made)
            agent.actors.stop(StopActor(made.actor_id, graceful=True))
            await w.until(lambda: not is_alive(started.pid))
            await w.until(lambda: agent.actors.count == 0)

    asyncio.run(scenario())


def test_a_killed_actor_can_be_started_again(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            made = await spec(await w.driver(agent), Plain)
            started = await start(agent, made)
            os.kill(started.pid, signal.SIGKILL)
            await w.until(lambda: agent.actors.count == 0)
            again = await start(agent, made, restarts=1)
            assert again.pid != started.pid

    asyncio.run(scenario())


def test_actors_end_with_their_job(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            driver = await w.driver(agent)
            started = await start(agent, await spec(driver, Plain))
            detached = msgspec.structs.replace(await spec(driver, Plain), detached=True)
            kept = await start(agent, detached)
            driver.channel.close()
            await w.until(lambda: not is_alive(started.pid))
            assert is_alive(kept.pid)

    asyncio.run(scenario())


def test_a_creation_that_is_no_constructor_call_is_refused(world: MakeWorld) -> None:
    async def scenario() -> None:
        async with world() as w:
            agent = await w.node()
            made = msgspec.structs.replace(await spec(await w.driver(agent), Plain), creation=pickle.dumps(1))
            with pytest.raises(CallError) as caught:
                await start(agent, made)
            assert caught.value.kind == ErrorKind.INVALID

    asyncio.run(scenario())
