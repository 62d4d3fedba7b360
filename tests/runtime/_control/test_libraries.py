"""Long polls of libraries: nodes and keys."""

from __future__ import annotations

import asyncio

from runtime._wire.messages.control import DrainNode, KvDelete, KvPut, ResumeNode
from runtime._wire.messages.libraries import NO_VALUE, NodeChanges, WatchKey, WatchNodes, digest_of
from tests.sim.control.cluster import Rig, rig
from tests.sim.world import run_virtual


def states(changes: NodeChanges) -> list[str]:
    return [node.state for node in changes.nodes]


async def after(r: Rig, version: int) -> tuple[list[str], int]:
    changes = await r.ask(WatchNodes(version))
    return states(changes), changes.version


def test_a_watcher_of_nodes_hears_of_each_move() -> None:
    async def main() -> None:
        async with rig(4, 2) as r:
            first = await r.ask(WatchNodes())
            assert states(first) == ["ALIVE", "ALIVE"]
            waiting = asyncio.ensure_future(r.ask(WatchNodes(first.version)))
            await asyncio.sleep(1)
            assert not waiting.done()
            await r.add()
            joined = await waiting
            assert [node.node_id for node in joined.nodes] == [r.agents[2].node_id]
            await r.ask(DrainNode(r.agents[0].node_id, "test", only_if_idle=False))
            seen, version = await after(r, joined.version)
            assert seen == ["DRAINING"]
            await r.ask(ResumeNode(r.agents[0].node_id, "test"))
            seen, version = await after(r, version)
            assert seen == ["ALIVE"]
            r.agents[1].crash()
            seen, version = await after(r, version)
            assert seen == ["DEAD"]
            assert states(await r.ask(WatchNodes())) == ["ALIVE", "ALIVE"]

    run_virtual(main())


def test_a_watch_of_nodes_ends_after_its_time() -> None:
    async def main() -> None:
        async with rig(4) as r:
            version = (await r.ask(WatchNodes())).version
            assert await r.ask(WatchNodes(version, 3.0)) == NodeChanges(version, [])

    run_virtual(main())


def test_a_restarted_store_answers_those_who_know_its_earlier_life() -> None:
    async def main() -> None:
        async with rig(4) as r:
            version = (await r.ask(WatchNodes())).version
            await asyncio.sleep(1)
            await r.restart()
            assert (await r.ask(WatchNodes(version))).version > version

    run_virtual(main())


def test_a_watcher_of_a_key_hears_of_what_it_does_not_know() -> None:
    async def main() -> None:
        async with rig() as r:
            assert (await r.ask(WatchKey("n", b"k"))).value is None
            waiting = asyncio.ensure_future(r.ask(WatchKey("n", b"k", NO_VALUE)))
            await r.ask(KvPut("n", b"other", b"1"))
            await r.ask(KvPut("other", b"k", b"1"))
            await asyncio.sleep(1)
            assert not waiting.done()
            await r.ask(KvPut("n", b"k", b"1"))
            assert (await waiting).value == b"1"
            waiting = asyncio.ensure_future(r.ask(WatchKey("n", b"k", digest_of(b"1"))))
            await r.ask(KvPut("n", b"k", b"1"))  # the same value is no news
            await asyncio.sleep(1)
            assert not waiting.done()
            await r.ask(KvDelete("n", b"", is_prefix=True))
            assert (await waiting).value is None
            assert not r.store.kv._watched

    run_virtual(main())


def test_a_watch_of_a_key_ends_after_its_time() -> None:
    async def main() -> None:
        async with rig() as r:
            assert (await r.ask(WatchKey("n", b"k", NO_VALUE, 2.0))).value is None
            assert not r.store.kv._watched

    run_virtual(main())
