"""Blocks: none overlaps another that is held, and memory is reused."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from runtime._extension.channels.blocks import Blocks


@given(st.lists(st.one_of(st.integers(1, 20_000), st.integers(-30, -1)), max_size=60))
def test_blocks_do_not_overlap(steps: list[int]) -> None:
    held: dict[int, int] = {}
    size = 0

    def grow(size_bytes: int) -> None:
        nonlocal size
        assert size_bytes > size
        size = size_bytes

    blocks = Blocks(0, lambda offset: offset not in held, grow)
    for step in steps:
        if step < 0:
            if held:
                held.pop(list(held)[-step % len(held)])
            continue
        offset = blocks.allocate(step)
        assert offset % 64 == 0
        assert offset + step <= size == blocks.size_bytes
        assert all(offset + step <= other or other + held[other] <= offset for other in held)
        held[offset] = step
        assert blocks.held >= len(held)


def test_memory_is_flat_when_blocks_are_given_back() -> None:
    held: list[int] = []
    blocks = Blocks(0, lambda offset: offset not in held, lambda _: None)
    sizes = set()
    for step in range(2000):
        held.append(blocks.allocate(100_000 + step % 7 * 1000))
        if len(held) > 4:
            held.pop(0)
        if step > 100:
            sizes.add(blocks.size_bytes)
    assert len(sizes) == 1
    assert blocks.held <= 12
