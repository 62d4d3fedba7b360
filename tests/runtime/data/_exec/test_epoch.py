"""One pass of a `streaming_split`: who gets which rows, and when nobody gets any: pure."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

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


def placed(*nodes: str, size_bytes: int = 10) -> Iterator[Block]:
    return (Block(f"{node}{i}", 1, size_bytes=size_bytes, nodes=(node,)) for i, node in enumerate(nodes))


def taken(epoch: Epoch, *parts: int) -> list[str | None]:
    """The blocks that parts get."""
    return [
        found if found is None else found[0]
        for found in map(epoch.next, parts)
        if found is not Held.BY_OTHERS
    ]


class TestHomes:
    def test_blocks_go_to_readers_on_their_nodes(self) -> None:
        epoch = Epoch(placed("b", "a", "a", "b"), 2, False, 100, ["a", "b"])
        assert taken(epoch, 0, 1, 0, 1, 0, 1) == ["a1", "b0", "a2", "b3", None, None]
        assert epoch.is_over

    def test_a_reader_that_does_not_come_keeps_one_block_at_most_and_none_at_the_end(self) -> None:
        epoch = Epoch(placed("b", "b", "b"), 2, False, 100, ["a", "b"])
        assert taken(epoch, 0, 0) == ["b1", "b2"]
        assert epoch.waiting_bytes == 10
        assert taken(epoch, 0, 0) == ["b0", None]
        assert epoch.waiting_bytes == 0

    def test_others_take_what_waits_if_it_takes_too_many_bytes(self) -> None:
        epoch = Epoch(placed("b", "a", "a"), 2, False, 10, ["a", "b"])
        assert taken(epoch, 0, 0, 1) == ["b0", "a1", "a2"]

    def test_a_reader_that_leaves_leaves_its_block_to_others(self) -> None:
        epoch = Epoch(placed("b", "a", "b"), 2, False, 100, ["a", "b"])
        assert taken(epoch, 0) == ["a1"]
        epoch.leave(1)
        assert taken(epoch, 0, 0, 0) == ["b2", "b0", None]
        assert epoch.is_over
        assert epoch.waiting_bytes == 0

    def test_readers_on_one_node_or_on_unknown_ones(self) -> None:
        epoch = Epoch(placed("a", "c", "a", "a"), 3, False, 100, ["a", "a", None])
        assert taken(epoch, 2, 1, 0, 1) == ["c1", "a2", "a0", "a3"]


class TestHomesOfEqualParts:
    def test_whole_blocks_go_to_readers_on_their_nodes(self) -> None:
        epoch = Epoch(placed("b", "a", "a", "b"), 2, True, 100, ["a", "b"])
        assert taken(epoch, 0, 1, 0, 1, 0, 1) == ["a1", "b0", "a2", "b3", None, None]
        assert epoch.is_over

    def test_a_reader_gets_blocks_of_other_nodes_if_its_own_has_none(self) -> None:
        epoch = Epoch(placed(*"bbbbbb"), 2, True, 100, ["a", "b"])
        assert taken(epoch, 0, 0, 0, 0) == ["b0", "b2", "b4", None]
        assert taken(epoch, 1, 1, 1, 1) == ["b1", "b3", "b5", None]

    def test_no_more_bytes_wait_for_a_near_reader_than_may(self) -> None:
        asked = 0

        def source() -> Iterator[Block]:
            nonlocal asked
            for block in placed(*"bbbbbb"):
                asked += 1
                yield block

        epoch = Epoch(source(), 2, True, 20, ["a", "b"])
        assert taken(epoch, 0) == ["b0"]
        assert asked == 2

    @pytest.mark.parametrize("seed", range(30))
    def test_parts_are_equal_whatever_the_blocks(self, seed: int) -> None:
        rng = random.Random(seed)
        parts = rng.randint(2, 4)
        sizes = [rng.choice([1, 3, 50, 400]) for _ in range(rng.randint(0, 20))]
        nodes = [rng.choices("abcd", k=rng.randint(0, 2)) for _ in sizes]
        blocks = (
            Block(i, rows, start=7, size_bytes=rows, nodes=where)
            for i, (rows, where) in enumerate(zip(sizes, nodes, strict=True))
        )
        homes = [rng.choice(["a", "b", "c", None]) for _ in range(parts)]
        epoch = Epoch(blocks, parts, True, rng.choice([100, 10_000]), homes)
        got: list[list[tuple[int, int]]] = [[] for _ in range(parts)]
        waiting = set(range(parts))
        while waiting:
            part = rng.choice(sorted(waiting))
            found = epoch.next(part)
            if found is None:
                waiting.discard(part)
            elif not isinstance(found, Held):
                block, start, rows = found
                got[part] += [(block, row) for row in range(start, start + rows)]
        every = [row for rows in got for row in rows]
        assert len(set(every)) == len(every)
        assert set(every) <= {(i, row) for i, rows in enumerate(sizes) for row in range(7, 7 + rows)}
        assert [len(rows) for rows in got] == [sum(sizes) // parts] * parts
        assert epoch.is_over
        assert epoch.waiting_bytes == 0
