from __future__ import annotations

from runtime._wire.messages.control import KvDelete, KvGet, KvKeys, KvPut
from tests.sim.control.cluster import rig
from tests.sim.world import run_virtual


def test_put_get_delete() -> None:
    async def main() -> None:
        async with rig() as r:
            assert (await r.ask(KvGet("a", b"k"))).value is None
            assert (await r.ask(KvPut("a", b"k", b"1"))).added
            assert not (await r.ask(KvPut("a", b"k", b"2"))).added
            assert (await r.ask(KvGet("a", b"k"))).value == b"2"
            assert (await r.ask(KvGet("b", b"k"))).value is None
            assert (await r.ask(KvDelete("a", b"k"))).count == 1
            assert (await r.ask(KvDelete("a", b"k"))).count == 0

    run_virtual(main())


def test_without_overwrite_the_first_wins() -> None:
    async def main() -> None:
        async with rig() as r:
            assert (await r.ask(KvPut("a", b"k", b"1", overwrite=False))).added
            assert not (await r.ask(KvPut("a", b"k", b"2", overwrite=False))).added
            assert (await r.ask(KvGet("a", b"k"))).value == b"1"

    run_virtual(main())


def test_prefixes() -> None:
    async def main() -> None:
        async with rig() as r:
            for key in (b"a/1", b"a/2", b"b/1"):
                await r.ask(KvPut("n", key, key))
            assert (await r.ask(KvKeys("n"))).keys == [b"a/1", b"a/2", b"b/1"]
            assert (await r.ask(KvKeys("n", b"a/"))).keys == [b"a/1", b"a/2"]
            assert (await r.ask(KvDelete("n", b"a/", is_prefix=True))).count == 2
            assert (await r.ask(KvKeys("n"))).keys == [b"b/1"]

    run_virtual(main())


def test_values_survive_a_restart() -> None:
    async def main() -> None:
        async with rig() as r:
            await r.ask(KvPut("n", b"k", b"v" * 1_000_000))
            await r.restart()
            assert (await r.ask(KvGet("n", b"k"))).value == b"v" * 1_000_000

    run_virtual(main())


def test_namespaces_do_not_reach_the_stores_own_tables() -> None:
    async def main() -> None:
        async with rig(4) as r:
            assert (await r.ask(KvKeys("nodes"))).keys == []
            assert (await r.ask(KvKeys("meta"))).keys == []

    run_virtual(main())
