"""Gangs: entered whole or not at all, and ended together."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from runtime._transport.channel import CallError
from runtime._wire.messages.control import KillActor, ListActors
from runtime._wire.messages.groups import ListPlacementGroups
from runtime._wire.messages.libraries import CreateGang
from tests.sim.control import specs
from tests.sim.control.cluster import Rig, rig
from tests.sim.world import run_virtual

CPU = {"CPU": 1.0}


def gang(count: int = 3, shares_fate: bool = True, **options: Any) -> CreateGang:
    group = replace(specs.group(1, [CPU] * count), shares_fate=shares_fate)
    resource = f"CPU_group_{group.pg_id.hex()}"
    actors = [
        specs.actor(number, units={resource: 10_000}, pg_id=group.pg_id, **options) for number in range(count)
    ]
    return CreateGang(group, actors)


async def up(r: Rig, count: int = 3) -> None:
    for number in range(count):
        await r.actor(number, "ALIVE")


def test_a_gang_is_entered_by_one_request_which_may_be_repeated() -> None:
    async def main() -> None:
        async with rig(4) as r:
            for _ in range(2):
                made = await r.ask(gang())
                assert len(made.actors) == 3
            await up(r)
            assert (await r.group(1)).state == "CREATED"
            assert len((await r.ask(ListActors())).actors) == 3

    run_virtual(main())


@pytest.mark.parametrize("wrong", ["group", "actor", "outside"])
def test_nothing_is_entered_if_a_part_is_refused(wrong: str) -> None:
    async def main() -> None:
        async with rig(4) as r:
            whole = gang()
            if wrong == "group":
                whole = replace(whole, group=replace(whole.group, strategy="NONSENSE"))
            elif wrong == "outside":
                whole = replace(whole, actors=[*whole.actors[:2], specs.actor(7)])
            else:
                last = whole.actors[2]
                strategy = replace(last.placement.strategy, labels={"a": "in("})
                placement = replace(last.placement, strategy=strategy)
                whole = replace(whole, actors=[*whole.actors[:2], replace(last, placement=placement)])
            with pytest.raises(CallError):
                await r.ask(whole)
            assert (await r.ask(ListActors())).actors == []
            assert (await r.ask(ListPlacementGroups())).groups == []

    run_virtual(main())


def test_the_death_of_one_ends_all_and_the_reason_names_it() -> None:
    async def main() -> None:
        async with rig(4) as r:
            await r.ask(gang())
            await up(r)
            await r.ask(KillActor(specs.actor_id(1)))
            first = await r.actor(1, "DEAD")
            for number in (0, 2):
                other = await r.actor(number, "DEAD")
                assert first.actor_id.hex() in other.death_reason
                assert "ray.kill" in other.death_reason
            group = await r.group(1, "REMOVED")
            assert "its gang has ended" in group.reason
            await asyncio.sleep(0.5)
            agent = r.agents[0]
            assert agent.available == agent.total

    run_virtual(main())


def test_a_node_that_dies_ends_the_gang_on_all_nodes() -> None:
    async def main() -> None:
        async with rig(2, 2) as r:
            await r.ask(gang(4))
            await up(r, 4)
            r.agents[0].crash()
            for number in range(4):
                await r.actor(number, "DEAD")
            await r.group(1, "REMOVED")

    run_virtual(main())


def test_restarts_are_no_deaths() -> None:
    async def main() -> None:
        async with rig(4) as r:
            await r.ask(gang(max_restarts=1))
            await up(r)
            await r.ask(KillActor(specs.actor_id(1), no_restart=False))
            await r.actor(1, "RESTARTING")
            await up(r)
            assert (await r.group(1)).state == "CREATED"

    run_virtual(main())


def test_without_a_shared_fate_the_others_live() -> None:
    async def main() -> None:
        async with rig(4) as r:
            await r.ask(gang(shares_fate=False))
            await up(r)
            await r.ask(KillActor(specs.actor_id(1)))
            await r.actor(1, "DEAD")
            await asyncio.sleep(1)
            await r.actor(0, "ALIVE")
            await r.actor(2, "ALIVE")

    run_virtual(main())


def test_a_gang_waits_as_a_whole() -> None:
    async def main() -> None:
        async with rig(2) as r:
            await r.ask(gang(3))
            await asyncio.sleep(1)
            assert [actor.state for actor in (await r.ask(ListActors())).actors] == ["PENDING_CREATION"] * 3
            await r.add(2)
            await up(r)

    run_virtual(main())


def test_a_restarted_store_ends_what_was_about_to_end() -> None:
    async def main() -> None:
        async with rig(4) as r:
            await r.ask(gang())
            await up(r)
            await r.ask(KillActor(specs.actor_id(1)))
            await r.restart()
            for agent in r.agents:
                await agent.join(r.store)
            for number in (0, 2):
                await r.actor(number, "DEAD")

    run_virtual(main())
