from __future__ import annotations

import asyncio

import pytest

from runtime._core.placement import rewrite_for_group
from runtime._transport.channel import CallError
from runtime._wire.messages.base import ErrorKind, SchedulingStrategy
from runtime._wire.messages.control import (
    GetNamedActor,
    KillActor,
    ListActors,
    RegisterActor,
    StartActor,
    WatchActor,
)
from runtime._wire.messages.groups import RemovePlacementGroup
from tests.sim.control import specs
from tests.sim.control.agent import Behaviour, cpus
from tests.sim.control.cluster import counts, rig
from tests.sim.world import run_virtual


class TestStarting:
    def test_an_actor_starts(self) -> None:
        async def main() -> None:
            async with rig(4) as r:
                info = await r.ask(RegisterActor(specs.actor(1)))
                assert info.state == "PENDING_CREATION"
                info = await r.actor(1, "ALIVE")
                agent = r.agents[0]
                assert info.node_id == agent.node_id
                assert info.address == agent.actors[specs.actor_id(1)].address
                assert agent.available == cpus(3)

        run_virtual(main())

    def test_registering_twice_is_registering_once(self) -> None:
        async def main() -> None:
            async with rig(4) as r:
                for _ in range(3):
                    await r.ask(RegisterActor(specs.actor(1)))
                await r.actor(1, "ALIVE")
                await asyncio.sleep(1)
                assert len((await r.ask(ListActors())).actors) == 1
                assert len([m for m in r.agents[0].received if isinstance(m, StartActor)]) == 1

        run_virtual(main())

    def test_many_start_at_once(self) -> None:
        async def main() -> None:
            async with rig(64) as r:
                r.agents[0].behaviour = Behaviour(start_s=lambda: 5.0)
                loop = asyncio.get_running_loop()
                before = loop.time()
                for number in range(1, 51):
                    await r.ask(RegisterActor(specs.actor(number)))
                for number in range(1, 51):
                    await r.actor(number, "ALIVE")
                assert loop.time() - before < 6.0

        run_virtual(main())

    def test_more_than_there_is_room_for_start_as_room_comes(self) -> None:
        async def main() -> None:
            async with rig(2) as r:
                for number in range(1, 21):
                    await r.ask(RegisterActor(specs.actor(number, held={})))
                for number in range(1, 21):
                    await r.actor(number, "ALIVE", timeout_s=1.0)
                assert len(r.agents[0].actors) == 20

        run_virtual(main())

    def test_it_waits_for_a_node_and_says_so(self) -> None:
        async def main() -> None:
            async with rig(1) as r:
                await r.ask(RegisterActor(specs.actor(1, needs={"CPU": 2})))
                await asyncio.sleep(0.1)
                (demand,) = (await r.state()).demands
                assert demand.infeasible
                await r.add(2)
                assert (await r.actor(1, "ALIVE")).node_id == r.agents[1].node_id
                assert not (await r.state()).demands

        run_virtual(main())

    def test_equal_waiting_actors_are_one_demand(self) -> None:
        async def main() -> None:
            async with rig(1) as r:
                for number in range(1, 6):
                    await r.ask(RegisterActor(specs.actor(number, needs={"CPU": 8})))
                await r.ask(RegisterActor(specs.actor(6, needs={"GPU": 1})))
                await asyncio.sleep(0.1)
                found = counts((await r.state()).demands)
                assert found == {(("CPU", 80_000),): 5, (("GPU", 10_000),): 1}

        run_virtual(main())

    def test_a_refusal_is_tried_again(self) -> None:
        async def main() -> None:
            async with rig(4) as r:
                refusals = iter([True, True, True])
                r.agents[0].behaviour = Behaviour(refuses=lambda: next(refusals, False))
                await r.ask(RegisterActor(specs.actor(1)))
                await r.actor(1, "ALIVE", timeout_s=1.0)

        run_virtual(main())

    def test_a_constructor_that_raises(self) -> None:
        async def main() -> None:
            async with rig(4) as r:
                r.agents[0].behaviour = Behaviour(constructor_raises=lambda _: True)
                await r.ask(RegisterActor(specs.actor(1, max_restarts=5)))
                info = await r.actor(1, "DEAD")
                assert info.death_cause == b"an exception"
                assert info.restarts == 0
                await asyncio.sleep(0.2)
                assert (await r.node(r.agents[0])).available == cpus(4)

        run_virtual(main())

    def test_a_constructor_that_kills_its_process(self) -> None:
        async def main() -> None:
            async with rig(4) as r:
                r.agents[0].behaviour = Behaviour(dies_in_constructor=lambda m: m.restarts < 2)
                await r.ask(RegisterActor(specs.actor(1, max_restarts=2)))
                assert (await r.actor(1, "ALIVE")).restarts == 2
                await r.ask(RegisterActor(specs.actor(2, max_restarts=1)))
                info = await r.actor(2, "DEAD")
                assert "exit code 1" in info.death_reason

        run_virtual(main())

    def test_a_process_that_always_dies_is_not_restarted_in_a_hurry(self) -> None:
        async def main() -> None:
            async with rig(4) as r:
                r.agents[0].behaviour = Behaviour(dies_in_constructor=lambda _: True)
                await r.ask(RegisterActor(specs.actor(1, max_restarts=-1)))
                await asyncio.sleep(60)
                assert 5 < (await r.actor(1)).restarts < 20

        run_virtual(main())

    @pytest.mark.parametrize("kind", [ErrorKind.RUNTIME_ENV, ErrorKind.INVALID])
    def test_an_environment_that_cannot_be_built(self, kind: str) -> None:
        async def main() -> None:
            async with rig(4) as r:

                def refuse() -> bool:
                    raise CallError(kind, "no such package")

                r.agents[0].behaviour = Behaviour(refuses=refuse)
                await r.ask(RegisterActor(specs.actor(1, max_restarts=3)))
                assert (await r.actor(1, "DEAD")).death_reason == "no such package"

        run_virtual(main())


