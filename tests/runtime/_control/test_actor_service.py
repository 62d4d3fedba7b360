from __future__ import annotations

import asyncio

import pytest

from runtime._core.placement import rewrite_for_group
from runtime._transport.channel import CallError
from runtime._wire.messages.base import ErrorKind, SchedulingStrategy, WorkerAddress
from runtime._wire.messages.control import (
    GetNamedActor,
    KillActor,
    ListActors,
    RegisterActor,
    RemovePlacementGroup,
    StartActor,
    WatchActor,
    WorkerFailed,
    WorkersDead,
)
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


class TestEnding:
    def test_restarts_until_the_budget_is_spent(self) -> None:
        async def main() -> None:
            async with rig(4) as r:
                agent = r.agents[0]
                await r.ask(RegisterActor(specs.actor(1, max_restarts=2)))
                for restarts in range(3):
                    info = await r.actor(1, "ALIVE")
                    assert info.restarts == restarts
                    await asyncio.sleep(10)
                    agent.end_actor(specs.actor_id(1), "killed by signal 9", False)
                    await asyncio.sleep(0.01)
                info = await r.actor(1, "DEAD")
                assert info.death_reason.endswith("killed by signal 9")
                assert info.address is None

        run_virtual(main())

    def test_an_intended_end_is_final(self) -> None:
        async def main() -> None:
            async with rig(4) as r:
                await r.ask(RegisterActor(specs.actor(1, max_restarts=-1)))
                await r.actor(1, "ALIVE")
                r.agents[0].end_actor(specs.actor_id(1), "exit_actor", True)
                assert (await r.actor(1, "DEAD")).restarts == 0

        run_virtual(main())

    def test_killed(self) -> None:
        async def main() -> None:
            async with rig(4) as r:
                await r.ask(RegisterActor(specs.actor(1, max_restarts=-1)))
                await r.actor(1, "ALIVE")
                await r.ask(KillActor(specs.actor_id(1)))
                assert (await r.actor(1)).state == "DEAD"
                await asyncio.sleep(0.2)
                assert not r.agents[0].actors
                await r.ask(KillActor(specs.actor_id(1)))
                await r.ask(KillActor(specs.actor_id(99)))

        run_virtual(main())

    def test_killed_to_be_restarted(self) -> None:
        async def main() -> None:
            async with rig(4) as r:
                await r.ask(RegisterActor(specs.actor(1, max_restarts=1)))
                first = await r.actor(1, "ALIVE")
                await r.ask(KillActor(specs.actor_id(1), no_restart=False))
                await r.actor(1, "RESTARTING")
                second = await r.actor(1, "ALIVE")
                assert second.restarts == 1
                assert second.address != first.address

        run_virtual(main())

    def test_killed_while_it_starts(self) -> None:
        async def main() -> None:
            async with rig(4) as r:
                r.agents[0].behaviour = Behaviour(start_s=lambda: 3.0)
                await r.ask(RegisterActor(specs.actor(1)))
                await asyncio.sleep(1)
                await r.ask(KillActor(specs.actor_id(1)))
                await asyncio.sleep(5)
                assert not r.agents[0].actors
                assert (await r.actor(1)).state == "DEAD"
                assert (await r.node(r.agents[0])).available == cpus(4)

        run_virtual(main())

    def test_the_last_handle_goes(self) -> None:
        async def main() -> None:
            async with rig(4) as r:
                await r.ask(RegisterActor(specs.actor(1, max_restarts=3)))
                await r.actor(1, "ALIVE")
                await r.ask(KillActor(specs.actor_id(1), graceful=True))
                await r.actor(1, "DEAD")
                await r.ask(RegisterActor(specs.actor(2, needs={"CPU": 99})))
                await r.ask(KillActor(specs.actor_id(2), graceful=True))
                assert (await r.actor(2)).state == "DEAD"

        run_virtual(main())

    def test_the_last_handle_goes_while_its_node_dies(self) -> None:
        async def main() -> None:
            async with rig(4, 4) as r:
                await r.ask(RegisterActor(specs.actor(1, max_restarts=3)))
                info = await r.actor(1, "ALIVE")
                for agent in r.agents:
                    if agent.node_id == info.node_id:
                        agent.crash()
                await r.ask(KillActor(specs.actor_id(1), graceful=True))
                await r.actor(1, "DEAD")
                await asyncio.sleep(10)
                assert not any(agent.actors for agent in r.agents if agent.node_id != info.node_id)

        run_virtual(main())

    def test_the_last_handle_goes_while_its_node_is_away(self) -> None:
        async def main() -> None:
            async with rig(4) as r:
                (agent,) = r.agents
                await r.ask(RegisterActor(specs.actor(1, max_restarts=3)))
                await r.actor(1, "ALIVE")
                agent.cut()
                await r.ask(KillActor(specs.actor_id(1), graceful=True))
                await agent.join(r.store)
                await r.actor(1, "DEAD")
                assert not agent.actors

        run_virtual(main())

    @pytest.mark.parametrize("end", ["last handle", "kill", "owner", "owner's node"])
    def test_a_crashed_actor_keeps_its_name_until_nobody_can_mean_it(self, end: str) -> None:
        async def main() -> None:
            async with rig(4, 1) as r:
                agent, other = r.agents
                owner = WorkerAddress(b"w" * 28, other.node_id, "")
                await r.ask(RegisterActor(specs.actor(1, name="a", owner=owner, needs={"CPU": 2})))
                await r.actor(1, "ALIVE")
                agent.end_actor(specs.actor_id(1), "crashed", False)
                await r.actor(1, "DEAD")
                await r.restart()
                for one in r.agents:
                    await one.join(r.store)
                assert (await r.ask(GetNamedActor("a", "ns"))).state == "DEAD"
                with pytest.raises(CallError):
                    await r.ask(RegisterActor(specs.actor(2, name="a")))
                if end == "last handle":
                    await r.ask(KillActor(specs.actor_id(1), graceful=True))
                elif end == "kill":
                    await r.ask(KillActor(specs.actor_id(1)))
                elif end == "owner":
                    other.send(WorkerFailed(owner.worker_id, b"", "exit code 0", True))
                else:
                    other.crash()
                    await asyncio.sleep(30)
                await asyncio.sleep(1)
                await r.ask(RegisterActor(specs.actor(2, name="a")))
                assert (await r.ask(GetNamedActor("a", "ns"))).actor_id == specs.actor_id(2)

        run_virtual(main())

    def test_a_dead_owner_takes_its_actors_along(self) -> None:
        async def main() -> None:
            async with rig(4) as r:
                agent = r.agents[0]
                owner = WorkerAddress(b"w" * 28, agent.node_id, "")
                await r.ask(RegisterActor(specs.actor(1, owner=owner, max_restarts=-1)))
                await r.ask(RegisterActor(specs.actor(2, owner=owner, detached=True)))
                await r.actor(1, "ALIVE")
                await r.actor(2, "ALIVE")
                agent.send(WorkerFailed(owner.worker_id, b"", "exit code 0", True))
                assert "owner" in (await r.actor(1, "DEAD")).death_reason
                await asyncio.sleep(0.1)
                assert list(agent.actors) == [specs.actor_id(2)]
                assert WorkersDead([owner.worker_id]) in agent.received

        run_virtual(main())

    def test_a_report_of_another_process_is_ignored(self) -> None:
        async def main() -> None:
            async with rig(4) as r:
                await r.ask(RegisterActor(specs.actor(1)))
                await r.actor(1, "ALIVE")
                r.agents[0].send(WorkerFailed(b"?" * 28, specs.actor_id(1), "stale", False))
                await asyncio.sleep(1)
                assert (await r.actor(1)).state == "ALIVE"

        run_virtual(main())


