"""One pass of a `streaming_split`: who gets which rows, and when nobody gets any: pure."""

from __future__ import annotations

from collections.abc import Iterator

from runtime.data._exec.epoch import Block, Epoch, Held


def blocks(count: int, rows: int = 4, size_bytes: int = 10) -> Iterator[Block]:
    return (Block(f"block {i}", rows, size_bytes=size_bytes) for i in range(count))


def test_blocks_wait_for_slow_readers_up_to_a_limit() -> None:
    """The bytes of a block count until its last piece is taken."""
    epoch = Epoch(blocks(10), parts=2, equal=True, most_bytes=25)
    assert [epoch.next(0) for _ in range(3)] == [("block 0", 0, 2), ("block 1", 0, 2), ("block 2", 0, 2)]
    assert (epoch.waiting_bytes, epoch.slow) == (30, [1])
    assert epoch.next(0) is Held.BY_OTHERS
    assert epoch.next(1) == ("block 0", 2, 2)
    assert epoch.next(0) == ("block 3", 0, 2)
    assert epoch.next(0) is Held.BY_OTHERS


def test_a_reader_that_leaves_holds_nobody_up() -> None:
    epoch = Epoch(blocks(10), parts=2, equal=True, most_bytes=5)
    assert epoch.next(0) is not None
    assert epoch.next(0) is Held.BY_OTHERS
    epoch.leave(1)
    assert [epoch.next(0) for _ in range(10)][-2:] == [("block 9", 0, 2), None]
    assert epoch.next(1) is None
    assert epoch.is_over
    assert epoch.waiting_bytes == 0


def test_whoever_asks_gets_a_block_if_parts_may_differ() -> None:
    epoch = Epoch(blocks(3), parts=2, equal=False, most_bytes=5)
    assert [epoch.next(part) for part in (0, 0, 1, 0)] == [
        ("block 0", 0, 4),
        ("block 1", 0, 4),
        ("block 2", 0, 4),
        None,
    ]
    assert not epoch.is_over


def test_blocks_that_exist_anyway_do_not_count() -> None:
    epoch = Epoch(blocks(10, size_bytes=0), parts=2, equal=True, most_bytes=5)
    assert len([part for part in iter(lambda: epoch.next(0), None) if part is not Held.BY_OTHERS]) == 10
    assert len(list(iter(lambda: epoch.next(1), None))) == 10
