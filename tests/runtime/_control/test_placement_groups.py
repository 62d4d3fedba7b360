from __future__ import annotations

import asyncio

import pytest

from runtime._core.nodes import RECONNECT_GRACE_S
from runtime._transport.channel import CallError
from runtime._wire.messages.groups import (
    ListPlacementGroups,
    RemovePlacementGroup,
    ReserveGroups,
    ReturnBundles,
    WatchPlacementGroup,
)
from tests.sim.control import specs
from tests.sim.control.agent import Agent, Behaviour, cpus
from tests.sim.control.cluster import rig
from tests.sim.world import run_virtual

CPU = {"CPU": 1.0}


def bundles_of(agent: Agent) -> list[int]:
    return sorted(index for (_, index), bundle in agent.bundles.items() if bundle.committed)


def test_created_and_removed() -> None:
    async def main() -> None:
        async with rig(4) as r:
            info = await r.ask(specs.group(1, [CPU, CPU]))
            assert info.state == "PENDING"
            info = await r.group(1, "CREATED")
            agent = r.agents[0]
            assert info.nodes == [agent.node_id] * 2
            assert agent.available["CPU"] == 20_000
            assert bundles_of(agent) == [0, 1]
            await r.ask(RemovePlacementGroup(specs.group_id(1)))
            assert (await r.group(1)).state == "REMOVED"
            await asyncio.sleep(0.2)
            assert agent.available == agent.total == cpus(4)
            view = await r.node(agent)
            assert view.available == view.total == cpus(4)

    run_virtual(main())


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [("PACK", [3]), ("STRICT_PACK", [3]), ("SPREAD", [1, 1, 1]), ("STRICT_SPREAD", [1, 1, 1])],
)
def test_strategies(strategy: str, expected: list[int]) -> None:
    async def main() -> None:
        async with rig(4, 4, 4) as r:
            await r.ask(specs.group(1, [CPU] * 3, strategy))
            await r.group(1, "CREATED")
            assert sorted(len(agent.bundles) for agent in r.agents if agent.bundles) == expected

    run_virtual(main())


def test_many_groups_at_once_take_few_turns() -> None:
    async def main() -> None:
        async with rig(64, 64) as r:
            loop = asyncio.get_running_loop()
            before = loop.time()
            await asyncio.gather(*(r.ask(specs.group(number, [CPU, CPU])) for number in range(1, 21)))
            for number in range(1, 21):
                await r.group(number, "CREATED")
            assert loop.time() == before  # no timer was waited for

    run_virtual(main())


def test_groups_of_one_node_take_one_message_each_way() -> None:
    async def main() -> None:
        async with rig(8) as r:
            numbers = range(1, 5)
            await asyncio.gather(*(r.ask(specs.group(number, [CPU, CPU])) for number in numbers))
            for number in numbers:
                await r.group(number, "CREATED")
            removals = (
                RemovePlacementGroup(specs.group_id(number), until_returned=True) for number in numbers
            )
            await asyncio.gather(*map(r.ask, removals))
            agent = r.agents[0]
            assert agent.available == agent.total == cpus(8)
            seen = [
                message for message in agent.received if isinstance(message, ReserveGroups | ReturnBundles)
            ]
            reserved, returned = seen
            assert isinstance(reserved, ReserveGroups)
            assert isinstance(returned, ReturnBundles)
            assert len(reserved.groups) == 4
            assert len(returned.bundles) == 8

    run_virtual(main())


def test_a_refused_group_leaves_the_others_of_its_message_alone() -> None:
    async def main() -> None:
        async with rig(4) as r:
            refusals = iter([False, True])
            r.agents[0].behaviour.refuses = lambda: next(refusals, False)
            await asyncio.gather(*(r.ask(specs.group(number, [CPU])) for number in (1, 2, 3)))
            await r.group(1, "CREATED")
            await r.group(3, "CREATED")
            info = await r.group(2, "CREATED", timeout_s=2.0)
            assert info.attempts > 1
            await asyncio.sleep(1)
            assert (await r.node(r.agents[0])).available["CPU"] == r.agents[0].available["CPU"] == 10_000

    run_virtual(main())


def test_what_does_not_fit_waits_and_says_why() -> None:
    async def main() -> None:
        async with rig(2) as r:
            await r.ask(specs.group(1, [{"CPU": 2}]))
            await r.group(1, "CREATED")
            await r.ask(specs.group(2, [{"CPU": 1}]))
            await r.ask(specs.group(3, [{"CPU": 9}]))
            await asyncio.sleep(0.2)
            assert "room" in (await r.group(2)).reason
            assert "never" in (await r.group(3)).reason
            pending = (await r.state()).groups
            assert {group.pg_id for group in pending} == {specs.group_id(2), specs.group_id(3)}
            await r.ask(RemovePlacementGroup(specs.group_id(1)))
            await r.group(2, "CREATED", timeout_s=1.0)
            await r.add(9)
            await r.group(3, "CREATED", timeout_s=1.0)
            assert not (await r.state()).groups

    run_virtual(main())


def test_a_refusal_gives_everything_back_and_is_tried_again() -> None:
    async def main() -> None:
        async with rig(4, 4) as r:
            refusals = iter([True])
            r.agents[1].behaviour = Behaviour(refuses=lambda: next(refusals, False))
            await r.ask(specs.group(1, [CPU, CPU], "STRICT_SPREAD"))
            await r.group(1, "CREATED", timeout_s=1.0)
            await asyncio.sleep(0.2)
            assert [agent.available["CPU"] for agent in r.agents] == [30_000, 30_000]

    run_virtual(main())