class TestPlacement:
    def test_spread(self) -> None:
        async def main() -> None:
            async with rig(8, 8, 8) as r:
                for number in range(1, 7):
                    spec = specs.actor(number, needs={}, strategy=SchedulingStrategy("SPREAD"))
                    await r.ask(RegisterActor(spec))
                for number in range(1, 7):
                    await r.actor(number, "ALIVE")
                assert [len(agent.actors) for agent in r.agents] == [2, 2, 2]

        run_virtual(main())

    def test_affinity(self) -> None:
        async def main() -> None:
            async with rig(8, 8) as r:
                to = SchedulingStrategy("NODE_AFFINITY", r.agents[1].node_id)
                await r.ask(RegisterActor(specs.actor(1, strategy=to)))
                assert (await r.actor(1, "ALIVE")).node_id == r.agents[1].node_id

        run_virtual(main())

    def test_affinity_to_nowhere_is_final(self) -> None:
        async def main() -> None:
            async with rig(8) as r:
                to = SchedulingStrategy("NODE_AFFINITY", b"?" * 28)
                await r.ask(RegisterActor(specs.actor(1, strategy=to)))
                assert "soft=True" in (await r.actor(1, "DEAD")).death_reason
                await r.ask(
                    RegisterActor(specs.actor(2, strategy=SchedulingStrategy(to.kind, to.node_id, True)))
                )
                await r.actor(2, "ALIVE")

        run_virtual(main())

    def test_affinity_waits_for_a_node_that_is_away(self) -> None:
        async def main() -> None:
            async with rig(8) as r:
                agent = r.agents[0]
                agent.cut()
                to = SchedulingStrategy("NODE_AFFINITY", agent.node_id)
                await r.ask(RegisterActor(specs.actor(1, strategy=to)))
                await asyncio.sleep(1)
                assert (await r.actor(1)).state == "PENDING_CREATION"
                await agent.join(r.store)
                await r.actor(1, "ALIVE")

        run_virtual(main())

    def test_labels(self) -> None:
        async def main() -> None:
            async with rig(8) as r:
                spec = specs.actor(1, strategy=SchedulingStrategy(labels={"zone": "in(x,y)"}))
                await r.ask(RegisterActor(spec))
                await asyncio.sleep(0.1)
                assert (await r.actor(1)).state == "PENDING_CREATION"
                await r.add(1, labels={"zone": "y"})
                assert (await r.actor(1, "ALIVE")).node_id == r.agents[1].node_id
                bad = specs.actor(2, strategy=SchedulingStrategy(labels={"zone": "in("}))
                with pytest.raises(CallError) as caught:
                    await r.ask(RegisterActor(bad))
                assert caught.value.kind == "invalid"

        run_virtual(main())


