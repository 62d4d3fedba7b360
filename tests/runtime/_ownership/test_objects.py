"""The object table alone: values, waiting, and what comes out when objects end."""

from __future__ import annotations

import pytest

from runtime._ownership.failures import Freed
from runtime._ownership.records import INLINE, INLINE_ERROR, STORED, Entry
from runtime._ownership.released import NOWHERE
from runtime._wire.messages.worker import AddLocation, Value
from tests.runtime._ownership.fakes import PLAIN, Network, Process, address_of, object_name

ERROR = Value(INLINE_ERROR, b"error")
FIRST, SECOND = b"1" * 28, b"2" * 28


def stored(*node_ids: bytes) -> Value:
    return Value(STORED, b"", (), (), node_ids, 10)


@pytest.fixture
def process() -> Process:
    return Network("a").processes[0]


def own(process: Process, name: str, value: Value | None = None, holds: int = 1) -> Entry:
    entry = process.objects.own(object_name(name), holds)
    entry.value = value
    return entry


def test_a_waiter_is_called_once_when_the_value_comes(process: Process) -> None:
    entry = own(process, "x")
    called: list[Value | None] = []
    process.objects.call_when_ready(entry, lambda: called.append(entry.value))
    assert called == []
    process.objects.set_value(entry, PLAIN)
    process.objects.set_value(entry, PLAIN)  # made again
    assert called == [PLAIN]
    process.objects.call_when_ready(entry, lambda: called.append(entry.value))
    assert called == [PLAIN, PLAIN]
    assert (process.objects.settled, process.objects.errors) == (2, 0)


