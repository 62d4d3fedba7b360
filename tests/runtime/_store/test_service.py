"""The store service: room that is waited for, readers that wait for writers, memory that is really shared."""

from __future__ import annotations

import asyncio
import mmap
import os
import pathlib
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

import pytest

from runtime._store.arena import Arena
from runtime._store.service import ObjectStore
from runtime._store.spiller import SpillSettings
from runtime._transport.channel import CallError
from runtime._wire.messages.base import ErrorKind
from runtime._wire.messages.node import StoreSpace

KIB = 1 << 10
A, B, C = b"a" * 28, b"b" * 28, b"c" * 28


FOLDER = tempfile.mkdtemp()


def settings(**changes: Any) -> SpillSettings:
    return SpillSettings(os.path.join(FOLDER, "spilled"), **{"grace_s": 0.05, **changes})


@pytest.fixture(scope="module", autouse=True)
def _folder() -> Iterator[None]:
    yield
    assert os.listdir(FOLDER) == []
    os.rmdir(FOLDER)


def run(scenario: Callable[[ObjectStore], Coroutine[Any, Any, None]], **changes: Any) -> None:
    async def main() -> None:
        store = ObjectStore(64 * KIB, settings(**changes))
        try:
            await scenario(store)
        finally:
            store.close()

    asyncio.run(main())


async def read(store: ObjectStore, name: bytes, offset: int, length: int) -> tuple[int, bytes] | None:
    """What another node reads: the size of the whole, and the part."""
    entry = store.lend(name, "another node")
    if entry is None:
        return None
    piece = await store.piece(entry, offset, length)
    store.unpin([name], "another node")
    if piece.fd < 0:
        return piece.total_bytes, piece.data
    return piece.total_bytes, os.pread(piece.fd, piece.length, piece.offset)


def at_once(result: StoreSpace | Awaitable[StoreSpace]) -> StoreSpace:
    assert isinstance(result, StoreSpace)
    return result


def later(result: StoreSpace | Awaitable[StoreSpace]) -> asyncio.Future[StoreSpace]:
    assert not isinstance(result, StoreSpace)
    return asyncio.ensure_future(result)


def sealed(store: ObjectStore, name: bytes, size: int, holder: str = "w", primary: bool = True) -> int:
    space = at_once(store.create(name, size, holder, primary=primary))
    store.seal(name, holder)
    return space.offset


def test_what_is_written_can_be_read() -> None:
    async def scenario(store: ObjectStore) -> None:
        offset = sealed(store, A, 5)
        store.arena.write(offset, b"hello")
        assert await read(store, A, 0, 100) == (5, b"hello")
        assert await read(store, A, 3, 100) == (5, b"lo")
        assert await read(store, B, 0, 1) is None

    run(scenario)


def test_waiting_creators_get_room_in_order() -> None:
    async def scenario(store: ObjectStore) -> None:
        sealed(store, A, 60 * KIB)
        first = later(store.create(B, 40 * KIB, "x"))
        second = later(store.create(C, 40 * KIB, "y"))
        await asyncio.sleep(0)
        store.unpin([A], "w")
        store.free([A])
        assert (await first).offset == 0
        assert not second.done()
        second.cancel()

    run(scenario)


def test_a_small_creator_may_pass_a_big_one() -> None:
    async def scenario(store: ObjectStore) -> None:
        sealed(store, A, 60 * KIB)
        big = later(store.create(B, 40 * KIB, "x"))
        await asyncio.sleep(0)
        at_once(store.create(C, KIB, "y"))
        big.cancel()

    run(scenario)


def test_the_same_object_waits_for_its_other_writer() -> None:
    async def scenario(store: ObjectStore) -> None:
        at_once(store.create(A, KIB, "dying"))
        again = later(store.create(A, KIB, "retry"))
        await asyncio.sleep(0)
        store.drop_holder("dying")
        assert (await again).offset == 0

    run(scenario)


def test_the_same_object_is_refused_once_its_other_writer_is_done() -> None:
    async def scenario(store: ObjectStore) -> None:
        at_once(store.create(A, KIB, "w"))
        again = later(store.create(A, KIB, "retry"))
        await asyncio.sleep(0)
        store.seal(A, "w")
        with pytest.raises(CallError) as caught:
            await again
        assert caught.value.kind == ErrorKind.EXISTS

    run(scenario)


