"""When uploaded packages go."""

from __future__ import annotations

import asyncio
import json

from runtime._core.environments import PACKAGE_HOLDS, PACKAGES, hold, package_key, package_uri
from runtime._wire.messages.base import WorkerAddress
from runtime._wire.messages.control import (
    AddJob,
    FinishJob,
    JobInfo,
    KillActor,
    KvDelete,
    KvKeys,
    KvPut,
    RegisterActor,
)
from tests.sim.control import specs
from tests.sim.control.cluster import Rig, rig
from tests.sim.world import run_virtual

ONE, TWO = "1" * 64, "2" * 64


async def job(r: Rig, number: int, *digests: str) -> JobInfo:
    env = {"py_modules": [package_uri(digest) for digest in digests]}
    driver = WorkerAddress(bytes([number]) * 28, b"", "")
    config = json.dumps({"runtime_env": env})
    return await r.ask(AddJob(r.agents[0].node_id, driver, 1, "", "", config))


async def upload(r: Rig, *digests: str) -> None:
    for digest in digests:
        await r.ask(KvPut(PACKAGES, package_key(digest).encode(), b"data"))


async def kept(r: Rig) -> list[str]:
    await asyncio.sleep(0.1)
    keys = (await r.ask(KvKeys(PACKAGES))).keys
    return [key.decode().removeprefix("_ray_pkg_").removesuffix(".zip") for key in keys]


def test_a_package_goes_with_the_last_job_that_names_it() -> None:
    async def main() -> None:
        async with rig(4) as r:
            first, second = await job(r, 1, ONE, TWO), await job(r, 2, ONE)
            await upload(r, ONE, TWO)
            assert await kept(r) == [ONE, TWO]
            await r.ask(FinishJob(first.job_id))
            assert await kept(r) == [ONE]
            await r.ask(FinishJob(second.job_id))
            assert await kept(r) == []

    run_virtual(main())


def test_an_upload_that_comes_after_its_job_has_ended_does_not_stay() -> None:
    async def main() -> None:
        async with rig(4) as r:
            ended = await job(r, 1, ONE)
            await r.ask(FinishJob(ended.job_id))
            await upload(r, ONE)
            assert await kept(r) == []

    run_virtual(main())


def test_a_detached_actor_keeps_the_packages_of_its_job() -> None:
    async def main() -> None:
        async with rig(4) as r:
            ended = await job(r, 1, ONE)
            await upload(r, ONE)
            assert ended.job_id == specs.actor(1).job_id
            await r.ask(RegisterActor(specs.actor(1, detached=True, name="stays")))
            await r.actor(1, "ALIVE")
            await r.ask(FinishJob(ended.job_id))
            assert await kept(r) == [ONE]
            await r.ask(KillActor(specs.actor(1).actor_id, no_restart=True))
            await r.actor(1, "DEAD")
            assert await kept(r) == []

    run_virtual(main())


def test_holders_keep_packages_until_they_let_go_or_their_time_is_over() -> None:
    async def main() -> None:
        async with rig(4) as r:
            now_s = asyncio.get_running_loop().time()
            await r.ask(KvPut(PACKAGE_HOLDS, b"a", hold([package_uri(ONE)])))
            await r.ask(KvPut(PACKAGE_HOLDS, b"b", hold([package_key(TWO)], now_s + 60)))
            await upload(r, ONE, TWO)
            await asyncio.sleep(50)
            assert await kept(r) == [ONE, TWO]
            await asyncio.sleep(20)
            assert await kept(r) == [ONE]
            assert (await r.ask(KvKeys(PACKAGE_HOLDS))).keys == [b"a"]
            await r.ask(KvDelete(PACKAGE_HOLDS, b"a"))
            assert await kept(r) == []

    run_virtual(main())


def test_what_nobody_needs_goes_when_the_control_store_starts() -> None:
    async def main() -> None:
        async with rig(4) as r:
            r.storage.put(f"kv:{PACKAGES}", package_key(ONE).encode(), b"data")
            await job(r, 2, TWO)
            r.storage.put(f"kv:{PACKAGES}", package_key(TWO).encode(), b"data")
            await r.restart()
            assert await kept(r) == [TWO]

    run_virtual(main())