def test_a_waiter_that_raises_is_reported_and_starves_nobody(process: Process) -> None:
    entry = own(process, "x")
    called: list[int] = []
    process.objects.call_when_ready(entry, lambda: called.append(1 // 0))
    process.objects.call_when_ready(entry, lambda: called.append(2))
    process.objects.set_value(entry, PLAIN)
    assert called == [2]
    assert process.raised == ["a callback of an object"]


def test_waiters_of_several_are_called_with_the_last(process: Process) -> None:
    entries = [own(process, "x"), own(process, "y", PLAIN), own(process, "z")]
    called: list[int] = []
    process.objects.when_all_ready(entries, lambda: called.append(1))
    process.objects.set_value(entries[0], PLAIN)
    assert called == []
    process.objects.set_value(entries[2], ERROR)
    assert called == [1]
    process.objects.when_all_ready([], lambda: called.append(2))
    assert called == [1, 2]


def test_after_the_end_of_everything_waiters_get_the_failure(process: Process) -> None:
    waiting, later = own(process, "x"), own(process, "y")
    called: list[Entry] = []
    process.objects.call_when_ready(waiting, lambda: called.append(waiting))
    process.objects.failure = ERROR
    process.objects.fail_all(ERROR)
    assert called == [waiting]
    fresh = own(process, "z")
    process.objects.call_when_ready(fresh, lambda: called.append(fresh))
    process.objects.when_all_ready([later], lambda: called.append(later))
    assert called == [waiting, fresh, later]
    assert fresh.value == later.value == ERROR


def test_at_the_end_of_the_session_entries_are_detached_and_nobody_is_warned(process: Process) -> None:
    entry = own(process, "x")
    entry.on_free = lambda: None
    process.objects.end(ERROR)
    assert entry.value == ERROR
    assert entry.seen
    assert entry.on_free is None
    assert entry.released is NOWHERE


def test_objects_end_with_their_last_hold(process: Process) -> None:
    small, large = own(process, "small", PLAIN), own(process, "large", stored(FIRST), holds=2)
    process.objects.release_all([small, large])
    assert list(process.entries) == [large.object_id]
    process.objects.release(large)
    assert process.entries == {}
    assert process.freed == [large.object_id]


def test_a_container_ends_before_what_it_contains(process: Process) -> None:
    inner = own(process, "inner", stored(FIRST))
    outer = own(process, "outer", stored(FIRST))
    process.objects.table.contain(outer, [inner])
    process.objects.release(inner)
    assert process.freed == []
    process.objects.release(outer)
    assert process.freed == [outer.object_id, inner.object_id]


def test_an_error_that_nobody_saw_is_unhandled(process: Process) -> None:
    seen, unseen = own(process, "seen", ERROR), own(process, "unseen", ERROR)
    seen.seen = True
    process.objects.release_all([seen, unseen])
    assert process.unread == [ERROR]


def test_the_freed_result_of_a_task_is_forgotten(process: Process) -> None:
    entry = own(process, "x", stored(FIRST))
    entry.task = object()  # type: ignore[assignment]
    process.objects.release(entry)
    assert process.forgotten_tasks == [entry]


def test_what_died_is_drained_in_order(process: Process) -> None:
    entry = own(process, "x", PLAIN)
    other = object()
    process.released.extend([entry, other])
    let_go: list[object] = []
    process.objects.drain_released(let_go.append)
    assert let_go == [other]
    assert process.entries == {}
    assert not process.released


def test_one_that_has_left_the_table_takes_no_other_with_it(process: Process) -> None:
    old = own(process, "x", PLAIN)
    new = own(process, "x", PLAIN)
    process.objects.release(old)
    assert process.entries == {new.object_id: new}


def test_a_reference_of_ours_that_comes_back_too_late_is_freed(process: Process) -> None:
    entry = process.objects.entry_of(object_name("gone"), process.address)
    assert entry.value is not None
    assert process.failures == [Freed(object_name("gone"))]


def test_a_copy_of_a_value_that_an_error_has_replaced_is_dropped(process: Process) -> None:
    entry = process.objects.own(object_name("x"), 1)
    process.objects.set_value(entry, ERROR)
    process.objects.add_location(entry, FIRST)
    assert process.dropped == [(entry.object_id, [FIRST], False)]
    assert entry.value == ERROR


def test_copies_are_known_and_dropped_when_a_value_is_made_again(process: Process) -> None:
    entry = own(process, "x", stored(FIRST))
    link = process.network.link(process, process, True)
    assert link is not None
    process.objects.on_location(link, AddLocation(entry.object_id, SECOND), 0)
    process.objects.on_location(link, AddLocation(object_name("unknown"), SECOND), 0)
    assert entry.value is not None
    assert entry.value.locations == (FIRST, SECOND)
    process.objects.supersede(entry, entry.object_id, stored(SECOND))
    assert entry.value == stored(SECOND)
    assert process.dropped == [(entry.object_id, [FIRST], True)]
    process.objects.supersede(None, object_name("freed"), stored(FIRST))
    assert process.dropped[1:] == [(object_name("freed"), [FIRST], True)]


def test_the_owners_of_nested_references_are_named(process: Process) -> None:
    mine = own(process, "mine", PLAIN)
    owner = address_of("b")
    theirs = process.borrowing.borrowed_entry(object_name("theirs"), owner)
    found = process.objects.nested_of([mine, theirs])
    assert found == ((mine.object_id, process.address), (theirs.object_id, owner))


def test_lending_ends_with_the_borrowers(process: Process) -> None:
    entry = own(process, "x", Value(INLINE, b""))
    assert not process.objects.has_borrowers()
    process.objects.table.add_borrower(entry.object_id, b"somebody")
    assert process.objects.has_borrowers()
    process.borrowing.peer_lost(b"somebody")
    assert not process.objects.has_borrowers()


def test_who_asked_for_an_object_that_ends_without_a_value_gets_an_error(process: Process) -> None:
    """The object that counts an actor's handles ends so, when they go before the actor is registered."""
    entry = own(process, "x")
    called: list[Value | None] = []
    process.objects.call_when_ready(entry, lambda: called.append(entry.value))
    process.objects.release(entry)
    assert called == [Value(INLINE_ERROR, b"Freed")]
    assert entry.callbacks is None  # it keeps the callback, and so itself, no longer
    assert process.failures == [Freed(entry.object_id)]
    assert not process.unread
