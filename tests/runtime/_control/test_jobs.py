from __future__ import annotations

import asyncio

import msgspec
import pytest

from runtime._core.nodes import RECONNECT_GRACE_S
from runtime._transport.channel import CallError
from runtime._wire.messages.control import (
    FinishJob,
    GetJob,
    JobFinished,
    KillActor,
    ListJobs,
    LogBatch,
    RegisterActor,
)
from runtime._wire.messages.groups import CreatePlacementGroup
from tests.sim.control import specs
from tests.sim.control.cluster import rig
from tests.sim.world import run_virtual


def test_jobs_are_numbered_and_described() -> None:
    async def main() -> None:
        async with rig(4) as r:
            first, second = await r.job(), await r.job(1)
            assert (first.job_id, second.job_id) == (b"\1\0\0\0", b"\2\0\0\0")
            assert first.state == "RUNNING"
            assert first.driver.node_id == r.agents[0].node_id
            assert (await r.ask(GetJob(second.job_id))) == second
            assert [job.job_id for job in (await r.ask(ListJobs())).jobs] == [first.job_id, second.job_id]

    run_virtual(main())


def test_a_driver_that_asks_again_keeps_its_job() -> None:
    async def main() -> None:
        async with rig(4) as r:
            assert await r.job() == await r.job()

    run_virtual(main())


def test_an_unknown_job() -> None:
    async def main() -> None:
        async with rig(4) as r:
            with pytest.raises(CallError) as caught:
                await r.ask(GetJob(b"\0\0\0\x63"))
            assert caught.value.kind == "not_found"
            await r.ask(FinishJob(b"\0\0\0\x63"))

    run_virtual(main())


def test_the_end_of_a_job_takes_its_actors_and_groups_but_not_detached_ones() -> None:
    async def main() -> None:
        async with rig(8, 8) as r:
            job = await r.job()
            await r.ask(RegisterActor(specs.actor(1)))
            await r.ask(RegisterActor(specs.actor(2, detached=True, name="stays")))
            await r.ask(RegisterActor(specs.actor(3, needs={"CPU": 99})))
            await r.ask(specs.group(1, [{"CPU": 1}]))
            await r.ask(specs.group(2, [{"CPU": 1}], detached=True))
            for number in (1, 2):
                await r.actor(number, "ALIVE")
                await r.group(number, "CREATED")
            await r.ask(FinishJob(job.job_id))
            assert (await r.ask(GetJob(job.job_id))).state == "FINISHED"
            assert "job finished" in (await r.actor(1, "DEAD")).death_reason
            await r.actor(3, "DEAD")
            await r.actor(2, "ALIVE")
            await r.group(1, "REMOVED")
            await r.group(2, "CREATED")
            await asyncio.sleep(0.1)
            for agent in r.agents:
                assert JobFinished(job.job_id) in agent.received
            assert sum(len(agent.actors) for agent in r.agents) == 1
            assert sum(len(agent.bundles) for agent in r.agents) == 1

    run_virtual(main())


def test_a_job_ends_once() -> None:
    async def main() -> None:
        async with rig(4) as r:
            job = await r.job()
            await r.ask(FinishJob(job.job_id))
            ended = await r.ask(GetJob(job.job_id))
            await asyncio.sleep(5)
            await r.ask(FinishJob(job.job_id))
            assert await r.ask(GetJob(job.job_id)) == ended

    run_virtual(main())


def test_a_job_ends_with_the_node_of_its_driver() -> None:
    async def main() -> None:
        async with rig(4, 4) as r:
            job = await r.job()
            r.agents[0].crash()
            await asyncio.sleep(RECONNECT_GRACE_S + 0.1)
            assert (await r.ask(GetJob(job.job_id))).state == "FINISHED"
            assert JobFinished(job.job_id) in r.agents[1].received

    run_virtual(main())


def test_jobs_and_their_numbers_survive_a_restart() -> None:
    async def main() -> None:
        async with rig(4) as r:
            first = await r.job()
            await r.restart()
            await r.agents[0].join(r.store)
            assert await r.ask(GetJob(first.job_id)) == first
            assert await r.job() == first
            assert (await r.job(1)).job_id == b"\2\0\0\0"

    run_virtual(main())


