"""Borrowing between processes whose messages the test delivers."""

from __future__ import annotations

import pytest

from runtime._ownership.failures import Lost, OwnerDied
from runtime._ownership.records import INLINE, Entry
from runtime._wire.messages.base import ErrorKind
from runtime._wire.messages.worker import BorrowRefs, ReturnRefs, Value
from tests.runtime._ownership.fakes import PLAIN, Network, Process, object_name


@pytest.fixture
def network() -> Network:
    return Network("owner", "borrower", "third")


def own(owner: Process, name: str) -> Entry:
    entry = owner.objects.own(object_name(name), 1)
    entry.value = PLAIN
    return entry


def borrow(borrower: Process, *entries: Entry) -> list[Entry]:
    """References to objects of the first process arrive in one value."""
    owner = borrower.network.processes[0].address
    borrowed = [borrower.objects.entry_of(entry.object_id, owner) for entry in entries]
    for entry in borrowed:
        entry.hold()
    borrower.borrowing.register()
    return borrowed


def sent(here: Process, there: Process) -> list[object]:
    link = here.network.link(here, there, False)
    return [] if link is None else [message for _, message, _ in link.queue]


def test_the_owner_hears_of_many_in_one_message_and_of_known_ones_not_again(network: Network) -> None:
    owner, borrower, _ = network.processes
    mine = [own(owner, "x"), own(owner, "y")]
    first = borrow(borrower, *mine)
    assert sent(borrower, owner) == [BorrowRefs([entry.object_id for entry in mine])]
    assert borrower.borrowing.unanswered == 1
    assert borrow(borrower, mine[0]) == first[:1]
    network.run()
    assert borrower.borrowing.unanswered == 0
    assert all(entry.registered for entry in first)
    assert all(entry.borrowers == {borrower.address.worker_id} for entry in mine)


def test_a_borrowed_object_outlives_the_owners_own_holds(network: Network) -> None:
    owner, borrower, _ = network.processes
    mine = own(owner, "x")
    [theirs] = borrow(borrower, mine)
    network.run()
    owner.objects.release(mine)
    assert mine.object_id in owner.entries
    borrower.objects.release(theirs)
    assert sent(borrower, owner) == [ReturnRefs([mine.object_id])]
    assert borrower.forgotten == [mine.object_id]
    network.run()
    assert owner.entries == borrower.entries == {}
    assert borrower.borrowing.borrowed_from(owner.address.worker_id) == []


def test_of_one_dropped_before_it_was_registered_the_owner_never_hears(network: Network) -> None:
    owner, borrower, _ = network.processes
    mine = own(owner, "x")
    entry = borrower.objects.entry_of(mine.object_id, owner.address)
    entry.hold()
    borrower.objects.release(entry)
    borrower.borrowing.register()
    assert sent(borrower, owner) == []
    assert borrower.entries == {}


def test_registered_means_known_to_the_owner(network: Network) -> None:
    owner, borrower, _ = network.processes
    entries = borrow(borrower, own(owner, "x"), own(owner, "y"))
    told: list[int] = []
    borrower.borrowing.when_registered(entries, lambda: told.append(1))
    assert told == []
    network.run()
    assert told == [1]
    borrower.borrowing.when_registered(entries, lambda: told.append(2))
    assert told == [1, 2]


@pytest.mark.parametrize("dies_first", [False, True])
def test_nobody_waits_for_one_that_died_before_its_owner_was_told(network: Network, dies_first: bool) -> None:
    """As when a value is rebuilt, what it contains dies at once, and its container is kept until that is registered."""
    owner, borrower, _ = network.processes
    dies, stays = own(owner, "dies"), own(owner, "stays")
    entries = [borrower.objects.entry_of(mine.object_id, owner.address) for mine in (dies, stays)]
    for entry in entries:
        entry.hold()
    told: list[str] = []
    if dies_first:
        borrower.objects.release(entries[0])
    borrower.borrowing.when_registered(entries, lambda: told.append("all"))
    borrower.borrowing.when_registered(entries[:1], lambda: told.append("one"))
    if not dies_first:
        assert told == []
        borrower.objects.release(entries[0])
    assert told == ["one"]
    borrower.borrowing.register()
    network.run()
    assert told == ["one", "all"]
    assert dies.borrowers is None


def test_what_the_owner_does_not_know_is_lost(network: Network) -> None:
    owner, borrower, _ = network.processes
    mine, gone = own(owner, "x"), own(owner, "gone")
    owner.objects.release(gone)
    first, second = borrow(borrower, mine, gone)
    network.run()
    assert first.value is None
    assert borrower.failures == [Lost(gone.object_id, owner.address)]
    assert second.registered


def test_without_the_owner_everything_of_it_fails_and_nothing_waits(network: Network) -> None:
    owner, borrower, third = network.processes
    mine = own(owner, "x")
    registered, on_its_way = borrow(borrower, mine)[0], borrow(third, mine)[0]
    told: list[int] = []
    third.borrowing.when_registered([on_its_way], lambda: told.append(1))
    borrower.objects.set_value(registered, PLAIN)
    network.kill(owner)
    assert told == [1]
    for process, entry in ((borrower, registered), (third, on_its_way)):
        assert OwnerDied(mine.object_id, owner.address) in process.failures
        assert entry.value is not None
        assert entry.value.data == b"OwnerDied"
    late = third.borrowing.borrowed_entry(object_name("late"), owner.address)
    assert late.value is not None
    assert late.registered


def test_a_borrower_that_dies_borrows_nothing(network: Network) -> None:
    owner, borrower, _ = network.processes
    mine = own(owner, "x")
    borrow(borrower, mine)
    network.run()
    owner.objects.release(mine)
    network.kill(borrower)
    assert owner.entries == {}


def test_what_we_put_for_another_process_is_registered_from_the_start(network: Network) -> None:
    owner, borrower, third = network.processes
    inner = (object_name("inner"), third.address)
    entry = borrower.borrowing.adopted(object_name("x"), owner.address, Value(INLINE, b"", (), (inner,)))
    assert entry.registered
    assert borrower.borrowing.borrowed_from(owner.address.worker_id) == [entry.object_id]
    assert sent(borrower, third) == [BorrowRefs([inner[0]])]
    assert sent(borrower, owner) == []


def test_failing_does_not_replace_a_value(network: Network) -> None:
    owner, borrower, _ = network.processes
    [entry] = borrow(borrower, own(owner, "x"))
    borrower.objects.set_value(entry, PLAIN)
    borrower.borrowing.fail(entry, ErrorKind.LOST)
    assert entry.value == PLAIN
