"""The allocator hands out disjoint aligned blocks, reuses touched space first, and loses nothing."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from runtime._core.allocator import ALIGNMENT, PAGE, PAGE_ALIGNED_FROM, Allocator

MIB = 1 << 20


def test_a_fresh_allocator_is_one_hole() -> None:
    assert Allocator(MIB).holes() == [(0, MIB)]


def test_capacity_is_rounded_down_to_pages() -> None:
    assert Allocator(PAGE + 1).capacity == PAGE


def test_an_empty_allocator_has_no_room() -> None:
    assert Allocator(0).allocate(1) is None


def test_blocks_follow_each_other() -> None:
    allocator = Allocator(MIB)
    assert [allocator.allocate(100), allocator.allocate(100)] == [0, 128]


def test_a_block_of_nothing_has_its_own_offset() -> None:
    allocator = Allocator(MIB)
    assert allocator.allocate(0) != allocator.allocate(0)


def test_too_much_is_refused() -> None:
    assert Allocator(MIB).allocate(MIB + 1) is None


def test_all_of_it_can_be_taken() -> None:
    allocator = Allocator(4 * MIB)
    assert allocator.allocate(4 * MIB) == 0
    assert allocator.allocate(1) is None


def test_freed_space_is_used_again_before_fresh_space() -> None:
    allocator = Allocator(64 * MIB)
    first = allocator.allocate(8 * MIB)
    allocator.allocate(8 * MIB)
    assert first is not None
    allocator.free(first)
    assert allocator.allocate(8 * MIB) == first
    assert allocator.touched_bytes == 16 * MIB


def test_small_blocks_leave_big_holes_whole() -> None:
    allocator = Allocator(64 * MIB)
    big, _, small, _ = (allocator.allocate(n * MIB) for n in (16, 1, 2, 1))
    assert big is not None
    assert small is not None
    allocator.free(big)
    allocator.free(small)
    assert allocator.allocate(MIB) == small
    assert allocator.allocate(16 * MIB) == big


def test_neighbouring_holes_become_one() -> None:
    allocator = Allocator(64 * MIB)
    blocks = [allocator.allocate(MIB) for _ in range(4)]
    for index in (0, 2, 1):
        block = blocks[index]
        assert block is not None
        allocator.free(block)
    assert allocator.holes()[0] == (0, 3 * MIB)


def test_big_blocks_start_on_a_page() -> None:
    allocator = Allocator(8 * MIB)
    allocator.allocate(100)
    offset = allocator.allocate(PAGE_ALIGNED_FROM)
    assert offset is not None
    assert offset % PAGE == 0


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3 * MIB)), max_size=60))
def test_blocks_never_overlap_and_everything_comes_back(steps: list[tuple[bool, int]]) -> None:
    allocator = Allocator(16 * MIB)
    taken: dict[int, int] = {}
    for is_free, number in steps:
        if is_free and taken:
            offset = sorted(taken)[number % len(taken)]
            del taken[offset]
            allocator.free(offset)
            continue
        found = allocator.allocate(number)
        if found is not None:
            assert found % ALIGNMENT == 0
            taken[found] = number
        covered = sorted((start, start + size) for start, size in taken.items())
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(covered))
        assert all(end <= allocator.capacity for _, end in covered)
    for offset in list(taken):
        allocator.free(offset)
    assert allocator.holes() == [(0, allocator.capacity)]
    assert allocator.used_bytes == 0
