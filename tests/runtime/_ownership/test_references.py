"""Reference counts of one process: a reference ends once, when nothing holds it, and never before."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from runtime._ownership.records import Entry
from runtime._ownership.references import ReferenceTable
from runtime._ownership.released import NOWHERE
from runtime._wire.messages.base import WorkerAddress

ALICE, BOB = b"alice", b"bob"
SOMEBODY = WorkerAddress(b"s" * 28, b"n" * 28, "somebody")


def make(object_id: bytes, owner: WorkerAddress | None = None, registered: bool = True) -> Entry:
    return Entry(object_id, owner, registered, released=NOWHERE)


def table_of(*names: str) -> tuple[ReferenceTable, list[Entry]]:
    """A table with one hold on each of these, all our own."""
    table: ReferenceTable = ReferenceTable()
    entries = [table.add(make(name.encode())) for name in names]
    for entry in entries:
        entry.holds = 1
    return table, entries


def names(dead: Iterable[Entry]) -> list[str]:
    return [entry.object_id.decode() for entry in dead]


# ---------------------------------------------------------------- holds


def test_our_own_reference_is_registered_from_the_start() -> None:
    assert make(b"a").registered


@pytest.mark.parametrize("holds", [1, 2, 5])
def test_the_last_release_ends_a_reference(holds: int) -> None:
    table, [entry] = table_of("a")
    entry.holds = holds
    for _ in range(holds - 1):
        assert names(table.release(entry)) == []
    assert names(table.release(entry)) == ["a"]
    assert table.entries == {}


def test_a_borrowed_reference_ends_like_our_own() -> None:
    table: ReferenceTable = ReferenceTable()
    entry = table.add(make(b"a", owner=SOMEBODY, registered=False))
    entry.holds = 1
    assert names(table.release(entry)) == ["a"]


def test_a_reference_is_buried_once() -> None:
    table, [entry] = table_of("a")
    assert names(table.release(entry)) == ["a"]
    assert names(table.bury(entry)) == []


def test_burying_an_entry_leaves_its_successor_of_the_same_id() -> None:
    table, [old] = table_of("a")
    table.release(old)
    new = table.add(make(b"a"))
    assert names(table.bury(old)) == []
    assert table.entries[b"a"] is new


# ---------------------------------------------------------------- nested


def test_a_container_holds_what_it_contains() -> None:
    table, [outer, inner] = table_of("outer", "inner")
    table.contain(outer, [inner])
    assert names(table.release(inner)) == []
    assert names(table.release(outer)) == ["outer", "inner"]


def test_a_chain_of_containers_ends_from_the_outside() -> None:
    table, entries = table_of("a", "b", "c", "d")
    for outer, inner in itertools.pairwise(entries):
        table.contain(outer, [inner])
    for entry in entries[1:]:
        assert names(table.release(entry)) == []
    assert names(table.release(entries[0])) == ["a", "b", "c", "d"]
    assert table.entries == {}


def test_what_somebody_else_holds_outlives_its_container() -> None:
    table, [outer, inner] = table_of("outer", "inner")
    table.contain(outer, [inner])
    assert names(table.release(outer)) == ["outer"]
    assert inner.holds == 1
    assert b"inner" in table.entries


def test_what_somebody_borrows_outlives_its_container() -> None:
    table, [outer, inner] = table_of("outer", "inner")
    table.contain(outer, [inner])
    table.release(inner)
    table.add_borrower(b"inner", ALICE)
    assert names(table.release(outer)) == ["outer"]
    assert names(table.remove_borrower(b"inner", ALICE)) == ["inner"]


def test_two_containers_share_what_they_contain() -> None:
    table, [first, second, inner] = table_of("first", "second", "inner")
    table.contain(first, [inner])
    table.contain(second, [inner])
    table.release(inner)
    assert names(table.release(first)) == ["first"]
    assert names(table.release(second)) == ["second", "inner"]


def test_the_same_reference_twice_in_a_value_counts_twice() -> None:
    table, [outer, inner] = table_of("outer", "inner")
    table.contain(outer, [inner, inner])
    assert inner.holds == 3
    table.release(inner)
    assert names(table.release(outer)) == ["outer", "inner"]
    assert inner.holds == 0


def test_a_diamond_ends_each_once() -> None:
    table, [top, left, right, bottom] = table_of("top", "left", "right", "bottom")
    table.contain(top, [left, right])
    table.contain(left, [bottom])
    table.contain(right, [bottom])
    for entry in (left, right, bottom):
        table.release(entry)
    assert sorted(names(table.release(top))) == ["bottom", "left", "right", "top"]


def test_a_deep_chain_needs_no_deep_stack() -> None:
    count = 20_000
    table, entries = table_of(*map(str, range(count)))
    for outer, inner in itertools.pairwise(entries):
        table.contain(outer, [inner])
        inner.holds -= 1
    assert len(names(table.release(entries[0]))) == count


def test_emptying_releases_the_contents_and_keeps_the_container() -> None:
    table, [outer, inner] = table_of("outer", "inner")
    table.contain(outer, [inner])
    table.release(inner)
    assert names(table.empty(outer)) == ["inner"]
    assert outer.nested is None
    assert names(table.release(outer)) == ["outer"]


def test_emptying_a_plain_value_does_nothing() -> None:
    table, [entry] = table_of("a")
    assert names(table.empty(entry)) == []


# ---------------------------------------------------------------- borrowers


def test_a_borrower_keeps_what_we_do_not_hold() -> None:
    table, [entry] = table_of("a")
    assert table.add_borrower(b"a", ALICE)
    assert names(table.release(entry)) == []
    assert names(table.remove_borrower(b"a", ALICE)) == ["a"]


def test_the_last_of_several_borrowers_ends_it() -> None:
    table, [entry] = table_of("a")
    table.add_borrower(b"a", ALICE)
    table.add_borrower(b"a", BOB)
    table.release(entry)
    assert names(table.remove_borrower(b"a", BOB)) == []
    assert names(table.remove_borrower(b"a", ALICE)) == ["a"]


def test_borrowing_twice_is_borrowing_once() -> None:
    table, [entry] = table_of("a")
    table.add_borrower(b"a", ALICE)
    table.add_borrower(b"a", ALICE)
    table.release(entry)
    assert names(table.remove_borrower(b"a", ALICE)) == ["a"]


def test_returning_twice_does_nothing() -> None:
    table, _ = table_of("a")
    table.add_borrower(b"a", ALICE)
    assert names(table.remove_borrower(b"a", ALICE)) == []
    assert names(table.remove_borrower(b"a", ALICE)) == []
    assert b"a" in table.entries


def test_returning_what_was_never_borrowed_does_not_free_it() -> None:
    table, [entry] = table_of("a")
    entry.holds = 0  # its task still runs, and nobody holds the result
    assert names(table.remove_borrower(b"a", ALICE)) == []
    assert b"a" in table.entries


def test_an_unknown_object_cannot_be_borrowed() -> None:
    table, _ = table_of("a")
    assert not table.add_borrower(b"b", ALICE)


def test_a_borrowed_object_cannot_be_borrowed_from_the_borrower() -> None:
    table: ReferenceTable = ReferenceTable()
    table.add(make(b"a", owner=SOMEBODY, registered=False))
    assert not table.add_borrower(b"a", ALICE)


def test_a_lost_borrower_returns_everything() -> None:
    table, [first, second, _third] = table_of("first", "second", "third")
    for name in (b"first", b"second", b"third"):
        table.add_borrower(name, ALICE)
    table.add_borrower(b"second", BOB)
    table.release(first)
    table.release(second)
    assert names(table.borrower_lost(ALICE)) == ["first"]
    assert second.borrowers == {BOB}
    assert names(table.borrower_lost(BOB)) == ["second"]


def test_losing_a_process_that_borrows_nothing_is_nothing() -> None:
    table, _ = table_of("a")
    assert names(table.borrower_lost(ALICE)) == []


def test_a_lost_borrower_of_container_and_content_ends_each_once() -> None:
    table, [outer, inner] = table_of("outer", "inner")
    table.contain(outer, [inner])
    table.add_borrower(b"outer", ALICE)
    table.add_borrower(b"inner", ALICE)
    table.release(outer)
    table.release(inner)
    assert sorted(names(table.borrower_lost(ALICE))) == ["inner", "outer"]
    assert table.entries == {}


# ---------------------------------------------------------------- against a plain model

NAMES = [bytes([letter]) for letter in b"abcdef"]
PROCESSES = [ALICE, BOB]


class Model(RuleBasedStateMachine):
    """Any sequence of events keeps exactly what is reachable from a hold of ours or from a borrower."""

    def __init__(self) -> None:
        super().__init__()
        self.table: ReferenceTable = ReferenceTable()
        self.user: dict[bytes, int] = {}
        self.contains: dict[bytes, list[bytes]] = {}
        self.borrows: dict[bytes, set[bytes]] = {}
        self.dead: list[Entry] = []

    def reachable(self) -> set[bytes]:
        found = {name for name, count in self.user.items() if count}
        found |= {name for name, who in self.borrows.items() if who}
        queue = list(found)
        while queue:
            for inner in self.contains.get(queue.pop(), ()):
                if inner not in found:
                    found.add(inner)
                    queue.append(inner)
        return found

    def ended(self, dead: Iterable[Entry]) -> None:
        for entry in dead:
            self.dead.append(entry)
            for book in (self.user, self.contains, self.borrows):
                book.pop(entry.object_id, None)

    @rule(name=st.sampled_from(NAMES))
    def hold(self, name: bytes) -> None:
        entry = self.table.entries.get(name)
        if entry is None:
            entry = self.table.add(make(name))
        entry.holds += 1
        self.user[name] = self.user.get(name, 0) + 1

    @rule(data=st.data())
    @precondition(lambda self: any(self.user.values()))
    def release(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(name for name, count in self.user.items() if count)))
        self.user[name] -= 1
        self.ended(self.table.release(self.table.entries[name]))

    @rule(data=st.data())
    @precondition(lambda self: len(self.table.entries) > 1)
    def contain(self, data: st.DataObject) -> None:
        # A value holds only what was there before it, so containment has no cycles: order by name.
        known = sorted(self.table.entries)
        outer = data.draw(st.sampled_from(known[:-1]))
        inner = data.draw(st.sampled_from([name for name in known if name > outer]))
        self.table.contain(self.table.entries[outer], [self.table.entries[inner]])
        self.contains.setdefault(outer, []).append(inner)

    @rule(name=st.sampled_from(NAMES), who=st.sampled_from(PROCESSES))
    def borrow(self, name: bytes, who: bytes) -> None:
        if self.table.add_borrower(name, who):
            self.borrows.setdefault(name, set()).add(who)

    @rule(name=st.sampled_from(NAMES), who=st.sampled_from(PROCESSES))
    def give_back(self, name: bytes, who: bytes) -> None:
        self.borrows.get(name, set()).discard(who)
        self.ended(self.table.remove_borrower(name, who))

    @rule(who=st.sampled_from(PROCESSES))
    def lose(self, who: bytes) -> None:
        for borrowers in self.borrows.values():
            borrowers.discard(who)
        self.ended(self.table.borrower_lost(who))

    @invariant()
    def exactly_what_is_reachable_lives(self) -> None:
        assert set(self.table.entries) == self.reachable()

    @invariant()
    def counts_are_never_negative(self) -> None:
        assert all(entry.holds >= 0 for entry in self.table.entries.values())

    @invariant()
    def nothing_is_buried_twice(self) -> None:
        assert len({id(entry) for entry in self.dead}) == len(self.dead)


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=60, stateful_step_count=40)
