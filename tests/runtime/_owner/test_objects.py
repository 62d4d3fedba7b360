"""What is plain and small goes a short way through the table of objects: it ends like everything else."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from runtime._core import ids
from runtime._owner.effects import Effects
from runtime._owner.objects import INLINE_BYTES, Objects, plain_value
from runtime._ownership.borrowing import Borrowing
from runtime._ownership.records import INLINE, INLINE_ERROR, STORED, Entry
from runtime._ownership.released import Released
from runtime._wire import serialization
from runtime._wire.messages.base import WorkerAddress
from runtime._wire.messages.worker import Value

ADDRESS = WorkerAddress(b"m" * 28, b"n" * 28, "me")
OVERHEAD = len(serialization.dump_plain(b"x" * 1000)) - 1000


class Core:
    """A process that is alone."""

    def __init__(self) -> None:
        self.address = ADDRESS
        self.lock = threading.RLock()
        self.released = Released(lambda: None)
        self.pump = SimpleNamespace(kick=lambda: None, failure=None)
        self.ended: list[Any] = []
        self.created: list[bytes] = []
        self.store = SimpleNamespace(
            free=lambda object_ids, locations: self.ended.append((object_ids, locations)),
            put=self._put,
        )
        self.ids = ids.TaskIds(b"job1")
        us: Any = self
        effects = Effects(us)
        self.objects = Objects(us, self.released, self.ids, us.store, effects)
        self.objects.forget_task = lambda entry: self.ended.append(entry.object_id)
        self.borrowing = Borrowing(self.objects, self.released, effects)
        nobody: Any = None
        effects.attach(self.objects, us.store, nobody, nobody, nobody, nobody)

    def _put(self, object_id: bytes, serialized: serialization.Serialized) -> int:
        self.created.append(object_id)
        return serialized.size_bytes

    def check(self) -> None:
        """Nothing has ended."""


def name(number: int) -> bytes:
    return number.to_bytes(28, "big")


@pytest.fixture
def core() -> Core:
    return Core()


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -1,
        2**80,
        1.5,
        1j,
        "text",
        b"bytes",
        bytearray(b"b"),
        range(3),
        slice(1, 2),
        b"",
        "x" * 5000,
    ],
    ids=lambda value: type(value).__name__,
)
def test_plain_values_are_packed_as_any_other(core: Core, value: Any) -> None:
    short = plain_value(value)
    assert short is not None
    assert short == core.objects.pack(b"o" * 28, serialization.serialize(value), ADDRESS)
    assert serialization.deserialize(short.data) == (value, [])


@pytest.mark.parametrize(
    "value", [[1], (1,), {}, {1}, object, int, Exception("x"), type("Text", (str,), {})("x")]
)
def test_what_may_hold_something_is_not_plain(value: Any) -> None:
    assert plain_value(value) is None


def test_what_is_large_is_not_plain(core: Core) -> None:
    largest = b"x" * (INLINE_BYTES - OVERHEAD - 100)
    assert plain_value(largest) is not None
    assert core.objects.put(largest)._entry.value == plain_value(largest)
    assert core.created == []
    larger = b"x" * (INLINE_BYTES + 1)
    assert plain_value(larger) is None
    ref = core.objects.put(larger)
    assert ref._entry.value is not None
    assert ref._entry.value.kind == STORED
    assert core.created == [ref.binary()]


def test_every_way_to_let_go_ends_every_kind(core: Core) -> None:
    """One by one, many at once, and what finalizers leave: the same is freed and said."""
    inner = core.objects.own(b"i" * 28)
    inner.value = plain_value(0)

    def make(kind: str, number: int) -> Entry:
        entry = core.objects.own(name(number))
        entry.holds = 1
        entry.seen = True
        if kind == "stored":
            entry.value = Value(STORED, b"", (), (), (b"n" * 28,), 10)
        elif kind == "error":
            entry.value = Value(INLINE_ERROR, b"N.")
        elif kind != "pending":
            entry.value = Value(INLINE, b"N.")
        if kind == "nested":
            core.objects.table.contain(entry, [inner])
        elif kind == "hooked":
            entry.on_free = lambda: core.ended.append("freed")
        elif kind == "made":
            entry.task = object()  # type: ignore[assignment]
        return entry

    def release(entries: list[Entry]) -> None:
        for entry in entries:
            core.objects.release(entry)

    def finalize(entries: list[Entry]) -> None:
        core.released.extend(entries)
        core.objects.drain()

    kinds = ["plain", "stored", "error", "pending", "nested", "hooked", "made"]
    outcomes = []
    for way in (release, core.objects.release_all, finalize):
        inner.holds = 1
        entries = [make(kind, number) for number, kind in enumerate(kinds)]
        borrowed = entries[0]
        borrowed.holds = 2  # somebody else holds it: it stays
        lent = make("plain", 100)
        lent.borrowers = {b"b" * 28}
        way([*entries, lent])
        left = set(core.objects.table.entries)
        assert left == {inner.object_id, borrowed.object_id, lent.object_id}
        assert inner.holds == 1
        outcomes.append(list(core.ended))
        core.ended.clear()
        borrowed.holds = 1
        lent.holds, lent.borrowers = 1, None
        way([borrowed, lent])
        assert set(core.objects.table.entries) == {inner.object_id}
    freed, hooked, made = ([name(1)], [b"n" * 28]), "freed", name(6)
    assert [sorted(outcome, key=repr) for outcome in outcomes] == [
        sorted([freed, hooked, made], key=repr)
    ] * 3


def test_one_that_has_left_the_table_does_not_take_another_with_it(core: Core) -> None:
    old = core.objects.own(b"o" * 28)
    old.value, old.holds = plain_value(1), 1
    new = core.objects.own(b"o" * 28)
    core.objects.release(old)
    assert core.objects.table.entries == {b"o" * 28: new}


def test_a_callback_that_fails_does_not_starve_the_others(
    core: Core, caplog: pytest.LogCaptureFixture
) -> None:
    entry = core.objects.own(name(1))
    called: list[int] = []

    def fail() -> None:
        raise RuntimeError("no luck")

    for callback in (lambda: called.append(1), fail, lambda: called.append(2)):
        core.objects.when_ready(entry, callback)
    core.objects.set_value(entry, Value(INLINE, b"N."))
    assert called == [1, 2]
    assert any("no luck" in str(record.exc_info) for record in caplog.records)


def test_an_object_that_cannot_be_freed_does_not_keep_the_others(core: Core) -> None:
    first, second = core.objects.own(name(1)), core.objects.own(name(2))
    freed: list[bytes] = []

    def fail() -> None:
        freed.append(first.object_id)
        raise RuntimeError("no luck")

    for entry, on_free in ((first, fail), (second, lambda: freed.append(second.object_id))):
        entry.value = Value(INLINE, b"N.")
        entry.holds = 1
        entry.on_free = on_free
    core.objects.release_all([first, second])
    assert freed == [first.object_id, second.object_id]