def test_a_creator_that_goes_stops_waiting() -> None:
    async def scenario(store: ObjectStore) -> None:
        sealed(store, A, 60 * KIB)
        waiting = later(store.create(B, 40 * KIB, "x"))
        await asyncio.sleep(0)
        store.drop_holder("x")
        with pytest.raises(CallError) as caught:
            await waiting
        assert caught.value.kind == ErrorKind.UNAVAILABLE
        store.free([A])
        store.unpin([A], "w")
        assert store.index.used_bytes == 0

    run(scenario)


def test_readers_wake_when_the_writer_gives_up() -> None:
    async def scenario(store: ObjectStore) -> None:
        at_once(store.create(A, KIB, "w"))
        assert store.is_being_written(A)
        reading = asyncio.ensure_future(store.wait_written(A))
        await asyncio.sleep(0)
        store.abort(A, "w")
        await reading
        assert store.pin(A, "r") is None

    run(scenario)


def test_readers_wake_when_the_writer_dies() -> None:
    async def scenario(store: ObjectStore) -> None:
        at_once(store.create(A, KIB, "w"))
        reading = asyncio.ensure_future(store.wait_written(A))
        await asyncio.sleep(0)
        store.drop_holder("w")
        await reading
        assert not store.is_being_written(A)

    run(scenario)


def test_a_closing_store_ends_waits() -> None:
    async def scenario(store: ObjectStore) -> None:
        other = ObjectStore(64 * KIB, settings())
        sealed(other, A, 60 * KIB)
        waiting = later(other.create(B, 40 * KIB, "x"))
        await asyncio.sleep(0)
        other.close()
        with pytest.raises(CallError) as caught:
            await waiting
        assert caught.value.kind == ErrorKind.UNAVAILABLE

    run(scenario)


# ---------------------------------------------------------------- spilling


def is_there(path: str) -> bool:
    return os.path.exists(path)


def contents(path: str) -> bytes:
    return pathlib.Path(path).read_bytes()


def size_of(path: str) -> int:
    return os.path.getsize(path)


def test_what_nobody_uses_makes_room() -> None:
    async def scenario(store: ObjectStore) -> None:
        offset = sealed(store, A, 60 * KIB)
        store.arena.write(offset, b"hello")
        store.unpin([A], "w")
        space = await later(store.create(B, 60 * KIB, "w"))
        assert space == StoreSpace(offset)
        pinned = store.pin(A, "r")
        assert pinned is not None
        assert contents(pinned.path)[:5] == b"hello"
        assert await read(store, A, 1, 3) == (60 * KIB, b"ell")
        store.free([A])
        assert not is_there(pinned.path)

    run(scenario)


def test_what_nobody_uses_is_written_ahead_of_need() -> None:
    async def scenario(store: ObjectStore) -> None:
        for name in (A, B, C):
            sealed(store, name, 20 * KIB)
            store.unpin([name], "w")
        for _ in range(1000):
            if store.index.spilled_bytes:
                break
            await asyncio.sleep(0.001)
        assert store.index.spilled_bytes == 20 * KIB  # down to the threshold, no more
        at_once(store.create(b"d" * 28, 20 * KIB, "w"))

    run(scenario)


def test_what_finds_no_memory_is_written_to_a_file() -> None:
    async def scenario(store: ObjectStore) -> None:
        sealed(store, A, 60 * KIB)  # and pinned
        space = await later(store.create(B, 60 * KIB, "w"))
        assert size_of(space.path) == 60 * KIB
        await store.write(space, 10, b"there")
        store.seal(B, "w")
        pinned = store.pin(B, "r")
        assert pinned is not None
        assert pinned.path == space.path
        assert await read(store, B, 10, 5) == (60 * KIB, b"there")

    run(scenario)


def test_only_the_first_waits_for_readers_that_let_nothing_go() -> None:
    async def scenario(store: ObjectStore) -> None:
        sealed(store, A, 60 * KIB)  # and pinned
        async with asyncio.timeout(10):
            for number in range(40):  # 20 s, if each waited
                name = number.to_bytes(28, "big")
                assert (await later(store.create(name, 60 * KIB, "w"))).path
                store.seal(name, "w")
        store.unpin([A], "w")
        assert not (await later(store.create(B, 60 * KIB, "w"))).path  # A goes to disk

    run(scenario, grace_s=0.5)


