"""What a large cluster costs its control store: `python scripts/bench/control_plane.py [--agents 1000]`.

One real control store process on its SQLite file serves simulated agents: each is the agent's own control client,
accounts and reporter over TCP, without the workers. They join, beat, report changes, hold actors and bundles. The
calls are timed from this process, which does nothing else. Prints one line of JSON: CPU in percent of one core, times
in milliseconds, memory in MiB.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import random
import resource
import shutil
import sys
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import psutil

from runtime._clients.control import ControlClient
from runtime._core.ledger import Allocation, Ledger
from runtime._core.resources import to_units
from runtime._node.cluster import Cluster
from runtime._node.reporter import Reporter
from runtime._session import new_session_dir, start_control, write_secret
from runtime._transport.channel import CallError, Channel
from runtime._wire.messages.base import (
    ErrorKind,
    Message,
    NodeInfo,
    Ok,
    ResourceRequest,
    SchedulingStrategy,
    WorkerAddress,
)
from runtime._wire.messages.control import (
    ActorSpec,
    ActorStarted,
    AddJob,
    ClusterView,
    GetClusterInfo,
    GetNamedActor,
    GetNodes,
    KvGet,
    KvPut,
    RegisterActor,
    RegisterNode,
    StartActor,
    StopActor,
    WatchActor,
)
from runtime._wire.messages.groups import (
    CommitBundle,
    CreatePlacementGroup,
    GroupsReserved,
    PrepareBundle,
    RemovePlacementGroup,
    ReserveGroups,
    ReturnBundles,
    WatchPlacementGroup,
)

AGENT_PROCESSES = 2
RESOURCES = {"CPU": 32.0, "memory": 128e9, "object_store_memory": 32e9}
STARTING_S = 120.0
AT_ONCE = 50
"""Requests for actors and groups that are under way at the same time."""


# ---------------------------------------------------------------- the agents


class SimulatedAgent:
    """One node: what its agent says to the control store and answers it."""

    def __init__(self, address: str, secret: bytes, number: int) -> None:
        self.node_id = number.to_bytes(4, "big") + os.urandom(24)
        self.ledger = Ledger(to_units(RESOURCES))
        self._number = number
        self._actors: dict[bytes, Allocation] = {}
        self._load: Allocation | None = None
        labels = {"zone": f"z{number % 3}", "rack": f"r{number % 40}"}
        self.cluster = Cluster(self.node_id, self.ledger, labels, lambda info: None)
        self.control = ControlClient.over_tcp(
            address, secret, self._handle, self._register, reconnect_timeout_s=60.0, connect_timeout_s=60.0
        )
        self.reporter = Reporter(
            self.node_id,
            self.control,
            self.ledger,
            lambda: bool(self._actors or self.ledger.bundles()),
            list,
            list,
            str,
            lambda: 0,
            lambda: None,
        )

    async def start(self) -> None:
        await self.control.start(STARTING_S)
        self.reporter.start()

    async def close(self) -> None:
        self.reporter.close()
        await self.control.close()

    def change(self) -> None:
        """A task begins or ends."""
        if self._load is None:
            self._load = self.ledger.allocate(to_units({"CPU": 1.0}))
        else:
            self.ledger.release(self._load)
            self._load = None
        self.reporter.changed()

    async def _register(self, channel: Channel) -> None:
        info = NodeInfo(
            self.node_id,
            "ALIVE",
            f"10.1.{self._number // 250}.{self._number % 250}:40000",
            f"/tmp/session/sockets/agent-{self._number}",
            f"10.1.{self._number // 250}.{self._number % 250}",
            f"node-{self._number}",
            False,
            "/tmp/session",
            dict(self.ledger.total),
            dict(self.ledger.available),
            self.cluster.table.local.labels,
            started_s=time.time(),
        )
        registered = await channel.call(RegisterNode(info), STARTING_S)
        self.cluster.update(registered.nodes, whole=True)

    def _handle(self, channel: Channel, message: Message) -> Message | None:
        if isinstance(message, ClusterView):
            self.cluster.update(message.nodes)
            self.cluster.update_loads(message.loads)
            return None
        try:
            return self._work(message)
        finally:
            self.reporter.changed()

    def _work(self, message: Message) -> Message | None:
        ledger = self.ledger
        if isinstance(message, StartActor):
            spec = message.spec
            taken = ledger.allocate(spec.placement.resources)
            if taken is None:
                raise CallError(ErrorKind.BUSY, "no room now")
            ledger.shrink(taken, spec.held)
            self._actors[spec.actor_id] = taken
            return ActorStarted(WorkerAddress(os.urandom(28), self.node_id, "", "10.1.0.1", 40001), 4711)
        if isinstance(message, StopActor):
            if (held := self._actors.pop(message.actor_id, None)) is not None:
                ledger.release(held)
            return None
        if isinstance(message, PrepareBundle):
            if not ledger.prepare_bundle(message.pg_id, message.index, message.resources):
                raise CallError(ErrorKind.BUSY, "no room now")
            return Ok()
        if isinstance(message, CommitBundle):
            ledger.commit_bundle(message.pg_id, message.index)
            return Ok()
        if isinstance(message, ReserveGroups):
            groups = message.groups
            return GroupsReserved(
                [group.pg_id for group in groups if not ledger.reserve_bundles(group.pg_id, group.bundles)]
            )
        if isinstance(message, ReturnBundles):
            for pg_id, index in message.bundles:
                ledger.return_bundle(pg_id, index)
            return Ok()
        return None


def run_agents(address: str, secret: bytes, numbers: range, orders: Connection) -> None:
    """A process with many agents. It answers each order on the pipe when it is carried out."""
    asyncio.run(_run_agents(address, secret, numbers, orders))


async def _run_agents(address: str, secret: bytes, numbers: range, orders: Connection) -> None:
    agents = [SimulatedAgent(address, secret, number) for number in numbers]
    gate = asyncio.Semaphore(32)

    async def join(agent: SimulatedAgent) -> None:
        async with gate:
            await agent.start()

    await asyncio.gather(*(join(agent) for agent in agents))
    orders.send("joined")
    updates: asyncio.Task[None] | None = None
    while True:
        order = await asyncio.to_thread(orders.recv)
        if updates is not None:
            updates.cancel()
            updates = None
        if order == "end":
            await asyncio.gather(*(agent.close() for agent in agents))
            orders.send("ended")
            return
        if order[0] == "know":
            orders.send(min(len(agent.cluster.table.others) for agent in agents))
        elif order[0] == "update" and order[1]:
            updates = asyncio.create_task(_update(agents, order[1]))


async def _update(agents: list[SimulatedAgent], per_second: float) -> None:
    rng = random.Random(1)
    while True:
        rng.choice(agents).change()
        await asyncio.sleep(rng.expovariate(per_second))


class Agents:
    """All agents, in a few processes."""

    def __init__(self, address: str, secret: bytes, count: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.count = count
        self._pipes: list[Connection] = []
        self._processes = []
        share = -(-count // AGENT_PROCESSES)
        for first in range(0, count, share):
            ours, theirs = context.Pipe()
            numbers = range(first, min(count, first + share))
            process = context.Process(target=run_agents, args=(address, secret, numbers, theirs), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def joined(self) -> None:
        """Returns when each is a member and knows all the others."""
        for pipe in self._pipes:
            pipe.recv()
        while self._known() < self.count - 1:
            time.sleep(0.1)

    def _known(self) -> int:
        for pipe in self._pipes:
            pipe.send(("know", 0))
        return min(pipe.recv() for pipe in self._pipes)

    def update(self, per_second: float) -> None:
        """From now on so many changes of what is free, over all agents."""
        for pipe in self._pipes:
            pipe.send(("update", per_second / len(self._pipes)))

    def end(self) -> None:
        for pipe in self._pipes:
            with contextlib.suppress(OSError):
                pipe.send("end")
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            with contextlib.suppress(OSError, EOFError):
                if pipe.poll(20.0):
                    pipe.recv()
            process.join(10.0)
            process.kill()


# ---------------------------------------------------------------- the measurements


class Timed:
    """Latencies of calls, by kind."""

    def __init__(self) -> None:
        self._taken: dict[str, list[float]] = {}

    async def call(self, kind: str, work: Awaitable[Any]) -> Any:
        began = time.perf_counter()
        result = await work
        self._taken.setdefault(kind, []).append(time.perf_counter() - began)
        return result

    def results(self) -> dict[str, dict[str, float]]:
        return {
            kind: {"p50_ms": _percentile(taken, 0.5), "p99_ms": _percentile(taken, 0.99), "count": len(taken)}
            for kind, taken in self._taken.items()
        }


def _percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return round(1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3)


class Measured:
    """The control store's process as the system accounts for it."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)

    def cpu_s(self) -> float:
        times = self._process.cpu_times()
        return times.user + times.system

    def memory_mib(self) -> float:
        return round(self._process.memory_full_info().uss / 2**20, 1)

    async def cpu_percent(self, seconds: float) -> float:
        """Of one core, over the next `seconds`."""
        began_s, before = time.perf_counter(), self.cpu_s()
        await asyncio.sleep(seconds)
        return round(100 * (self.cpu_s() - before) / (time.perf_counter() - began_s), 2)


