"""The store service: room that is waited for, readers that wait for writers, memory that is really shared."""

from __future__ import annotations

import asyncio
import mmap
import os
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from runtime._store.arena import Arena
from runtime._store.service import ObjectStore
from runtime._transport.channel import CallError
from runtime._wire.messages.base import ErrorKind
from runtime._wire.messages.node import StoreSpace

KIB = 1 << 10
A, B, C = b"a" * 28, b"b" * 28, b"c" * 28


def run(scenario: Callable[[ObjectStore], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        store = ObjectStore(64 * KIB)
        try:
            await scenario(store)
        finally:
            store.close()

    asyncio.run(main())


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
        assert store.read(A, 0, 100) == (5, b"hello")
        assert store.read(A, 3, 100) == (5, b"lo")
        assert store.read(B, 0, 1) is None

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
        store.unpin([A], "w")
        store.free([A])
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
        other = ObjectStore(64 * KIB)
        sealed(other, A, 60 * KIB)
        waiting = later(other.create(B, 40 * KIB, "x"))
        await asyncio.sleep(0)
        other.close()
        with pytest.raises(CallError) as caught:
            await waiting
        assert caught.value.kind == ErrorKind.UNAVAILABLE

    run(scenario)


def test_the_arena_is_shared_by_its_path() -> None:
    arena = Arena(64 * KIB)
    fd = os.open(arena.path, os.O_RDWR)
    with mmap.mmap(fd, 64 * KIB) as other:
        os.close(fd)
        other[100:105] = b"there"
        assert arena.read(100, 5) == b"there"
    arena.close()


def test_the_arena_takes_no_memory_until_it_is_written() -> None:
    arena = Arena(1 << 40)
    assert os.stat(arena.path).st_blocks == 0
    arena.close()