def test_removed_while_it_is_reserved() -> None:
    async def main() -> None:
        async with rig(4) as r:
            r.agents[0].latency_s = 0.5
            r.agents[0].cut()
            await r.agents[0].join(r.store)
            await r.ask(specs.group(1, [CPU] * 3))
            await asyncio.sleep(0.1)
            await r.ask(RemovePlacementGroup(specs.group_id(1)))
            await asyncio.sleep(5)
            assert not r.agents[0].bundles
            assert (await r.node(r.agents[0])).available == cpus(4)

    run_virtual(main())


def test_only_what_is_missing_is_placed_again() -> None:
    async def main() -> None:
        async with rig(2, 2) as r:
            await r.ask(specs.group(1, [CPU, CPU], "STRICT_SPREAD"))
            before = await r.group(1, "CREATED")
            r.agents[1].crash()
            info = await r.group(1, "RESCHEDULING")
            lost = before.nodes.index(r.agents[1].node_id)
            assert info.nodes[lost] == b""
            assert info.nodes[1 - lost] == r.agents[0].node_id
            (pending,) = (await r.state()).groups
            assert pending.placed == info.nodes
            spare = await r.add(2)
            info = await r.group(1, "CREATED")
            assert info.nodes[lost] == spare.node_id
            assert bundles_of(r.agents[0]) == [1 - lost]

    run_virtual(main())


def test_a_node_that_dies_while_it_is_asked() -> None:
    async def main() -> None:
        async with rig(4, 4) as r:
            r.agents[1].latency_s = 1.0
            r.agents[1].cut()
            await r.agents[1].join(r.store)
            await r.ask(specs.group(1, [CPU, CPU], "STRICT_SPREAD"))
            await asyncio.sleep(0.1)
            r.agents[1].crash()
            await asyncio.sleep(RECONNECT_GRACE_S + 1)
            assert (await r.group(1)).state == "PENDING"
            assert not r.agents[0].bundles
            await r.add(4)
            await r.group(1, "CREATED")

    run_virtual(main())


def test_names() -> None:
    async def main() -> None:
        async with rig(4) as r:
            await r.ask(specs.group(1, [CPU], name="x"))
            await r.ask(specs.group(1, [CPU], name="x"))
            with pytest.raises(CallError) as caught:
                await r.ask(specs.group(2, [CPU], name="x"))
            assert caught.value.kind == "exists"
            (found,) = (await r.ask(ListPlacementGroups("x", "ns"))).groups
            assert found.pg_id == specs.group_id(1)
            assert (await r.ask(ListPlacementGroups("x", "other"))).groups == []
            await r.ask(RemovePlacementGroup(specs.group_id(1)))
            await r.ask(specs.group(2, [CPU], name="x"))
            assert len((await r.ask(ListPlacementGroups())).groups) == 2

    run_virtual(main())


@pytest.mark.parametrize(
    ("bundles", "strategy", "selectors"),
    [
        ([], "PACK", None),
        ([{}], "PACK", None),
        ([CPU], "TIGHT", None),
        ([CPU], "PACK", [{"a": "b"}, {}]),
        ([CPU], "PACK", [{"a": "in("}]),
    ],
)
def test_what_could_never_work_is_refused(
    bundles: list[dict[str, float]], strategy: str, selectors: list[dict[str, str]] | None
) -> None:
    async def main() -> None:
        async with rig(4) as r:
            with pytest.raises(CallError) as caught:
                await r.ask(specs.group(1, [*bundles], strategy, selectors=selectors))
            assert caught.value.kind == "invalid"

    run_virtual(main())


def test_selectors() -> None:
    async def main() -> None:
        async with rig(4) as r:
            labelled = await r.add(4, labels={"zone": "x"})
            await r.ask(specs.group(1, [CPU, CPU], "SPREAD", selectors=[{"zone": "x"}, {"zone": "x"}]))
            assert (await r.group(1, "CREATED")).nodes == [labelled.node_id] * 2

    run_virtual(main())


def test_groups_survive_a_restart_of_the_store() -> None:
    async def main() -> None:
        async with rig(4) as r:
            await r.ask(specs.group(1, [CPU], name="x"))
            before = await r.group(1, "CREATED")
            await r.ask(specs.group(2, [{"CPU": 9}]))
            await r.restart()
            await r.agents[0].join(r.store)
            assert await r.group(1) == before
            assert (await r.group(2)).state == "PENDING"
            await r.add(9)
            await r.group(2, "CREATED")

    run_virtual(main())


def test_bundles_of_a_group_removed_meanwhile_are_returned() -> None:
    async def main() -> None:
        async with rig(4) as r:
            await r.ask(specs.group(1, [CPU]))
            await r.group(1, "CREATED")
            r.agents[0].cut()
            await r.ask(RemovePlacementGroup(specs.group_id(1)))
            await r.restart()
            await r.agents[0].join(r.store)
            await asyncio.sleep(0.2)
            assert not r.agents[0].bundles
            assert (await r.node(r.agents[0])).available == cpus(4)

    run_virtual(main())


def test_watching_an_unknown_group() -> None:
    async def main() -> None:
        async with rig() as r:
            with pytest.raises(CallError) as caught:
                await r.ask(WatchPlacementGroup(specs.group_id(1)))
            assert caught.value.kind == "not_found"
            await r.ask(RemovePlacementGroup(specs.group_id(1)))

    run_virtual(main())