def actor_spec(number: int, job_id: bytes, owner: WorkerAddress) -> ActorSpec:
    """An actor as a driver would register it."""
    return ActorSpec(
        actor_id=number.to_bytes(12, "big") + job_id,
        job_id=job_id,
        class_name="Actor",
        name=f"actor-{number}" if number % 100 == 0 else "",
        namespace="bench",
        owner=owner,
        detached=False,
        max_restarts=0,
        max_task_retries=0,
        max_concurrency=1,
        placement=ResourceRequest(to_units({"CPU": 1.0}), SchedulingStrategy()),
        held={},
        runtime_env="",
        function_key=b"f" * 28,
        creation=b"c" * 300,
    )


class Bench:
    """The calls that a cluster's drivers and workers make, and what they cost."""

    def __init__(self, control: ControlClient, measured: Measured, options: argparse.Namespace) -> None:
        self._control = control
        self._measured = measured
        self._options = options
        self._owner = WorkerAddress(os.urandom(28), os.urandom(28), "")
        self._job_id = b""

    async def calls(self, timed: Timed) -> None:
        """A call of each kind in turn, some at a time apart."""
        control = self._control
        for number in range(self._options.calls):
            key = f"key-{number}".encode()
            await timed.call("kv put", control.call(KvPut("bench", key, b"v" * 100)))
            await timed.call("kv get", control.call(KvGet("bench", key)))
            await timed.call("cluster info", control.call(GetClusterInfo()))
            with contextlib.suppress(CallError):
                await timed.call("named actor", control.call(GetNamedActor("actor-100", "bench")))
            if number % 20 == 0:
                await timed.call("all nodes", control.call(GetNodes()))
            await asyncio.sleep(0.01)

    async def phase(self) -> dict[str, Any]:
        """CPU of the control store left alone, and then how fast it answers."""
        cpu = await self._measured.cpu_percent(self._options.seconds)
        timed = Timed()
        await self.calls(timed)
        return {"cpu_percent": cpu, "calls": timed.results(), "memory_mib": self._measured.memory_mib()}

    async def actors(self) -> dict[str, Any]:
        """Registers actors and waits until each is alive."""
        job = await self._control.call(AddJob(b"", self._owner, 1, "bench", "bench", "{}"))
        self._job_id = job.job_id

        async def one(number: int, timed: Timed) -> None:
            spec = actor_spec(number, self._job_id, self._owner)
            info = await timed.call("register actor", self._control.call(RegisterActor(spec)))
            began = time.perf_counter()
            while info.state != "ALIVE":
                watch = WatchActor(spec.actor_id, info.version)
                info = await self._control.call(watch, 60.0)
                if time.perf_counter() - began > STARTING_S:
                    raise RuntimeError(f"actor {number} is {info.state}: {info.death_reason}")

        return await self._many(self._options.actors, one)

    async def groups(self) -> dict[str, Any]:
        """Creates placement groups of two bundles, waits until each is reserved, removes it."""

        async def one(number: int, timed: Timed) -> None:
            pg_id = number.to_bytes(14, "big") + self._job_id
            bundle = to_units({"CPU": 1.0})
            request = CreatePlacementGroup(
                pg_id, "", "bench", "STRICT_SPREAD", [bundle, bundle], self._job_id, False
            )
            began = time.perf_counter()
            info = await timed.call("create group", self._control.call(request))
            while info.state != "CREATED":
                info = await self._control.call(WatchPlacementGroup(pg_id, info.version), 60.0)
                if time.perf_counter() - began > STARTING_S:
                    raise RuntimeError(f"group {number} is {info.state}: {info.reason}")
            await timed.call("remove group", self._control.call(RemovePlacementGroup(pg_id)))

        return await self._many(self._options.groups, one)

    async def _many(self, count: int, one: Callable[[int, Timed], Awaitable[None]]) -> dict[str, Any]:
        timed, numbers = Timed(), iter(range(count))
        began_s, before = time.perf_counter(), self._measured.cpu_s()

        async def several() -> None:
            for number in numbers:
                await one(number, timed)

        await asyncio.gather(*(several() for _ in range(AT_ONCE)))
        took_s, cpu_s = time.perf_counter() - began_s, self._measured.cpu_s() - before
        return {
            "count": count,
            "per_second": round(count / took_s, 1),
            "cpu_ms_each": round(1000 * cpu_s / count, 3),
            "calls": timed.results(),
        }


