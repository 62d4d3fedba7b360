"""Frames of the journal."""

from __future__ import annotations

import random

import pytest

from runtime.tune._core import records

SOME: list[records.Record] = [
    (records.BEGIN, records.VERSION, 7),
    (records.ADDED, "a_00000", {"x": 0.5}, {"x": 0.5}, "0_x=0.5", "", "folder"),
    (records.RESULT, 0, {"loss": 1.0}, None),
    (records.ENDED, 0, records.RETURNED, None),
]


def test_records_come_back() -> None:
    data = b"".join(map(records.encode, SOME))
    assert list(records.decode(data)) == SOME
    assert records.whole(data) == len(data)
    assert list(records.decode(b"")) == []


def test_functions_of_the_program_can_be_recorded() -> None:
    (record,) = records.decode(records.encode((records.ADDED, lambda: 42)))
    assert record[1]() == 42


@pytest.mark.parametrize("seed", range(20))
def test_what_is_cut_or_damaged_ends_the_journal(seed: int) -> None:
    rng = random.Random(seed)
    frames = list(map(records.encode, SOME))
    data = bytearray(b"".join(frames))
    kept = rng.randrange(len(SOME))
    begin = sum(map(len, frames[:kept]))
    if rng.random() < 0.5:
        data = data[: rng.randrange(begin, begin + len(frames[kept]))]
    else:
        data[rng.randrange(begin + 4, begin + len(frames[kept]))] ^= 1 + rng.randrange(255)
    assert list(records.decode(bytes(data))) == SOME[:kept]
    assert records.whole(bytes(data)) == begin
