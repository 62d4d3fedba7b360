"""What demand costs on its way to the autoscaler: `python scripts/bench/demand.py [--case NAME]`. Prints one line of
JSON.

The control store is the real one, in this process and with its state in memory; times are CPU time, best of three.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from figures import Figures, run

from autoscaler.demand import demand_of
from runtime._control.server import ControlStore
from runtime._control.storage.memory import MemoryStorage
from runtime._core.resources import to_units
from runtime._transport.channel import Channel, LoopbackChannel
from runtime._wire.messages import codec
from runtime._wire.messages.base import Demand, NodeInfo, ResourceRequest, WorkerAddress
from runtime._wire.messages.control import (
    ActorSpec,
    AddJob,
    NodeReport,
    RegisterActor,
    RegisterNode,
    RequestResources,
)
from runtime._wire.messages.groups import CreatePlacementGroup

NODE = to_units({"CPU": 64, "memory": 256e9, "object_store_memory": 64e9})
AT_ONCE = 100


class Cluster:
    """A control store with nodes that only register and report."""

    def __init__(self) -> None:
        self.store = ControlStore(MemoryStorage(), "/nowhere")
        self.agents: list[tuple[bytes, Channel]] = []

    async def start(self, nodes: int) -> None:
        await self.store.start()
        for number in range(nodes):
            node_id = f"node-{number}".encode().ljust(28, b".")
            address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
            info = NodeInfo(
                node_id,
                "ALIVE",
                f"{address}:7000",
                "/tmp/session/agent.sock",
                address,
                f"host-{number}",
                False,
                "/tmp/session",
                NODE,
                NODE,
                {"ray.io/node-id": node_id.decode()},
                instance_id=f"i{number}",
                node_type="cpu64",
            )
            ours, theirs = LoopbackChannel.pair(lambda *_: None, None)
            self.store.attach(theirs)
            await ours.call(RegisterNode(info))
            self.agents.append((node_id, ours))

    def report(self, node: int, demands: list[Demand]) -> NodeReport:
        node_id, channel = self.agents[node]
        report = NodeReport(node_id, NODE, NODE, demands, 0.0)
        channel.send(report)
        return report

    async def job(self) -> tuple[bytes, WorkerAddress]:
        node_id, channel = self.agents[0]
        driver = WorkerAddress(b"driver".ljust(28, b"."), node_id, "/driver.sock")
        return (await channel.call(AddJob(node_id, driver, 1, "bench", "", ""))).job_id, driver


def shapes(kinds: int, count: int) -> list[Demand]:
    """`count` requests in `kinds` shapes."""
    return [
        Demand(ResourceRequest(to_units({"CPU": 1 + kind / 2, "memory": 1e9})), count // kinds)
        for kind in range(kinds)
    ]


def best_ms(call: Callable[[], object]) -> float:
    times = []
    for _ in range(3):
        began = time.process_time()
        call()
        times.append(time.process_time() - began)
    return min(times) * 1000


async def tasks(figures: Figures, nodes: int, kinds: int) -> None:
    """Tasks that wait at every tenth node."""
    cluster = Cluster()
    await cluster.start(nodes)
    for node in range(0, nodes, 10):
        report = cluster.report(node, shapes(kinds, 100_000))
    await asyncio.sleep(0.1)
    assert len(cluster.store.autoscaling.snapshot().nodes) == nodes
    name = f"100000 tasks, {kinds} shapes: report"
    figures.add(name, len(codec.encode(report)), "bytes", "what a node's agent sends when something changes")
    picture(figures, cluster, f"{nodes} nodes, tasks of {kinds} shapes at every tenth: picture")
    await cluster.store.stop()


def picture(figures: Figures, cluster: Cluster, name: str) -> None:
    """What the autoscaler asks for once a tick."""
    encoded = codec.encode(cluster.store.autoscaling.snapshot())
    state = cluster.store.autoscaling.snapshot()
    gc.collect()
    gc.freeze()  # the autoscaler is a process of its own, with less to look through
    made_ms = best_ms(lambda: codec.encode(cluster.store.autoscaling.snapshot()))
    read_ms = best_ms(lambda: demand_of(codec.decode(encoded)))  # type: ignore[arg-type]
    gc.unfreeze()
    figures.add(f"{name}, made", made_ms, "ms", f"by the control store; {len(encoded):,} bytes")
    figures.add(
        f"{name}, read", read_ms, "ms", f"by the autoscaler, into {len(demand_of(state).shapes)} shapes"
    )


async def actors(figures: Figures, count: int) -> None:
    """Actors that no node has room for."""
    cluster = Cluster()
    await cluster.start(1)
    job_id, driver = await cluster.job()
    channel = cluster.agents[0][1]

    def spec(number: int) -> ActorSpec:
        return ActorSpec(
            actor_id=number.to_bytes(12, "big") + job_id,
            job_id=job_id,
            class_name="Actor",
            name="",
            namespace="bench",
            owner=driver,
            detached=False,
            max_restarts=0,
            max_task_retries=0,
            max_concurrency=1,
            placement=ResourceRequest(to_units({"CPU": 100.0 + number % 20})),
            held={},
            runtime_env="",
            function_key=b"f" * 28,
            creation=b"c" * 300,
        )

    began = time.process_time()
    await in_batches(count, lambda number: channel.call(RegisterActor(spec(number))))
    each_us = (time.process_time() - began) / count * 1e6
    figures.add(f"{count} waiting actors: one more", each_us, "us", "of 20 shapes, none with room")
    picture(figures, cluster, f"{count} waiting actors: picture")
    await cluster.store.stop()


async def groups(figures: Figures, count: int) -> None:
    """Placement groups that no node has room for."""
    cluster = Cluster()
    await cluster.start(1)
    job_id, _ = await cluster.job()
    channel = cluster.agents[0][1]
    bundles = [to_units({"CPU": 100})] * 8

    def group(number: int) -> CreatePlacementGroup:
        return CreatePlacementGroup(
            number.to_bytes(14, "big") + job_id, "", "bench", "PACK", bundles, job_id, False
        )

    began = time.process_time()
    await in_batches(count, lambda number: channel.call(group(number)))
    each_us = (time.process_time() - began) / count * 1e6
    figures.add(f"{count} waiting groups of 8: one more", each_us, "us", "none with room")
    picture(figures, cluster, f"{count} waiting groups of 8: picture")
    await cluster.store.stop()


async def request(figures: Figures, cpus: int) -> None:
    """`request_resources(num_cpus=...)`."""
    message = RequestResources("owner", [to_units({"CPU": 1})], selectors=[{}], counts=[cpus])
    figures.add(
        f"request_resources of {cpus} CPUs", len(codec.encode(message)), "bytes", "one shape, counted"
    )


async def in_batches(count: int, call: Callable[[int], Awaitable[object]]) -> None:
    for start in range(0, count, AT_ONCE):
        await asyncio.gather(*(call(number) for number in range(start, min(count, start + AT_ONCE))))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", default="", help="only the cases whose name contains this")
    parser.add_argument("--scale", type=float, default=1.0, help="0.01: a hundredth of everything")
    options = parser.parse_args()
    figures = Figures("demand")

    def many(number: int) -> int:
        return max(1, int(number * options.scale))

    cases: dict[str, Callable[[], Awaitable[None]]] = {
        "tasks, 20 shapes": lambda: tasks(figures, many(1000), 20),
        "tasks, 1000 shapes": lambda: tasks(figures, many(1000), many(1000)),
        "actors": lambda: actors(figures, many(100_000)),
        "groups": lambda: groups(figures, many(10_000)),
        "request": lambda: request(figures, 50_000),
    }

    def case(name: str) -> None:
        async def main() -> None:
            await cases[name]()

        asyncio.run(main())

    return run(figures, {name: partial(case, name) for name in cases}, options.case)


if __name__ == "__main__":
    sys.exit(main())