class TestFaults:
    def test_a_dead_node_moves_its_actors(self) -> None:
        async def main() -> None:
            async with rig(8, 1) as r:
                owner = WorkerAddress(b"w" * 28, r.agents[0].node_id, "")
                await r.ask(RegisterActor(specs.actor(1, max_restarts=1, owner=owner, needs={"CPU": 2})))
                await r.ask(RegisterActor(specs.actor(2, owner=owner, needs={"CPU": 2})))
                await r.actor(1, "ALIVE")
                spare = await r.add(8)
                far = WorkerAddress(b"v" * 28, spare.node_id, "")
                await r.ask(
                    RegisterActor(
                        specs.actor(
                            3,
                            max_restarts=1,
                            owner=far,
                            needs={"CPU": 3},
                            strategy=SchedulingStrategy("NODE_AFFINITY", r.agents[0].node_id, True),
                        )
                    )
                )
                await r.actor(3, "ALIVE")
                r.agents[0].crash()
                info = await r.actor(3, "RESTARTING")
                assert "died" in info.death_reason
                assert (await r.actor(3, "ALIVE")).node_id == spare.node_id
                assert "owner" in (await r.actor(1, "DEAD")).death_reason
                assert "owner" in (await r.actor(2, "DEAD")).death_reason

        run_virtual(main())

    def test_a_node_that_dies_during_a_start_costs_no_restart(self) -> None:
        async def main() -> None:
            async with rig(8) as r:
                r.agents[0].behaviour = Behaviour(start_s=lambda: 9.0)
                owner = WorkerAddress(b"w" * 28, b"elsewhere".ljust(28), "")
                await r.ask(RegisterActor(specs.actor(1, owner=owner)))
                await asyncio.sleep(1)
                r.agents[0].crash()
                spare = await r.add(8)
                info = await r.actor(1, "ALIVE")
                assert (info.node_id, info.restarts) == (spare.node_id, 0)

        run_virtual(main())

    @pytest.mark.parametrize("away_s", [0.1, 2.0])
    def test_a_connection_lost_during_a_start_starts_nothing_twice(self, away_s: float) -> None:
        async def main() -> None:
            async with rig(8, 8) as r:
                for agent in r.agents:
                    agent.behaviour = Behaviour(start_s=lambda: 1.0)
                await r.ask(RegisterActor(specs.actor(1)))
                await asyncio.sleep(0.5)
                busy = next(agent for agent in r.agents if agent.starting)
                busy.cut()
                await asyncio.sleep(away_s)
                await busy.join(r.store)
                info = await r.actor(1, "ALIVE")
                assert info.node_id == busy.node_id
                assert sum(len(agent.actors) for agent in r.agents) == 1

        run_virtual(main())

    def test_actors_survive_a_restart_of_the_store(self) -> None:
        async def main() -> None:
            async with rig(8) as r:
                agent = r.agents[0]
                for number in range(1, 4):
                    await r.ask(RegisterActor(specs.actor(number, name=f"n{number}", max_restarts=1)))
                    before = await r.actor(number, "ALIVE")
                await r.ask(RegisterActor(specs.actor(4, needs={"CPU": 99})))
                await r.restart()
                agent.end_actor(specs.actor_id(2), "while nobody listened", False)
                await agent.join(r.store)
                assert (await r.ask(GetNamedActor("n3", "ns"))) == before
                assert (await r.actor(2, "ALIVE")).restarts == 1
                assert (await r.actor(1)).restarts == 0
                assert (await r.actor(4)).state == "PENDING_CREATION"

        run_virtual(main())

    def test_an_actor_that_nobody_wants_is_stopped_when_its_node_comes_back(self) -> None:
        async def main() -> None:
            async with rig(8) as r:
                agent = r.agents[0]
                await r.ask(RegisterActor(specs.actor(1)))
                await r.actor(1, "ALIVE")
                agent.cut()
                await r.ask(KillActor(specs.actor_id(1)))
                await agent.join(r.store)
                await asyncio.sleep(0.1)
                assert not agent.actors

        run_virtual(main())

    def test_dead_actors_are_remembered_after_a_restart(self) -> None:
        async def main() -> None:
            async with rig(8) as r:
                await r.ask(RegisterActor(specs.actor(1, name="x")))
                await r.ask(KillActor(specs.actor_id(1)))
                await r.restart()
                assert "killed by" in (await r.actor(1)).death_reason
                with pytest.raises(CallError):
                    await r.ask(GetNamedActor("x", "ns"))

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


def test_an_actor_killed_while_its_node_is_away_and_starts_it() -> None:
    async def main() -> None:
        async with rig(4) as r:
            agent = r.agents[0]
            agent.behaviour = Behaviour(start_s=lambda: 4.0)
            await r.ask(RegisterActor(specs.actor(1)))
            await asyncio.sleep(1)
            agent.cut()
            await r.ask(KillActor(specs.actor_id(1)))
            await r.restart()
            await agent.join(r.store)
            await asyncio.sleep(10)
            assert not agent.actors

    run_virtual(main())