def test_what_is_larger_than_the_store_is_written_to_a_file_at_once() -> None:
    async def scenario(store: ObjectStore) -> None:
        sealed(store, A, 20 * KIB, primary=False)
        store.unpin([A], "w")
        space = await later(store.create(B, 65 * KIB, "w"))
        assert space.path
        assert store.pin(A, "r") is not None
        store.abort(B, "w")
        assert not is_there(space.path)

    run(scenario)


def test_without_spilling_only_what_finds_no_memory_goes_to_disk() -> None:
    async def scenario(store: ObjectStore) -> None:
        sealed(store, A, 60 * KIB)
        store.unpin([A], "w")
        assert (await later(store.create(B, 60 * KIB, "w"))).path
        assert store.index.spilled_bytes == 60 * KIB

    run(scenario, enabled=False)


def test_a_full_disk() -> None:
    async def scenario(store: ObjectStore) -> None:
        sealed(store, A, 60 * KIB)
        store.unpin([A], "w")
        with pytest.raises(CallError, match=r"no room for 0.1 MiB .* fill the disk") as caught:
            await later(store.create(B, 60 * KIB, "w"))
        assert caught.value.kind == ErrorKind.OUT_OF_DISK
        store.free([A])
        at_once(store.create(B, 60 * KIB, "w"))

    run(scenario, disk_full_from=0.0)


def test_many_objects_at_once_pass_through_a_small_store() -> None:
    async def scenario(store: ObjectStore) -> None:
        async def make(number: int) -> None:
            name = bytes([number]) * 28
            result = store.create(name, 10 * KIB, number)
            space = result if isinstance(result, StoreSpace) else await result
            await store.write(space, 0, name)
            store.seal(name, number)
            store.unpin([name], number)

        await asyncio.gather(*[make(number) for number in range(60)])
        for number in range(60):
            assert await read(store, bytes([number]) * 28, 0, 28) == (10 * KIB, bytes([number]) * 28)

    run(scenario)


def test_a_store_may_close_while_it_writes() -> None:
    async def scenario(store: ObjectStore) -> None:
        sealed(store, A, 60 * KIB)
        store.unpin([A], "w")
        creating = later(store.create(B, 60 * KIB, "w"))
        await asyncio.sleep(0)
        assert store.index.spilling_bytes
        creating.cancel()

    run(scenario)


def test_the_arena_is_shared_by_its_path() -> None:
    arena = Arena(64 * KIB)
    fd = os.open(arena.path, os.O_RDWR)
    with mmap.mmap(fd, 64 * KIB) as other:
        os.close(fd)
        other[100:105] = b"there"
        assert os.pread(arena.fd, 5, 100) == b"there"
    arena.close()


def test_the_arena_takes_no_memory_until_it_is_written() -> None:
    arena = Arena(1 << 40)
    assert os.stat(arena.path).st_blocks == 0
    arena.close()


# ---------------------------------------------------------------- two owners, one id


def test_an_object_of_another_owner_is_no_earlier_attempt() -> None:
    async def scenario(store: ObjectStore) -> None:
        at_once(store.create(A, KIB, "w", owner_worker=b"one"))
        for _ in ("unsealed", "sealed"):
            with pytest.raises(CallError, match=A.hex()) as caught:
                store.create(A, KIB, "x", owner_worker=b"other")
            assert caught.value.kind == ErrorKind.CLASH
            store.seal(A, "w")
        assert store.pin(A, "reader") is not None  # its owner's is as it was

    run(scenario)


def test_placing_another_owners_id_is_logged_and_told_to_readers(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(store: ObjectStore) -> None:
        for owner in (b"one", b"other"):
            [(offset, _)] = store.allot(owner, KIB, 2)
            store.add(owner, [(A, offset, KIB)], owner, owner_worker=owner, owner_node=b"")
        [(offset, _)] = store.allot("third", KIB, 1)
        store.add("third", [(B, offset, KIB)], "third", owner_worker=b"third", owner_node=b"")
        for ask in (store.pin, store.lend):
            with pytest.raises(CallError, match=A.hex()) as caught:
                ask(A, "reader")
            assert caught.value.kind == ErrorKind.CLASH
            assert ask(B, "reader") is not None
        assert A.hex() in caplog.text

    run(scenario)
