"""Pulls in chunks: completeness, bounds, and sources that fail."""

from __future__ import annotations

import random

import pytest

from runtime._core.transfers import BytesBudget, Pull, PullState, ReadChunk

A, B, C = b"a", b"b", b"c"


def test_without_sources_an_object_is_lost() -> None:
    assert Pull([]).state is PullState.LOST


def test_the_first_chunk_goes_alone() -> None:
    pull = Pull([A], chunk_bytes=10)
    assert pull.next_reads() == [ReadChunk(A, 0, 10)]
    assert pull.next_reads() == []


def test_the_first_chunk_may_be_smaller_and_the_last_one_is() -> None:
    pull = Pull([A], chunk_bytes=10, first_bytes=4)
    first = pull.next_reads()[0]
    assert (first.offset, first.length) == (0, 4)
    pull.received(first, 26)
    assert [(read.offset, read.length) for read in pull.next_reads()] == [(4, 10), (14, 10), (24, 2)]


def test_a_small_object_needs_one_chunk() -> None:
    pull = Pull([A], chunk_bytes=10)
    assert pull.received(pull.next_reads()[0], 7)
    assert pull.state is PullState.DONE


def test_an_empty_object_is_done_after_one_answer() -> None:
    pull = Pull([A], chunk_bytes=10)
    pull.received(pull.next_reads()[0], 0)
    assert pull.state is PullState.DONE


def test_chunks_in_flight_are_bounded() -> None:
    pull = Pull([A], chunk_bytes=10, in_flight=3)
    pull.received(pull.next_reads()[0], 100)
    reads = pull.next_reads()
    assert [read.offset for read in reads] == [10, 20, 30]
    pull.received(reads[1], 100)
    assert [read.offset for read in pull.next_reads()] == [40]


def test_a_failed_source_is_followed_by_the_next() -> None:
    pull = Pull([A, B], chunk_bytes=10)
    pull.next_reads()
    pull.source_failed(A)
    assert pull.next_reads() == [ReadChunk(B, 0, 10)]


def test_what_was_copied_is_not_asked_for_again() -> None:
    pull = Pull([A, B], chunk_bytes=10, in_flight=2)
    pull.received(pull.next_reads()[0], 30)
    first, second = pull.next_reads()
    pull.received(first, 30)
    pull.source_failed(A)
    assert pull.next_reads() == [ReadChunk(B, second.offset, 10)]


def test_a_late_answer_of_a_failed_source_is_not_wanted() -> None:
    pull = Pull([A, B], chunk_bytes=10)
    late = pull.next_reads()[0]
    pull.source_failed(A)
    assert not pull.received(late, 7)


def test_the_failure_of_an_old_source_does_not_hurt_the_present_one() -> None:
    pull = Pull([A, B], chunk_bytes=10)
    pull.source_failed(A)
    pull.source_failed(A)
    assert pull.source == B


def test_lost_when_every_source_failed() -> None:
    pull = Pull([A, B], chunk_bytes=10)
    pull.source_failed(A)
    pull.source_failed(B)
    assert pull.state is PullState.LOST
    assert pull.next_reads() == []


def test_sources_can_be_added_once() -> None:
    pull = Pull([A])
    pull.add_sources([A, B])
    pull.source_failed(A)
    pull.add_sources([A])
    assert pull.source == B
    pull.source_failed(B)
    assert pull.state is PullState.LOST


def test_a_source_that_announces_another_size_is_dropped() -> None:
    pull = Pull([A, B], chunk_bytes=10)
    pull.received(pull.next_reads()[0], 30)
    assert not pull.received(pull.next_reads()[0], 31)
    assert pull.source == B


@pytest.mark.parametrize("seed", range(20))
def test_every_byte_arrives_whatever_fails(seed: int) -> None:
    rng = random.Random(seed)
    size = rng.randrange(0, 200)
    pull = Pull([A, B, C], chunk_bytes=10, in_flight=3)
    got: set[int] = set()
    waiting: list[ReadChunk] = []
    failures = 0
    while pull.state not in (PullState.DONE, PullState.LOST):
        waiting += pull.next_reads()
        read = waiting.pop(rng.randrange(len(waiting)))
        if rng.random() < 0.1 and failures < 2:
            failures += read.source == pull.source
            pull.source_failed(read.source)
        elif pull.received(read, size):
            got.update(range(read.offset, min(read.offset + read.length, size)))
    assert pull.state is PullState.DONE
    assert got == set(range(size))


def test_a_budget_is_a_bound() -> None:
    budget = BytesBudget(10)
    assert budget.take(6)
    assert not budget.take(6)
    budget.give_back(6)
    assert budget.take(6)


def test_a_request_above_the_budget_passes_alone() -> None:
    budget = BytesBudget(10)
    assert budget.take(50)
    assert not budget.take(1)
    budget.give_back(50)
    assert budget.take(1)
