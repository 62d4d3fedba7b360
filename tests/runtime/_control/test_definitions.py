"""When the definitions of classes go."""

from __future__ import annotations

import asyncio

from runtime._wire.messages.control import (
    DEFINITIONS,
    FinishJob,
    KillActor,
    KvKeys,
    KvPut,
    RegisterActor,
)
from tests.sim.control import specs
from tests.sim.control.cluster import Rig, rig
from tests.sim.world import run_virtual


async def kept(r: Rig) -> list[bytes]:
    await asyncio.sleep(0.1)
    return list((await r.ask(KvKeys(DEFINITIONS))).keys)


def test_definitions_go_with_the_last_job() -> None:
    async def main() -> None:
        async with rig(4) as r:
            first, second = await r.job(1), await r.job(2)
            await r.ask(KvPut(DEFINITIONS, b"key", b"class"))
            await r.ask(FinishJob(first.job_id))
            assert await kept(r) == [b"key"]
            await r.ask(FinishJob(second.job_id))
            assert await kept(r) == []

    run_virtual(main())


def test_a_detached_actor_keeps_definitions() -> None:
    async def main() -> None:
        async with rig(4) as r:
            job = await r.job(1)
            await r.ask(KvPut(DEFINITIONS, b"key", b"class"))
            await r.ask(RegisterActor(specs.actor(1, detached=True, name="stays")))
            await r.actor(1, "ALIVE")
            await r.ask(FinishJob(job.job_id))
            assert await kept(r) == [b"key"]
            await r.ask(KillActor(specs.actor(1).actor_id, no_restart=True))
            await r.actor(1, "DEAD")
            assert await kept(r) == []

    run_virtual(main())


def test_definitions_without_a_job_go_when_the_store_starts_again() -> None:
    async def main() -> None:
        async with rig(4) as r:
            await r.ask(KvPut(DEFINITIONS, b"key", b"class"))
            await r.restart()
            assert await kept(r) == []

    run_virtual(main())
