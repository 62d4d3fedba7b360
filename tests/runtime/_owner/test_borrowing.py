"""Owners hear of crowds of references at once: of each new one, of each old one, and of none that they need not."""

from __future__ import annotations

import pickle
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from runtime import exceptions
from runtime._core import ids
from runtime._owner.effects import Effects
from runtime._owner.errors import decode_address, encode_address
from runtime._owner.objects import Objects
from runtime._ownership.borrowing import Borrowing
from runtime._ownership.records import Entry
from runtime._ownership.released import Released
from runtime._process import core_worker
from runtime._wire import serialization
from runtime._wire.messages.base import ErrorKind, ErrorReply, WorkerAddress
from runtime._wire.messages.worker import Borrowed, BorrowRefs, ReturnRefs
from runtime.object_ref import rebuild

OWNERS = [WorkerAddress(letter * 28, b"n" * 28, "owner") for letter in (b"o", b"p")]


class Connection:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.answers: list[Any] = []

    def send(self, message: Any) -> None:
        self.sent.append(message)

    def call(self, request: Any, callback: Any) -> None:
        self.sent.append(request)
        self.answers.append(callback)


class Core:
    """A process that borrows from several owners."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.released = Released(lambda: None)
        self.address = WorkerAddress(b"m" * 28, b"n" * 28, "me")
        self.peers: dict[bytes, Connection | None] = {owner.worker_id: Connection() for owner in OWNERS}
        self.pump = SimpleNamespace(kick=lambda: None, failure=None)
        self.store = SimpleNamespace(forget=lambda _ids: None)
        us: Any = self
        effects = Effects(us)
        self.objects = Objects(us, self.released, ids.TaskIds(b"job1"), us.store, effects)
        self.borrowing = Borrowing(self.objects, self.released, effects)
        nobody: Any = None
        effects.attach(self.objects, us.store, nobody, nobody, nobody, nobody)

    def peer(self, address: WorkerAddress, connect: bool = True) -> Connection | None:
        return self.peers[address.worker_id]

    def sent(self, owner: int) -> list[Any]:
        connection = self.peers[OWNERS[owner].worker_id]
        assert connection is not None
        sent, connection.sent = connection.sent, []
        return sent

    def answer(self, owner: int, reply: Any) -> None:
        connection = self.peers[OWNERS[owner].worker_id]
        assert connection is not None
        connection.answers.pop(0)(reply)

    def entry(self, number: int) -> Entry | None:
        return self.objects.table.entries.get(name(number))


class Sent:
    """Travels like a reference to object `number` of an owner."""

    def __init__(self, number: int, owner: int = 0) -> None:
        self.args = name(number), encode_address(OWNERS[owner])

    def __reduce__(self) -> Any:
        return rebuild, self.args


def name(number: int) -> bytes:
    return number.to_bytes(28, "big")


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> Core:
    made = Core()
    monkeypatch.setattr(core_worker, "_current", made)
    return made


def read(value: Any) -> Any:
    return serialization.deserialize(pickle.dumps(value))[0]


def test_those_in_one_value_are_registered_at_once(core: Core) -> None:
    refs = read([Sent(1), Sent(2, 1), {"x": Sent(3)}, Sent(1)])
    assert core.sent(0) == [BorrowRefs([name(1), name(3)])]
    assert core.sent(1) == [BorrowRefs([name(2)])]
    told: list[str] = []
    entries = [refs[0]._entry, refs[1]._entry]
    core.borrowing.when_registered(entries, lambda: told.append("both"))
    core.answer(0, Borrowed())
    assert told == []
    core.answer(1, Borrowed())
    assert told == ["both"]
    assert all(entry.registered for entry in entries)
    again = read([Sent(1), Sent(3)])
    assert again[0] == refs[0]
    assert core.sent(0) == []


def test_one_that_comes_alone_is_registered_at_once(core: Core) -> None:
    ref = rebuild(name(1), encode_address(OWNERS[0]))
    assert core.sent(0) == [BorrowRefs([name(1)])]
    assert ref._entry.owner == OWNERS[0]


def test_of_one_that_is_dropped_before_nobody_hears(core: Core) -> None:
    dropped = core.objects.borrow(name(1), encode_address(OWNERS[0]))
    kept = core.objects.borrow(name(2), encode_address(OWNERS[0]))
    del dropped
    with core.lock:
        core.objects.drain()
    core.objects.register_borrows()
    assert core.entry(1) is None
    assert core.sent(0) == [BorrowRefs([name(2)])]
    assert kept._entry is core.entry(2)


def test_a_value_that_cannot_be_read_registers_what_it_had(core: Core) -> None:
    class Fails:
        def __reduce__(self) -> Any:
            return int, ("no number",)

    with pytest.raises(ValueError):
        read([Sent(1), Fails()])
    assert core.sent(0) == [BorrowRefs([name(1)])]


def test_only_the_unknown_fail(core: Core) -> None:
    refs = read([Sent(1), Sent(2), Sent(3)])
    core.answer(0, Borrowed([name(2)]))
    assert [ref._entry.value is None for ref in refs] == [True, False, True]
    error, _ = serialization.deserialize(refs[1]._entry.value.data)
    assert isinstance(error, exceptions.ObjectLostError)
    assert all(ref._entry.registered for ref in refs)


@pytest.mark.parametrize("connected", [True, False])
def test_all_fail_with_their_owner(core: Core, connected: bool) -> None:
    if not connected:
        core.peers[OWNERS[0].worker_id] = None
    refs = read([Sent(1), Sent(2), Sent(3, 1)])
    if connected:
        core.answer(0, ErrorReply(ErrorKind.UNAVAILABLE, "gone"))
    for ref in refs[:2]:
        error, _ = serialization.deserialize(ref._entry.value.data)
        assert isinstance(error, exceptions.OwnerDiedError)
    assert refs[2]._entry.value is None


def test_what_has_died_is_given_back_at_once(core: Core) -> None:
    refs = read([Sent(1), Sent(2, 1), Sent(3), Sent(4)])
    core.sent(0), core.sent(1)
    kept = refs[0]
    del refs
    with core.lock:
        core.objects.drain()
    [returned] = core.sent(0)
    assert sorted(returned.object_ids) == [name(3), name(4)]
    assert core.sent(1) == [ReturnRefs([name(2)])]
    assert core.borrowing.borrowed_from(OWNERS[0].worker_id) == [name(1)]
    assert core.borrowing.borrowed_from(OWNERS[1].worker_id) == []
    assert core.entry(1) is kept._entry


def test_the_owner_names_what_it_does_not_know(core: Core) -> None:
    borrower = SimpleNamespace(peer=OWNERS[0], replies=[])
    borrower.reply = lambda message, _correlation: borrower.replies.append(message)
    with core.lock:
        for number in (1, 2):
            core.objects.own(name(number))
        connection: Any = borrower
        core.borrowing.on_borrow(connection, BorrowRefs([name(1), name(9), name(2)]), 1)
        assert borrower.replies == [Borrowed([name(9)])]
        core.borrowing.on_return(connection, ReturnRefs([name(1), name(9)]), 0)
    assert core.entry(1) is None
    assert core.entry(2) is not None


def test_addresses_survive() -> None:
    for owner in OWNERS:
        assert decode_address(encode_address(owner)) == owner
