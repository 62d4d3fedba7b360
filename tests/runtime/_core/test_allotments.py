"""Allotted space is nobody else's until it is given back, and nothing of it is lost."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime._core.allocator import Allocator, rounded
from runtime._core.allotments import Allotments

KIB = 1 << 10
CAPACITY = 64 * KIB


def allotments(share: float = 1.0) -> tuple[Allocator, Allotments]:
    allocator = Allocator(CAPACITY)
    return allocator, Allotments(allocator, share)


def test_allotted_space_is_neither_used_nor_free() -> None:
    allocator, allotted = allotments()
    assert allotted.allot("p", KIB, 4) == [(0, 4 * KIB)]
    assert allocator.used_bytes == 0
    assert allotted.allotted_bytes == 4 * KIB
    assert allocator.allocate(KIB) == 4 * KIB
    assert allotted.holders() == ["p"]


def test_an_object_takes_its_part() -> None:
    allocator, allotted = allotments()
    allotted.allot("p", KIB, 4)
    allotted.take("p", KIB, 1000)
    assert allocator.used_bytes == KIB
    assert allotted.allotted_bytes == 3 * KIB
    allocator.free(KIB)
    assert allocator.allocate(KIB) == KIB


def test_what_is_given_back_is_free() -> None:
    allocator, allotted = allotments()
    allotted.allot("p", KIB, 4)
    allotted.give_back("p", [(0, 2 * KIB), (3 * KIB, KIB)])
    assert allocator.allocate(2 * KIB) == 0
    assert allotted.allotted_bytes == KIB
    allotted.give_back("p", [(2 * KIB, KIB)])
    assert not allotted


def test_ranges_allotted_apart_may_be_used_together() -> None:
    allocator, allotted = allotments()
    allotted.allot("p", KIB, 1)
    allotted.allot("p", KIB, 1)
    allotted.take("p", 0, 2 * KIB)
    assert not allotted
    allocator.free(0)
    assert allocator.holes() == [(0, CAPACITY)]


@pytest.mark.parametrize("range_", [(4 * KIB, KIB), (KIB, 4 * KIB), (0, 0 - KIB + 6 * KIB)])
def test_what_was_not_allotted_is_refused(range_: tuple[int, int]) -> None:
    _, allotted = allotments()
    allotted.allot("p", KIB, 4)
    with pytest.raises(ValueError, match="not allotted"):
        allotted.give_back("p", [range_])
    with pytest.raises(ValueError, match="not allotted"):
        allotted.take("q", 0, KIB)
    assert allotted.allotted_bytes == 4 * KIB


def test_nothing_is_allotted_when_memory_is_short() -> None:
    allocator, allotted = allotments(share=0.5)
    allocator.allocate(30 * KIB)
    assert allotted.allot("p", KIB, 4) == [(30 * KIB, 2 * KIB)]
    assert allotted.allot("q", KIB, 4) == []
    assert allotted.holders() == ["p"]


def test_what_a_process_leaves_is_free() -> None:
    allocator, allotted = allotments()
    allotted.allot("p", KIB, 4)
    assert allotted.drop("p")
    assert not allotted.drop("p")
    assert allocator.holes() == [(0, CAPACITY)]


@given(st.integers(0, 2**32))
def test_nothing_is_lost_or_used_twice(seed: int) -> None:
    """Processes do with their space what they may, in the same way as their side of it (`Allocator`) does."""
    rng = random.Random(seed)
    allocator, allotted = allotments(0.9)
    mine = {name: Allocator(0) for name in "pqr"}
    placed: dict[int, tuple[str, int]] = {}
    objects: set[int] = set()
    for _ in range(60):
        name = rng.choice("pqr")
        match rng.randrange(6):
            case 0:
                for start, size in allotted.allot(name, rng.randrange(1, 3 * KIB), rng.randrange(1, 5)):
                    mine[name].add(start, size)
            case 1:
                size = rng.randrange(1, 3 * KIB)
                offset = mine[name].allocate(size)
                if offset is not None:
                    assert all(not overlap(offset, size, o, s) for o, (_, s) in placed.items())
                    placed[offset] = name, size
            case 2:
                for offset in [o for o, (who, _) in placed.items() if who == name and o not in objects][:1]:
                    mine[name].release(offset)
                    allotted.take(name, offset, placed[offset][1])
                    objects.add(offset)
            case 3:
                for offset in list(objects)[:1]:
                    allocator.free(offset)
                    objects.discard(offset)
                    del placed[offset]
            case 4:
                allotted.give_back(name, mine[name].remove_holes())
            case 5 if rng.random() < 0.2:
                allotted.drop(name)
                mine[name] = Allocator(0)
                for offset in [o for o, (who, _) in placed.items() if who == name and o not in objects]:
                    del placed[offset]
        holes = sum(size for _, size in allocator.holes())
        assert holes + allocator.used_bytes + allotted.allotted_bytes == CAPACITY
        assert allocator.used_bytes == sum(rounded(placed[offset][1])[0] for offset in objects)
    for name in "pqr":
        allotted.drop(name)
    for offset in objects:
        allocator.free(offset)
    assert allocator.holes() == [(0, CAPACITY)]


def overlap(a: int, a_size: int, b: int, b_size: int) -> bool:
    return a < b + b_size and b < a + a_size
