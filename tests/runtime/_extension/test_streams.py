"""Metadata of items and limits in bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import runtime as ray
from runtime._extension.process import connected
from runtime._extension.streams import Described, metadata_of
from tests.polling import eventually, stays

pytestmark = pytest.mark.usefixtures("session")


@ray.remote
def blocks(count: int, size: int) -> Iterator[Any]:
    for number in range(count):
        yield Described(bytes(size), {"rows": number, "schema": b"abc", "names": ["x", "y"]})


@pytest.mark.parametrize("size", [10, 1 << 20])
def test_metadata_is_there_without_the_value(size: int) -> None:
    refs = list(blocks.remote(3, size))
    assert [metadata_of(ref)["rows"] for ref in refs] == [0, 1, 2]
    assert metadata_of(refs[0]) == {"rows": 0, "schema": b"abc", "names": ["x", "y"]}
    assert ray.get(refs) == [bytes(size)] * 3


def test_metadata_goes_with_the_reference() -> None:
    refs = list(blocks.remote(3, 10))
    known = connected().objects.metadata
    ids = {ref.binary() for ref in refs}
    assert ids <= set(known)
    del refs
    assert eventually(lambda: not ids & set(known))


def test_items_and_objects_without_metadata_have_none() -> None:
    @ray.remote
    def plain() -> Iterator[int]:
        yield 1

    (ref,) = plain.remote()
    assert metadata_of(ref) is None
    assert metadata_of(ray.put(1)) is None


def test_metadata_of_async_generators_and_of_several_objects_per_yield() -> None:
    @ray.remote
    class Producer:
        async def several(self, n: int) -> AsyncIterator[Any]:
            for number in range(n):
                await asyncio.sleep(0)
                yield Described(number, number * 10)

    @ray.remote(_num_objects_per_yield=2)
    def pairs() -> Iterator[Any]:
        yield Described(1, "one"), 2

    producer = Producer.remote()
    refs = list(producer.several.remote(3))
    assert [(ray.get(ref), metadata_of(ref)) for ref in refs] == [(0, 0), (1, 10), (2, 20)]
    assert [metadata_of(ref) for ref in pairs.remote()] == ["one", None]


@pytest.mark.parametrize("metadata", [object(), b"x" * 100_000], ids=["wrong", "large"])
def test_metadata_that_cannot_travel_is_an_error_of_the_generator(metadata: Any) -> None:
    @ray.remote
    def wrong(large: bool) -> Iterator[Any]:
        yield Described(1, b"x" * 100_000 if large else object())

    (ref,) = wrong.remote(isinstance(metadata, bytes))
    with pytest.raises(ValueError if isinstance(metadata, bytes) else TypeError):
        ray.get(ref)


@ray.remote
class Count:
    def __init__(self) -> None:
        self.made = 0

    def add(self) -> None:
        self.made += 1

    def get(self) -> int:
        return self.made


@ray.remote(_generator_backpressure_num_bytes=3000)
def limited(count: Any, n: int, size: int) -> Iterator[bytes]:
    for _ in range(n):
        ray.get(count.add.remote())
        yield bytes(size)


@ray.remote
class Generators:
    @ray.method(_generator_backpressure_num_bytes=3000)
    def limited(self, count: Any, n: int, size: int) -> Iterator[bytes]:
        for _ in range(n):
            ray.get(count.add.remote())
            yield bytes(size)

    async def free(self, count: Any, n: int, size: int) -> AsyncIterator[bytes]:
        for _ in range(n):
            await count.add.remote()
            yield bytes(size)


def made(count: Any) -> int:
    number: int = ray.get(count.get.remote())
    return number


@pytest.mark.parametrize("kind", ["task", "method", "options", "async"])
@pytest.mark.parametrize(("size", "most"), [(1000, 3), (200_000, 1)])
def test_a_limit_in_bytes(kind: str, size: int, most: int) -> None:
    count = Count.remote()
    if kind == "task":
        items = limited.remote(count, 20, size)
    else:
        actor = Generators.remote()
        if kind == "method":
            items = actor.limited.remote(count, 20, size)
        elif kind == "options":
            larger = actor.limited.options(_generator_backpressure_num_bytes=10 * size)
            items, most = larger.remote(count, 20, size), 10
        else:
            items = actor.free.options(_generator_backpressure_num_bytes=3000).remote(count, 20, size)
    assert eventually(lambda: made(count) == most)
    assert stays(lambda: made(count) == most)
    refs = []
    for taken in range(1, 21):
        refs.append(next(items))
        assert made(count) <= most + taken
    assert sum(map(len, ray.get(refs))) == 20 * size
    with pytest.raises(StopIteration):
        next(items)


def test_small_items_count_by_their_pickles() -> None:
    count = Count.remote()
    items = limited.remote(count, 100, 100)
    assert eventually(lambda: made(count) >= 20)
    assert stays(lambda: made(count) <= 30)
    assert len(list(items)) == 100


def test_a_limit_in_bytes_must_not_be_zero() -> None:
    with pytest.raises(ValueError, match="num_bytes=0 is not allowed"):
        limited.options(_generator_backpressure_num_bytes=0)
