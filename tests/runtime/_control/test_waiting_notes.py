"""Drivers hear why their actors and placement groups wait."""

from __future__ import annotations

import asyncio

from runtime._wire.messages.base import SchedulingStrategy
from runtime._wire.messages.control import AutoscalerReport, LogBatch, RegisterActor, RequestResources
from runtime._wire.messages.groups import RemovePlacementGroup
from tests.sim.control import specs
from tests.sim.control.cluster import Rig, rig
from tests.sim.world import run_virtual


def told(r: Rig, agent: int = 0) -> list[str]:
    return [line for m in r.agents[agent].received if isinstance(m, LogBatch) for line in m.lines]


def test_an_actor_that_no_node_can_hold() -> None:
    async def main() -> None:
        async with rig(4) as r:
            await r.job()
            for number in (1, 2):
                await r.ask(RegisterActor(specs.actor(number, needs={"CPU": 9})))
            await asyncio.sleep(1)
            assert told(r) == []
            await asyncio.sleep(3)
            assert told(r) == [
                "2 A actor(s) wait for {CPU: 9}: No available node types can fulfill resource request"
            ]
            await r.ask(AutoscalerReport(b"{}", [("{CPU: 9}", "no node type is that big")]))
            await asyncio.sleep(2)
            assert told(r)[1].endswith("resource request (no node type is that big)")
            await asyncio.sleep(20)
            assert len(told(r)) == 2
            await asyncio.sleep(20)
            assert len(told(r)) == 3

    run_virtual(main())


def test_an_actor_whose_labels_no_node_has() -> None:
    async def main() -> None:
        async with rig(4) as r:
            await r.job()
            await r.ask(RegisterActor(specs.actor(1, strategy=SchedulingStrategy(labels={"zone": "a"}))))
            await asyncio.sleep(4)
            (line,) = told(r)
            assert line.endswith(
                "with labels {zone: a}: No available node types can fulfill resource request with these labels"
            )

    run_virtual(main())


def test_actors_that_wait_for_busy_nodes_are_told_later() -> None:
    async def main() -> None:
        async with rig(1) as r:
            await r.job()
            await r.ask(RegisterActor(specs.actor(1)))
            await r.actor(1, "ALIVE")
            await r.ask(RegisterActor(specs.actor(2)))
            await asyncio.sleep(8)
            assert told(r) == []
            await asyncio.sleep(4)
            assert told(r) == ["1 A actor(s) wait for {CPU: 1}: every node that could hold it is busy"]
            await r.ask(AutoscalerReport(b"{}", [("{CPU: 1}", "max_workers is reached")]))
            await asyncio.sleep(2)
            assert told(r)[1].endswith("is busy (max_workers is reached)")

    run_virtual(main())


def test_spare_actors_wait_silently_unless_no_node_can_hold_them() -> None:
    async def main() -> None:
        async with rig(1) as r:
            await r.job()
            await r.ask(RegisterActor(specs.actor(1)))
            await r.actor(1, "ALIVE")
            await r.ask(RegisterActor(specs.actor(2, is_spare=True)))
            await asyncio.sleep(60)
            assert told(r) == []
            await r.ask(RegisterActor(specs.actor(3, needs={"CPU": 9}, is_spare=True)))
            await asyncio.sleep(4)
            (line,) = told(r)
            assert line.startswith("1 A actor(s) wait for {CPU: 9}")

    run_virtual(main())


def test_a_placement_group_that_waits_and_goes() -> None:
    async def main() -> None:
        async with rig(4) as r:
            await r.job()
            await r.ask(specs.group(1, [{"CPU": 9}] * 6))
            await asyncio.sleep(1)
            await r.ask(AutoscalerReport(b"{}", [], [(specs.group_id(1), "no node type is that big")]))
            await asyncio.sleep(3)
            (line,) = told(r)
            assert line.startswith("1 placement group(s) wait for PACK [{CPU: 9}, {CPU: 9}, ")
            assert "6 in all" in line
            assert line.endswith("(no node type is that big)")
            await r.ask(RemovePlacementGroup(specs.group_id(1)))
            await asyncio.sleep(60)
            assert len(told(r)) == 1

    run_virtual(main())


def test_an_explicit_request_that_cannot_be_met() -> None:
    async def main() -> None:
        async with rig(4) as r:
            job = await r.job()
            wanted = {"CPU": 90_000}
            await r.ask(RequestResources("x", [wanted], counts=[500], job_id=job.job_id))
            await r.ask(RequestResources("nobody listens", [wanted], ttl_s=1000.0))
            await r.ask(AutoscalerReport(b"{}", [("requested {CPU: 9}", "no node type is that big")]))
            await asyncio.sleep(8)
            assert told(r) == []
            await asyncio.sleep(4)
            assert told(r) == [
                "500 x {CPU: 9}, requested explicitly, are not all there: no node type is that big"
            ]
            await r.ask(AutoscalerReport(b"{}", []))
            await asyncio.sleep(60)
            assert len(told(r)) == 1

    run_virtual(main())
