"""Actors end, are killed, restart, and outlive nodes and the control store."""

from __future__ import annotations

import asyncio

import pytest

from runtime._transport.channel import CallError
from runtime._wire.messages.base import SchedulingStrategy, WorkerAddress
from runtime._wire.messages.control import (
    GetNamedActor,
    KillActor,
    RegisterActor,
    WorkerFailed,
    WorkersDead,
)
from tests.sim.control import specs
from tests.sim.control.agent import Behaviour, cpus
from tests.sim.control.cluster import rig
from tests.sim.world import run_virtual


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
