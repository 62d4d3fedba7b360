"""How soon the autoscaler acts: `python scripts/bench/reaction.py [--case NAME]`. Prints one line of JSON.

From the moment at which an agent tells the control store of a task that waits to the call that creates the machine for
it: a real control store process, the autoscaler's own loop in this process, a simulated platform. The agents of the
other nodes are those of control_plane.py, in processes of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import sys
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from control_plane import Agents, read_secret
from figures import Figures, run

from autoscaler.config import AutoscalerConfig
from autoscaler.loop import Autoscaler
from autoscaler.provider import LaunchRequest, LaunchResult, Machine, MachineTags, NodeType
from autoscaler.simulation import SimulatedProvider
from runtime._clients.control import ControlClient
from runtime._core.resources import to_units
from runtime._session import new_session_dir, start_control, write_secret
from runtime._transport.channel import Channel
from runtime._wire.messages.base import Demand, NodeInfo, ResourceRequest
from runtime._wire.messages.control import NodeReport, RegisterNode

GOAL_S = 1.5
ROUNDS = 20
PATIENCE_S = 60.0
SETTLING_S = 10.0
"""After so many nodes have joined at once."""
TYPES = (NodeType("head", {"CPU": 4.0}), NodeType("worker", {"CPU": 64.0}, max_workers=10_000))


class TimedProvider(SimulatedProvider):
    """Notes when machines are asked for. Its machines boot for ever."""

    def __init__(self) -> None:
        super().__init__("bench")
        self.faults.boot_s = 1e9
        self.created_s: list[float] = []
        self.add_machine("head", {MachineTags.CLUSTER_ID: "bench", MachineTags.ROLE: MachineTags.HEAD})

    def create(self, request: LaunchRequest) -> LaunchResult:
        self.created_s.append(time.perf_counter())
        return super().create(request)


class NoSetup:
    """Nothing is ever set up."""

    def run(self, machine: Machine, node_type: NodeType, instance_id: str, log_path: str) -> None:
        return


class Head:
    """The agent at which tasks wait."""

    def __init__(self, address: str, secret: bytes) -> None:
        self._node_id = os.urandom(28)
        self._total = to_units({"CPU": 4.0})
        self._count = 0
        self.control = ControlClient.over_tcp(
            address, secret, lambda channel, message: None, self._register, reconnect_timeout_s=60.0
        )

    async def _register(self, channel: Channel) -> None:
        info = NodeInfo(
            self._node_id, "ALIVE", "", "", "127.0.0.1", "head", True, "", self._total, self._total, {}
        )
        await channel.call(RegisterNode(info), PATIENCE_S)

    def wait_for_more(self) -> float:
        """One more task waits; when it was told."""
        self._count += 1
        self.report()
        return time.perf_counter()

    def report(self) -> None:
        request = ResourceRequest(to_units({"CPU": 64.0}))
        demands = [Demand(request, self._count)] if self._count else []
        self.control.send(NodeReport(self._node_id, self._total, self._total, demands, 0.0))

    async def beat(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            self.report()


async def react(nodes: int, restless: bool) -> list[float]:
    """Seconds from each demand to the create call. `restless`: more demand follows every 0.1 s, so that it is never
    quiet."""
    session = new_session_dir()
    secret_file = write_secret(session)
    secret = read_secret(secret_file)
    daemon = start_control(session, secret_file)
    address = daemon.ready["address"]
    agents: Agents | None = None
    head, control = Head(address, secret), ControlClient.over_tcp(address, secret)
    config = AutoscalerConfig("bench", "bench", TYPES, "head", max_workers=10_000, upscaling_speed=1000.0)
    provider = TimedProvider()
    tasks: list[asyncio.Task[None]] = []
    try:
        if nodes:
            agents = Agents(address, secret, nodes)
            await asyncio.to_thread(agents.joined)
            await asyncio.sleep(SETTLING_S)
        await head.control.start()
        await control.start()
        autoscaler = Autoscaler(config, provider, NoSetup(), control)
        tasks = [asyncio.create_task(head.beat()), asyncio.create_task(autoscaler.run())]
        await asyncio.sleep(3.0)
        found = []
        for number in range(ROUNDS):
            before = len(provider.created_s)
            told_s = head.wait_for_more()
            while len(provider.created_s) == before:
                if time.perf_counter() - told_s > PATIENCE_S:
                    raise TimeoutError("no machine was asked for")
                await asyncio.sleep(0.1 if restless else 0.005)
                if restless:
                    head.wait_for_more()
            found.append(provider.created_s[before] - told_s)
            # Away from the rhythm of beats and ticks.
            await asyncio.sleep(1.5 + 0.037 * number)
        return found
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await control.close()
        await head.control.close()
        if agents is not None:
            await asyncio.to_thread(agents.end)
        daemon.stop()
        shutil.rmtree(session, ignore_errors=True)


CASES = {
    "demand to create call": (0, False),
    "demand to create call while demand never rests": (0, True),
    "demand to create call, 1000 nodes": (1000, False),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", default="", help="only the cases whose name contains this")
    options = parser.parse_args()
    figures = Figures("reaction")

    def case(name: str) -> None:
        found = asyncio.run(react(*CASES[name]))
        meaning = f"median of {len(found)}; a real control store process, a simulated platform"
        figures.add(name, statistics.median(found), "s", meaning, at_most=GOAL_S)
        figures.add(f"{name}: the longest", max(found), "s", f"of {len(found)}", at_most=GOAL_S)

    return run(figures, {name: partial(case, name) for name in CASES}, options.case)


if __name__ == "__main__":
    sys.exit(main())
