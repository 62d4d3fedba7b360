"""Accounts of bytes, sizes, slices and partitions: pure."""

from __future__ import annotations

import pytest

from runtime.data._exec import sizing
from runtime.data._exec.bundles import Bundle
from runtime.data._exec.credits import Ledger, Prediction
from runtime.data._exec.exchange import ByPartition
from runtime.data._exec.reslicing import Evenly, Grouped, zipped
from runtime.data._exec.slicing import in_parts
from runtime.data._plan.nodes import GivenBlock

MIB = 1 << 20


def bundle(key: str, rows: int = 10, size_bytes: int = 100, offsets: list[int] | None = None) -> Bundle:
    return Bundle(key, key, rows, size_bytes, (0,), metadata={"offsets": offsets} if offsets else {})


def test_a_block_counts_once_however_many_hold_it() -> None:
    ledger = Ledger(1000)
    block = bundle("a")
    ledger.hold(block)
    ledger.hold(block.part(0, 5))
    assert ledger.held_bytes == 100
    assert not ledger.release(block)
    assert ledger.release(block)
    assert (ledger.held_bytes, ledger.peak_bytes) == (0, 100)


def test_parked_blocks_do_not_count_and_are_not_forgotten() -> None:
    ledger = Ledger(1000)
    block = bundle("a")
    ledger.hold(block)
    ledger.park(block)
    assert not ledger.release(block)
    assert ledger.held_bytes == 0
    assert ledger.unpark(block)


def test_reservations_leave_less_room() -> None:
    ledger = Ledger(1000)
    ledger.hold(bundle("a"))
    ledger.reserve(700)
    assert ledger.fits(200)
    assert not ledger.fits(201)


def test_the_next_block_is_as_large_as_the_largest_so_far() -> None:
    prediction = Prediction(500)
    for size in (100, 300, 200):
        prediction.seen(size)
    assert prediction.block_bytes == 300


def test_budgets_and_blocks_follow_the_store_and_the_cores() -> None:
    facts = sizing.Facts(cpus=4, store_bytes=1024 * MIB)
    assert sizing.budget(facts, None) == 128 * MIB
    assert sizing.budget(facts, None, executions=4) == 32 * MIB
    assert sizing.budget(facts, 10 * MIB) == 10 * MIB
    assert sizing.target_bytes(facts, 128 * MIB, None) == 8 * MIB
    assert sizing.read_tasks(facts, 8 * MIB, target=8 * MIB) == 8
    assert sizing.read_tasks(facts, 1024 * MIB, target=8 * MIB) == 128


def rows(work: object) -> list[tuple[object, int, int]]:
    return [(each.key, each.start, each.rows) for each in work.inputs]  # type: ignore[attr-defined]


def test_repartitions_keep_the_order_and_every_row() -> None:
    works = Evenly(3)([[bundle("a", 5), bundle("b", 5)]])
    assert [rows(work) for work in works] == [[("a", 0, 3)], [("a", 3, 2), ("b", 0, 1)], [("b", 1, 4)]]


def test_small_blocks_are_grouped() -> None:
    works = Grouped(25)([[bundle(name, 10, 10) for name in "abcde"]])
    assert [[key for key, _, _ in rows(work)] for work in works] == [["a", "b"], ["c", "d"], ["e"]]
    assert Grouped(25)([[]]) == []
    assert len(Grouped(5)([[bundle("a", 10, 10), bundle("b", 10, 10)]])) == 2


def test_zips_cut_all_inputs_as_the_first_is_cut() -> None:
    works = zipped([[bundle("a", 4), bundle("b", 2)], [bundle("c", 3), bundle("d", 3)]])
    assert [rows(work) for work in works] == [
        [("a", 0, 4), ("c", 0, 3), ("d", 0, 1)],
        [("b", 0, 2), ("d", 1, 2)],
    ]
    with pytest.raises(ValueError, match="10, 20"):
        zipped([[bundle("a", 10)], [bundle("b", 20)]])


def test_neighbouring_partitions_are_put_together_up_to_the_target() -> None:
    maps = [bundle("a", 100, 1000, [0, 10, 20, 90, 100]), bundle("b", 100, 1000, [0, 10, 20, 90, 100])]
    works = ByPartition(target_bytes=500)([maps])
    assert [rows(work) for work in works] == [
        [("a", 0, 20), ("b", 0, 20)],
        [("a", 20, 70), ("b", 20, 70)],
        [("a", 90, 10), ("b", 90, 10)],
    ]
    assert [len(ByPartition(500, blocks=n)([maps])) for n in (1, 2, 4)] == [1, 2, 4]


def test_parts_of_given_blocks() -> None:
    parts = in_parts([GivenBlock("a", 5, 50), GivenBlock("b", 5, 50, start=2)], [0, 3, 7, 10])
    assert [[(block.ref, block.start, block.rows) for block in part] for part in parts] == [
        [("a", 0, 3)],
        [("a", 3, 2), ("b", 2, 2)],
        [("b", 4, 3)],
    ]
