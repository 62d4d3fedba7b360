"""A stream's two lives: items in order and once each, the error last, and what is inside is released at the end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from runtime._core import ids
from runtime._core.fsm import InvalidTransition, reachable_states
from runtime._ownership.failures import NotRebuilt, ReplayDiffers, StreamEnded
from runtime._ownership.records import INLINE, INLINE_ERROR, STORED, Entry
from runtime._ownership.streams import (
    NONE,
    READER_TRANSITIONS,
    SOURCE_TRANSITIONS,
    ReaderState,
    SourceState,
    Stream,
    Streams,
)
from runtime._wire.messages.worker import (
    Borrowed,
    ReleaseHold,
    StreamConsumed,
    StreamItem,
    StreamPaused,
    Value,
)
from tests.runtime._ownership.fakes import Network, Process, WorkerLink, address_of

TASK = b"t" * 24
OTHER = address_of("other")
NESTED = ((b"x" * 28, OTHER),)
ERROR = Value(INLINE_ERROR, b"raised")
STORED_AT = Value(STORED, b"", (), (), (b"node",), 10)


class Caller:
    """The process that called a generator; its worker and the owner of what is inside the items."""

    def __init__(self) -> None:
        self.process: Process = Network("caller").processes[0]
        self.objects, self.entries = self.process.objects, self.process.entries
        self.other = self.process.workers[OTHER.worker_id] = WorkerLink(OTHER)
        self.worker: Any = WorkerLink(address_of("worker"))
        self.streams = Streams(self.objects, self.process.borrowing, self.process)
        self.task: Any = SimpleNamespace(push=SimpleNamespace(task_id=TASK), stores=self._stores, stream=None)
        self.stored: list[Entry] = []
        self.objects.forget_task = self.stored.remove

    def _stores(self, entry: Entry) -> None:
        entry.task = self.task
        self.stored.append(entry)

    def open(self, collects: bool = False) -> Stream:
        return self.streams.open(self.task, self.objects.own(ids.object_id(TASK, 1), 1), collects)

    def item(self, index: int, nested: Any = (), value: Value | None = None) -> None:
        value = value or Value(INLINE, f"item {index}".encode(), (), nested)
        self.task.stream.item(self.worker, StreamItem(TASK, index, value), self.task)

    def pause(self, consumed: int) -> None:
        self.streams.on_paused(self.worker, StreamPaused(TASK, consumed), 0)

    def register(self) -> None:
        """The owner of what is inside hears of us."""
        calls, self.other.calls = self.other.calls, []
        for answered in calls:
            answered(Borrowed())


@pytest.fixture
def caller() -> Caller:
    return Caller()


@pytest.fixture
def stream(caller: Caller) -> Stream:
    return caller.open()


def number(ref: Any) -> int:
    """Which item this refers to."""
    return int.from_bytes(ref.entry.object_id[24:], "little") - 2


def take(stream: Stream) -> Any:
    """What the reader does."""
    ref = stream.items.popleft()
    if stream.waiting is not None:
        stream.resume()
    return ref


# ------------------------------------------------------------ the tables


def test_every_state_can_be_reached() -> None:
    assert reachable_states(SourceState.YIELDING, SOURCE_TRANSITIONS) == set(SourceState)
    assert reachable_states(ReaderState.TAKING, READER_TRANSITIONS) == set(ReaderState)


def test_every_edge_leads_where_its_key_says() -> None:
    assert all(
        edge.target is target
        for (_, target), edge in [*SOURCE_TRANSITIONS.items(), *READER_TRANSITIONS.items()]
    )


def test_a_task_that_yields_cannot_run_once_more(stream: Stream) -> None:
    with pytest.raises(InvalidTransition, match="YIELDING"):
        stream.begin_again()


def test_what_is_collected_is_not_looked_at(caller: Caller) -> None:
    with pytest.raises(InvalidTransition, match="COLLECTING"):
        caller.open(collects=True).peek()


# ------------------------------------------------------------ items


def test_items_come_in_order_and_then_the_end(caller: Caller, stream: Stream) -> None:
    for index in range(3):
        caller.item(index)
    assert stream.end(None) == NONE
    assert [number(take(stream)) for _ in range(3)] == [0, 1, 2]
    assert not stream.items
    assert stream.ended


def test_an_item_has_its_value_and_one_hold(caller: Caller, stream: Stream) -> None:
    caller.item(0)
    ref = take(stream)
    assert ref.entry.value == Value(INLINE, b"item 0")
    assert ref.entry.holds == 1


def test_items_that_come_again_after_a_retry_are_skipped(caller: Caller, stream: Stream) -> None:
    for index in (0, 1, 0, 1, 2):
        caller.item(index)
    assert [number(entry) for entry in stream.items] == [0, 1, 2]


def test_an_error_of_user_code_is_the_last_item(caller: Caller, stream: Stream) -> None:
    caller.item(0)
    stream.raised = True
    assert stream.end(ERROR) == NONE
    take(stream)
    last = take(stream)
    assert number(last) == 1
    assert last.entry.value is ERROR
    assert not stream.items


def test_an_error_from_outside_is_the_end_itself(caller: Caller, stream: Stream) -> None:
    caller.item(0)
    assert stream.end(ERROR) is ERROR
    take(stream)
    assert take(stream).entry is caller.entries[ids.object_id(TASK, 1)]
    assert not stream.items


def test_a_task_may_end_after_the_agent_was_lost(stream: Stream) -> None:
    assert stream.end(ERROR) is ERROR
    assert stream.end(ERROR) is ERROR
    assert len(stream.items) == 1


# ------------------------------------------------------------ looking ahead


def test_the_next_item_can_be_seen_before_it_comes(caller: Caller, stream: Stream) -> None:
    expected = stream.peek()
    assert expected.entry.value is None
    assert stream.reader is ReaderState.AWAITING
    caller.item(0)
    assert expected.entry.value is not None
    assert stream.reader is ReaderState.TAKING
    assert stream.peek() is expected
    assert take(stream) is expected


def test_who_looks_ahead_learns_of_the_end(caller: Caller, stream: Stream) -> None:
    expected = stream.peek()
    stream.end(None)
    assert stream.peek() is expected
    assert expected.entry.value == Value(INLINE_ERROR, StreamEnded.__name__.encode())
    assert not stream.items


def test_who_looks_ahead_after_the_end_learns_of_it(stream: Stream) -> None:
    stream.end(None)
    assert stream.peek().entry.value == Value(INLINE_ERROR, StreamEnded.__name__.encode())


def test_who_looks_ahead_gets_the_error_of_the_task(stream: Stream) -> None:
    expected = stream.peek()
    stream.raised = True
    stream.end(ERROR)
    assert take(stream) is expected
    assert expected.entry.value is ERROR


def test_who_looks_ahead_learns_of_an_error_from_outside(stream: Stream) -> None:
    expected = stream.peek()
    stream.end(ERROR)
    assert expected.entry.value is ERROR


def test_who_looks_ahead_when_nothing_will_come_gets_that_failure(caller: Caller, stream: Stream) -> None:
    caller.objects.failure = ERROR
    assert stream.peek().entry.value is ERROR


# ------------------------------------------------------------ references inside


def test_a_stream_without_references_needs_no_release(caller: Caller, stream: Stream) -> None:
    caller.item(0)
    stream.end(None)
    assert not caller.worker.sent


@pytest.mark.parametrize("registered_first", [True, False])
def test_the_worker_is_released_when_all_is_registered_and_over(
    caller: Caller, stream: Stream, registered_first: bool
) -> None:
    caller.item(0, NESTED)
    steps = [caller.register, lambda: stream.end(None)]
    for step in steps if registered_first else reversed(steps):
        assert not caller.worker.sent
        step()
    assert list(caller.worker.sent) == [ReleaseHold(TASK)]


def test_the_worker_is_released_once(caller: Caller, stream: Stream) -> None:
    for index in range(3):
        caller.item(index, ((bytes([index]) * 28, OTHER),))
    stream.end(None)
    caller.register()
    assert list(caller.worker.sent) == [ReleaseHold(TASK)]


def test_a_repeated_item_keeps_references_too(caller: Caller, stream: Stream) -> None:
    first, caller.worker = caller.worker, WorkerLink(address_of("second"))
    stream.item(first, StreamItem(TASK, 0, NONE), caller.task)
    caller.item(0, NESTED)
    stream.end(None)
    assert not caller.worker.sent
    caller.register()
    assert not first.sent
    assert list(caller.worker.sent) == [ReleaseHold(TASK)]


def test_every_worker_that_ran_it_is_released(caller: Caller, stream: Stream) -> None:
    first = caller.worker
    caller.item(0, NESTED)
    stream.end(None)
    stream.begin_again()
    caller.worker = WorkerLink(address_of("second"))
    caller.item(0, NESTED)
    caller.register()
    stream.end(None)
    assert list(first.sent) == list(caller.worker.sent) == [ReleaseHold(TASK)]


# ------------------------------------------------------------ collecting


def test_collected_items_are_one_value(caller: Caller) -> None:
    stream = caller.open(collects=True)
    for index in range(2):
        caller.item(index)
    value = stream.end(None)
    items = [ids.object_id(TASK, index + 2) for index in range(2)]
    assert caller.process.collections == [items]
    assert value.data == b"collected"
    assert [object_id for object_id, _ in value.nested] == items
    caller.process.drain()
    assert all(caller.entries[object_id].holds == 1 for object_id in items)  # the value's
    caller.objects.release(caller.entries[ids.object_id(TASK, 1)])
    assert not caller.entries


def test_an_error_of_user_code_is_collected_as_the_last_item(caller: Caller) -> None:
    stream = caller.open(collects=True)
    caller.item(0)
    stream.raised = True
    assert stream.end(ERROR).data == b"collected"
    assert len(caller.process.collections[0]) == 2


def test_an_error_from_outside_frees_what_was_collected(caller: Caller) -> None:
    stream = caller.open(collects=True)
    caller.item(0)
    assert stream.end(ERROR) is ERROR
    caller.process.drain()
    assert list(caller.entries) == [ids.object_id(TASK, 1)]


def test_a_task_whose_items_are_collected_does_not_wait(caller: Caller) -> None:
    caller.open(collects=True)
    caller.pause(0)
    assert list(caller.worker.sent) == [StreamConsumed(TASK, -1)]


# ------------------------------------------------------------ back-pressure


def test_a_worker_that_pauses_hears_of_what_was_taken(caller: Caller, stream: Stream) -> None:
    for index in range(2):
        caller.item(index)
    caller.pause(0)
    assert stream.waiting is not None
    assert not caller.worker.sent
    take(stream)
    assert list(caller.worker.sent) == [StreamConsumed(TASK, 1)]
    assert stream.waiting is None
    take(stream)
    assert len(caller.worker.sent) == 1


def test_a_worker_that_pauses_late_is_told_at_once(caller: Caller, stream: Stream) -> None:
    caller.item(0)
    take(stream)
    caller.pause(0)
    assert list(caller.worker.sent) == [StreamConsumed(TASK, 1)]


@pytest.mark.parametrize("paused_first", [True, False])
def test_an_abandoned_stream_lets_the_worker_go_on(
    caller: Caller, stream: Stream, paused_first: bool
) -> None:
    caller.item(0)
    steps = [lambda: caller.pause(0), stream.abandon]
    for step in steps if paused_first else reversed(steps):
        step()
    assert list(caller.worker.sent) == [StreamConsumed(TASK, -1)]


def test_a_stream_that_is_gone_lets_the_worker_go_on(caller: Caller) -> None:
    caller.pause(3)
    assert list(caller.worker.sent) == [StreamConsumed(TASK, -1)]


# ------------------------------------------------------------ dropping


@pytest.mark.parametrize("value", [NONE, STORED_AT], ids=["small", "stored"])
def test_what_nobody_takes_is_freed(caller: Caller, stream: Stream, value: Value) -> None:
    caller.item(0, value=value)
    stream.peek()
    stream.abandon()
    caller.item(1, value=value)
    caller.process.drain()
    assert list(caller.entries) == [ids.object_id(TASK, 1)]
    assert len(caller.process.freed) == 2 * (value.kind == STORED)
    assert not caller.stored
    assert stream.end(None) == NONE
    assert not stream.items


@pytest.mark.parametrize("comes", [True, False])
def test_an_item_that_somebody_awaits_still_comes(caller: Caller, stream: Stream, comes: bool) -> None:
    expected = stream.peek()
    stream.abandon()
    if comes:
        caller.item(0)
    stream.end(None)
    assert expected.entry.value is not None
    assert expected.entry.value.kind == (INLINE if comes else INLINE_ERROR)
    del expected
    caller.process.drain()
    assert list(caller.entries) == [ids.object_id(TASK, 1)]


def test_an_error_that_somebody_awaited_is_freed_with_the_stream(caller: Caller, stream: Stream) -> None:
    stream.end(None)
    stream.peek()
    stream.abandon()
    caller.process.drain()
    assert list(caller.entries) == [ids.object_id(TASK, 1)]


def test_a_raised_error_that_nobody_takes_is_no_item(caller: Caller, stream: Stream) -> None:
    stream.abandon()
    stream.raised = True
    assert stream.end(ERROR) == NONE
    assert not stream.items


@pytest.mark.parametrize("looks_ahead", [True, False])
def test_errors_to_come_are_not_logged_if_they_are_ignored(
    caller: Caller, stream: Stream, looks_ahead: bool
) -> None:
    """Also if the stream is dropped after its task has ended."""
    if looks_ahead:
        stream.peek()
    stream.ignores_errors = True
    caller.item(0)
    stream.raised = True
    stream.end(ERROR)
    stream.abandon()
    caller.process.drain()
    assert list(caller.entries) == [ids.object_id(TASK, 1)]
    assert not caller.process.unread


# ------------------------------------------------------------ items that are lost


def test_a_lost_item_comes_again(caller: Caller, stream: Stream) -> None:
    for index in range(2):
        caller.item(index, value=STORED_AT)
    stream.end(None)
    ref = take(stream)
    entry = ref.entry
    entry.value = None
    stream.lose(entry)
    stream.begin_again()
    assert stream.ended
    caller.item(0, value=STORED_AT)
    assert entry.value == STORED_AT
    caller.item(1, value=STORED_AT)
    stream.end(None)
    assert not stream.lost
    assert len(stream.items) == 1


def test_an_item_that_does_not_come_again_is_an_error(caller: Caller, stream: Stream) -> None:
    caller.item(0, value=STORED_AT)
    stream.end(ERROR)  # how many there should be is not known
    entry = take(stream).entry
    entry.value = None
    stream.lose(entry)
    stream.begin_again()
    stream.end(None)
    assert entry.value == Value(INLINE_ERROR, NotRebuilt.__name__.encode())


class TestRunsForLostItemsThatEndOtherwise:
    """The first of three items is lost, the second is in the same store, the third came inside its message."""

    @pytest.fixture
    def items(self, caller: Caller, stream: Stream) -> list[Any]:
        for index in range(3):
            caller.item(index, value=STORED_AT if index < 2 else None)
        stream.end(None)
        refs = [take(stream) for _ in range(3)]
        refs[0].entry.value = None
        stream.lose(refs[0].entry)
        stream.begin_again()
        return refs

    @pytest.mark.parametrize("count", [0, 1, 2, 4])
    def test_another_number_of_items_fails_all_that_are_stored(
        self, caller: Caller, stream: Stream, items: list[Any], count: int
    ) -> None:
        for index in range(count):
            caller.item(index, value=STORED_AT)
        stream.end(None)
        differs = Value(INLINE_ERROR, ReplayDiffers.__name__.encode())
        assert [ref.entry.value for ref in items[:2]] == [differs] * 2
        assert (items[2].entry.value in (differs, NONE)) == (count > 2)
        assert not stream.items
        assert not stream.lost
        assert (ids.object_id(TASK, 5), [b"node"], True) in caller.process.dropped or count < 4

    def test_as_many_items_are_taken_although_an_attempt_gave_fewer(
        self, caller: Caller, stream: Stream, items: list[Any]
    ) -> None:
        for index in (0, 1, 0, 1, 2):
            caller.item(index, value=STORED_AT)
        stream.end(None)
        assert [ref.entry.value for ref in items] == [STORED_AT] * 3

    def test_a_failure_from_outside_fails_all_that_are_stored(
        self, caller: Caller, stream: Stream, items: list[Any]
    ) -> None:
        caller.item(0, value=STORED_AT)
        assert stream.end(ERROR) == ERROR
        assert [ref.entry.value for ref in items[:2]] == [ERROR] * 2
        assert items[2].entry.value.data == b"item 2"

    def test_an_error_of_user_code_takes_the_place_of_an_item(
        self, caller: Caller, stream: Stream, items: list[Any]
    ) -> None:
        caller.item(0, value=STORED_AT)
        stream.raised = True
        stream.end(ERROR)
        assert items[0].entry.value == Value(INLINE_ERROR, ReplayDiffers.__name__.encode())
        assert items[1].entry.value == ERROR


def test_an_item_that_is_lost_while_its_task_runs_frees_the_worker_to_end(
    caller: Caller, stream: Stream
) -> None:
    caller.item(0, value=STORED_AT)
    caller.item(1)
    caller.pause(1)
    ref = take(stream)
    entry = ref.entry
    assert not caller.worker.sent
    entry.value = None
    stream.lose(entry)
    assert list(caller.worker.sent) == [StreamConsumed(TASK, -1)]


def test_a_task_that_runs_once_more_does_not_wait(caller: Caller, stream: Stream) -> None:
    caller.item(0)
    stream.end(None)
    stream.begin_again()
    caller.pause(0)
    assert list(caller.worker.sent) == [StreamConsumed(TASK, -1)]


def test_metadata_comes_before_the_value_and_goes_with_the_item(caller: Caller, stream: Stream) -> None:
    known = caller.objects.metadata
    seen: list[dict[bytes, bytes]] = []
    upcoming = stream.peek()
    caller.objects.call_when_ready(upcoming.entry, lambda: seen.append(dict(known)))
    stream.item(caller.worker, StreamItem(TASK, 0, NONE, b"rows"), caller.task)
    object_id = ids.object_id(TASK, 2)
    assert seen == [{object_id: b"rows"}]
    caller.item(1)
    assert known == {object_id: b"rows"}
    ref = take(stream)
    del upcoming
    caller.objects.release(ref.entry)
    assert not known


@pytest.mark.parametrize(("error", "unread"), [(None, []), (ERROR, [ERROR])])
def test_the_end_of_a_stream_is_no_error_that_nobody_saw(
    caller: Caller, stream: Stream, error: Value | None, unread: list[Value]
) -> None:
    waited_for = stream.peek().entry
    stream.end(error)
    assert waited_for.value is not None
    caller.objects.release_all([waited_for])
    assert caller.process.unread == unread