class TestNames:
    def test_found_by_name_in_its_namespace(self) -> None:
        async def main() -> None:
            async with rig(4) as r:
                await r.ask(RegisterActor(specs.actor(1, name="x")))
                assert (await r.ask(GetNamedActor("x", "ns"))).actor_id == specs.actor_id(1)
                for name, namespace in (("x", "other"), ("y", "ns")):
                    with pytest.raises(CallError) as caught:
                        await r.ask(GetNamedActor(name, namespace))
                    assert caught.value.kind == "not_found"

        run_virtual(main())

    def test_a_name_is_free_again_after_death(self) -> None:
        async def main() -> None:
            async with rig(4) as r:
                await r.ask(RegisterActor(specs.actor(1, name="x")))
                with pytest.raises(CallError) as caught:
                    await r.ask(RegisterActor(specs.actor(2, name="x")))
                assert caught.value.kind == "exists"
                assert "The name x" in caught.value.message
                holder = await r.ask(RegisterActor(specs.actor(2, name="x"), get_if_exists=True))
                assert holder.actor_id == specs.actor_id(1)
                await r.ask(KillActor(specs.actor_id(1)))
                await r.ask(RegisterActor(specs.actor(3, name="x")))
                assert (await r.ask(GetNamedActor("x", "ns"))).actor_id == specs.actor_id(3)

        run_virtual(main())

    def test_lists(self) -> None:
        async def main() -> None:
            async with rig(4) as r:
                await r.ask(RegisterActor(specs.actor(1, name="x")))
                await r.ask(RegisterActor(specs.actor(2)))
                await r.ask(RegisterActor(specs.actor(3, name="z")))
                await r.ask(KillActor(specs.actor_id(3)))
                assert len((await r.ask(ListActors())).actors) == 3
                assert len((await r.ask(ListActors(namespace="other"))).actors) == 0
                (named,) = (await r.ask(ListActors(named_only=True, namespace="ns"))).actors
                assert named.spec.name == "x"

        run_virtual(main())


class TestWatching:
    def test_answers_at_once_when_there_is_news(self) -> None:
        async def main() -> None:
            async with rig(8) as r:
                await r.ask(RegisterActor(specs.actor(1)))
                await r.actor(1, "ALIVE")
                before = asyncio.get_running_loop().time()
                await r.ask(WatchActor(specs.actor_id(1)))
                assert asyncio.get_running_loop().time() == before

        run_virtual(main())

    def test_answers_after_the_timeout_with_what_there_is(self) -> None:
        async def main() -> None:
            async with rig(8) as r:
                await r.ask(RegisterActor(specs.actor(1)))
                info = await r.actor(1, "ALIVE")
                before = asyncio.get_running_loop().time()
                assert await r.ask(WatchActor(info.actor_id, info.version, 7.0)) == info
                assert asyncio.get_running_loop().time() - before == pytest.approx(7.0, abs=0.1)

        run_virtual(main())

    def test_an_unknown_actor(self) -> None:
        async def main() -> None:
            async with rig() as r:
                with pytest.raises(CallError) as caught:
                    await r.ask(WatchActor(specs.actor_id(1)))
                assert caught.value.kind == "not_found"

        run_virtual(main())


def test_an_actor_in_a_group_lives_and_ends_with_it() -> None:
    async def main() -> None:
        async with rig(4) as r:
            await r.ask(specs.group(1, [{"CPU": 2}]))
            units = rewrite_for_group(cpus(1), specs.group_id(1).hex(), 0)
            spec = specs.actor(1, units=units, pg_id=specs.group_id(1), max_restarts=-1)
            await r.ask(RegisterActor(spec))
            await r.actor(1, "ALIVE", timeout_s=0.5)
            assert not (await r.state()).demands
            await r.ask(RemovePlacementGroup(specs.group_id(1)))
            assert "placement group" in (await r.actor(1, "DEAD")).death_reason
            await asyncio.sleep(0.2)
            assert r.agents[0].available == cpus(4)

    run_virtual(main())