def test_an_agent_that_was_away_hears_of_jobs_that_ended() -> None:
    async def main() -> None:
        async with rig(4, 4) as r:
            job = await r.job()
            r.agents[1].cut()
            await r.ask(FinishJob(job.job_id))
            await asyncio.sleep(1)
            await r.agents[1].join(r.store)
            await asyncio.sleep(0.1)
            assert JobFinished(job.job_id) in r.agents[1].received

    run_virtual(main())


def test_output_goes_to_the_agent_of_the_driver() -> None:
    async def main() -> None:
        async with rig(4, 4) as r:
            job = await r.job()
            batch = LogBatch(job.job_id, r.agents[1].node_id, "h", 5, "f", False, ["hello"])
            r.agents[1].send(batch)
            r.agents[1].send(LogBatch(b"\0\0\0\x63", r.agents[1].node_id, "h", 5, "f", False, ["nobody's"]))
            await asyncio.sleep(0.1)
            assert [m for m in r.agents[0].received if isinstance(m, LogBatch)] == [batch]
            assert not any(isinstance(m, LogBatch) for m in r.agents[1].received)

    run_virtual(main())


def test_groups_of_other_jobs_stay() -> None:
    async def main() -> None:
        async with rig(4) as r:
            await r.job()
            other = await r.job(1)
            request = specs.group(1, [{"CPU": 1}])
            assert isinstance(request, CreatePlacementGroup)
            await r.ask(request)
            await r.group(1, "CREATED")
            await r.ask(FinishJob(other.job_id))
            await r.group(1, "CREATED")

    run_virtual(main())


def test_groups_of_an_actor_that_lives_on_go_with_it() -> None:
    async def main() -> None:
        async with rig(8) as r:
            job = await r.job()
            await r.ask(RegisterActor(specs.actor(1, detached=True, name="stays")))
            await r.ask(RegisterActor(specs.actor(2)))
            for number in (1, 2):
                await r.actor(number, "ALIVE")
                made = specs.group(number, [{"CPU": 1}])
                await r.ask(msgspec.structs.replace(made, creator_actor=specs.actor_id(number)))
                await r.group(number, "CREATED")
            await r.ask(FinishJob(job.job_id))
            await r.actor(2, "DEAD")
            await r.group(2, "REMOVED")
            await asyncio.sleep(0.1)
            await r.group(1, "CREATED")
            await r.ask(KillActor(specs.actor_id(1), no_restart=True))
            await r.group(1, "REMOVED")

    run_virtual(main())


def test_groups_of_a_detached_actor_end_with_its_process() -> None:
    async def main() -> None:
        async with rig(8) as r:
            await r.job()
            await r.ask(RegisterActor(specs.actor(1, detached=True, name="stays", max_restarts=1)))
            await r.ask(RegisterActor(specs.actor(2, max_restarts=1)))
            for actor, number in ((1, 1), (2, 2)):
                await r.actor(actor, "ALIVE")
                made = specs.group(number, [{"CPU": 1}])
                await r.ask(msgspec.structs.replace(made, creator_actor=specs.actor_id(actor)))
                await r.group(number, "CREATED")
                await r.ask(KillActor(specs.actor_id(actor), no_restart=False))
            await r.group(1, "REMOVED")
            await r.actor(1, "ALIVE")
            kept = msgspec.structs.replace(specs.group(3, [{"CPU": 1}]), detached=True)
            for request in (specs.group(4, [{"CPU": 1}]), kept):
                await r.ask(msgspec.structs.replace(request, creator_actor=specs.actor_id(1)))
                await r.group(4 if request is not kept else 3, "CREATED")
            await r.ask(KillActor(specs.actor_id(1), no_restart=True))
            await r.group(4, "REMOVED")
            await asyncio.sleep(0.1)
            await r.group(2, "CREATED")
            await r.group(3, "CREATED")

    run_virtual(main())