def read_secret(path: str) -> bytes:
    """What proves that a client belongs to the cluster."""
    return Path(path).read_bytes().strip()


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Starts everything, measures, and leaves nothing."""
    session = new_session_dir()
    secret_file = write_secret(session)
    secret = read_secret(secret_file)
    daemon = start_control(session, secret_file)
    agents: Agents | None = None
    results: dict[str, Any] = {"agents": options.agents, "updates_per_second": options.updates}
    try:
        measured = Measured(daemon.pid)
        agents = Agents(daemon.ready["address"], secret, options.agents)
        control = ControlClient.over_tcp(daemon.ready["address"], secret)
        await control.start()
        began_s, before = time.perf_counter(), measured.cpu_s()
        await asyncio.to_thread(agents.joined)
        results["join"] = {
            "seconds": round(time.perf_counter() - began_s, 2),
            "cpu_ms_each": round(1000 * (measured.cpu_s() - before) / options.agents, 3),
        }
        bench = Bench(control, measured, options)
        await asyncio.sleep(2.0)  # let what joining left behind come to an end: it is not what is measured
        results["at rest"] = await bench.phase()
        agents.update(options.updates)
        results["under updates"] = await bench.phase()
        agents.update(0.0)
        results["actors"] = await bench.actors()
        results["groups"] = await bench.groups()
        results["at rest with actors"] = await bench.phase()
        await control.close()
    finally:
        if agents is not None:
            agents.end()
        daemon.stop()
        shutil.rmtree(session, ignore_errors=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--updates", type=float, default=5.0, help="changes of what is free, a second in all")
    parser.add_argument("--actors", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--calls", type=int, default=200, help="timed calls of each kind in each phase")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each phase is watched")
    options = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, hard), hard))
    sys.stdout.write(json.dumps(asyncio.run(measure(options))) + "\n")


if __name__ == "__main__":
    main()
