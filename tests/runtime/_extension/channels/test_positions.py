"""Rings in a simulated world: counts arrive late and in any order, and no value is lost, repeated or overwritten."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime._extension.channels.positions import ReaderPositions, WriterPositions


@given(
    capacity=st.integers(1, 5),
    readers=st.integers(1, 4),
    steps=st.lists(st.tuples(st.sampled_from(["write", "publish", "take", "took"]), st.integers(0, 3))),
)
def test_every_reader_takes_every_value_once(
    capacity: int, readers: int, steps: list[tuple[str, int]]
) -> None:
    writer = WriterPositions(capacity, readers)
    ends = [ReaderPositions(capacity) for _ in range(readers)]
    slots: list[int] = [-1] * capacity
    published, told = [0] * readers, [0] * readers  # what the eventfds hold
    taken: list[list[int]] = [[] for _ in range(readers)]
    for step, number in steps:
        reader = number % readers
        if step == "write":
            unread = writer.written - min(writer.taken)
            assert writer.room == capacity - unread
            if writer.room:
                slots[writer.slot] = writer.written
                writer.wrote()
                published = [count + 1 for count in published]
        elif step == "publish":
            ends[reader].publish(published[reader])
            published[reader] = 0
        elif step == "take" and ends[reader].available:
            taken[reader].append(slots[ends[reader].take()])
            told[reader] += 1
        elif step == "took":
            writer.took(reader, told[reader])
            told[reader] = 0
    for reader, values in enumerate(taken):
        assert values == list(range(len(values)))
        assert len(values) == ends[reader].taken <= writer.written


def test_what_cannot_be() -> None:
    writer, reader = WriterPositions(1, 1), ReaderPositions(1)
    assert writer.is_drained
    writer.wrote()
    assert not writer.is_drained
    with pytest.raises(ValueError, match="full"):
        writer.wrote()
    with pytest.raises(ValueError, match="fewer"):
        writer.took(0, 2)
    with pytest.raises(ValueError, match="empty"):
        reader.take()
    reader.publish(1)
    with pytest.raises(ValueError, match="fit"):
        reader.publish(1)
    for wrong in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="a slot and a reader"):
            WriterPositions(*wrong)


def test_a_ring_is_over_when_all_was_taken() -> None:
    reader = ReaderPositions(2)
    reader.publish(1)
    reader.close(1)
    assert not reader.is_over
    reader.take()
    assert reader.is_over
