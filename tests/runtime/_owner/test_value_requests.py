"""Values of what others own: asked for at once or one by one, the same comes."""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from runtime import exceptions
from runtime._core import ids
from runtime._owner import value_requests
from runtime._owner.effects import Effects
from runtime._owner.objects import Objects
from runtime._owner.value_requests import AT_ONCE, ValueRequests
from runtime._ownership.borrowing import Borrowing
from runtime._ownership.records import INLINE, INLINE_ERROR, Entry
from runtime._ownership.released import Released
from runtime._wire import serialization
from runtime._wire.messages.base import ErrorKind, ErrorReply, WorkerAddress
from runtime._wire.messages.worker import BorrowRefs, GetObject, GetReady, Value

OWNER = WorkerAddress(b"o" * 28, b"n" * 28, "owner")
BORROWER = WorkerAddress(b"b" * 28, b"n" * 28, "borrower")
Ask = Callable[[ValueRequests, Iterable[Entry]], None]


class Process:
    """One that owns or borrows."""

    def __init__(self, address: WorkerAddress) -> None:
        self.address = address
        self.lock = threading.RLock()
        self.released = Released(lambda: None)
        self.pump = SimpleNamespace(kick=lambda: None, failure=None)
        self.store = SimpleNamespace(forget=lambda _ids: None, say_all=lambda: None)
        us: Any = self
        effects = Effects(us)
        self.objects = Objects(us, self.released, ids.TaskIds(b"job1"), us.store, effects)
        self.borrowing = Borrowing(self.objects, self.released, effects)
        self.value_requests = ValueRequests(self, self.objects, self.borrowing, self.store)  # type: ignore[arg-type]
        nobody: Any = None
        effects.attach(self.objects, us.store, self.value_requests, nobody, nobody, nobody)
        self.link: Link | None = None

    def peer(self, _address: WorkerAddress, connect: bool = True) -> Any:
        return self.link


class Link:
    """The connection of the borrower to its owner; `run` delivers what was said."""

    def __init__(self, owner: Process) -> None:
        self.handlers: dict[type, Any] = {
            GetObject: owner.value_requests.on_get,
            GetReady: owner.value_requests.on_get_ready,
            BorrowRefs: owner.borrowing.on_borrow,
        }
        self.asked: list[Any] = []
        self._waiting: deque[Callable[[], None]] = deque()
        self._calls: list[Any] = []
        self.peer = BORROWER

    def call(self, request: Any, callback: Any) -> None:
        self.asked.append(request)
        number = len(self._calls)
        self._calls.append(callback)
        self._waiting.append(lambda: self.handlers[type(request)](self, request, number))

    def reply(self, message: Any, correlation: int) -> None:
        callback, self._calls[correlation] = self._calls[correlation], None
        self._waiting.append(lambda: callback(message))

    def send(self, _message: Any) -> None:
        """What is given back plays no part here."""

    def run(self) -> None:
        while self._waiting:
            self._waiting.popleft()()

    def close(self) -> None:
        for callback in self._calls:
            if callback is not None:
                callback(ErrorReply(ErrorKind.UNAVAILABLE, "closed"))


def one_by_one(asks: ValueRequests, entries: Iterable[Entry]) -> None:
    for entry in entries:
        asks.ask(entry)


both = pytest.mark.parametrize("ask", [one_by_one, ValueRequests.ask_all])


class Pair:
    """An owner and a borrower of `count` objects, of which some are there."""

    def __init__(self, count: int) -> None:
        self.owner, self.borrower = Process(OWNER), Process(BORROWER)
        self.link = self.borrower.link = Link(self.owner)
        self.owned = [self.owner.objects.own(name(number)) for number in range(count)]
        for entry in self.owned:
            entry.holds += 1
        self.entries = [self.borrower.borrowing.begin(name(number), OWNER) for number in range(count)]
        self.borrower.borrowing.register()
        self.link.run()
        self.link.asked.clear()

    def give(self, number: int, value: Value) -> None:
        self.owner.objects.set_value(self.owned[number], value)


def name(number: int) -> bytes:
    return number.to_bytes(28, "big")


def plain(number: int) -> Value:
    return Value(INLINE, serialization.dump_plain(number))


def raised(entry: Entry) -> BaseException:
    assert entry.value is not None
    error: BaseException = serialization.deserialize(entry.value.data)[0]
    return error


@both
def test_what_is_there_and_what_comes(ask: Ask) -> None:
    pair, rng = Pair(50), random.Random(1)
    there = set(rng.sample(range(50), 25))
    for number in there:
        pair.give(number, plain(number))
    for _ in range(2):  # the second time nothing is left to ask
        ask(pair.borrower.value_requests, pair.entries)
        pair.link.run()
    assert {n for n, entry in enumerate(pair.entries) if entry.value is not None} == there
    late = [n for n in range(50) if n not in there]
    rng.shuffle(late)
    for number in late:
        pair.give(number, plain(number))
        pair.link.run()
        assert pair.entries[number].value == plain(number)
    assert [entry.value for entry in pair.entries] == [plain(n) for n in range(50)]
    assert all(entry.seen for entry in pair.owned)


@both
def test_errors_and_what_is_inside(ask: Ask) -> None:
    pair = Pair(4)
    inner = pair.owner.objects.own(b"i" * 28)
    inner.holds += 1
    pair.give(0, Value(INLINE_ERROR, serialization.serialize(ValueError("failed")).data))
    pair.give(1, Value(INLINE, b"N.", (), ((inner.object_id, OWNER),)))
    pair.give(2, Value(INLINE, b"N.", (b"buffer",)))
    ask(pair.borrower.value_requests, pair.entries[:3])
    pair.link.run()
    assert isinstance(raised(pair.entries[0]), ValueError)
    assert pair.borrower.objects.errors == 1
    nested = pair.entries[1].nested
    assert nested is not None
    assert [entry.object_id for entry in nested] == [inner.object_id]
    assert inner.borrowers == {BORROWER.worker_id}
    assert pair.entries[2].value == Value(INLINE, b"N.", (b"buffer",))
    assert pair.entries[3].value is None


@both
def test_what_the_owner_does_not_know_is_lost(ask: Ask) -> None:
    pair = Pair(3)
    pair.give(0, plain(0))
    del pair.owner.objects.table.entries[name(1)]
    ask(pair.borrower.value_requests, pair.entries)
    pair.link.run()
    assert pair.entries[0].value == plain(0)
    assert isinstance(raised(pair.entries[1]), exceptions.ObjectLostError)
    assert pair.entries[2].value is None


@both
@pytest.mark.parametrize("answered", [True, False])
def test_an_owner_that_goes(ask: Ask, answered: bool) -> None:
    pair = Pair(3)
    pair.give(0, plain(0))
    ask(pair.borrower.value_requests, pair.entries)
    if answered:
        pair.link.run()
    pair.link.close()
    assert (pair.entries[0].value == plain(0)) is answered
    for entry in pair.entries[answered:]:
        assert isinstance(raised(entry), exceptions.OwnerDiedError)


@both
def test_an_owner_that_is_gone(ask: Ask) -> None:
    pair = Pair(2)
    pair.borrower.link = None
    ask(pair.borrower.value_requests, pair.entries)
    for entry in pair.entries:
        assert isinstance(raised(entry), exceptions.OwnerDiedError)


def test_many_are_asked_for_in_few_messages() -> None:
    pair = Pair(2 * AT_ONCE + 1)
    for number in range(len(pair.owned)):
        pair.give(number, plain(number))
    pair.borrower.value_requests.ask_all([*pair.entries, pair.entries[0]])
    pair.link.run()
    assert [len(request.object_ids) for request in pair.link.asked] == [AT_ONCE, AT_ONCE, 1]
    assert all(entry.value == plain(number) for number, entry in enumerate(pair.entries))


def test_one_answer_does_not_carry_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_requests, "READY_BYTES", 120)
    pair = Pair(10)
    for number in range(10):
        pair.give(number, Value(INLINE, serialization.dump_plain(b"x" * 40)))
    pair.borrower.value_requests.ask_all(pair.entries)
    pair.link.run()
    assert [type(request) for request in pair.link.asked] == [GetReady, *[GetObject] * 8]
    assert all(entry.value is not None for entry in pair.entries)


def test_a_value_that_came_otherwise_is_not_asked_for_again() -> None:
    pair = Pair(2)
    pair.borrower.value_requests.ask_all(pair.entries)
    for entry in pair.entries:
        pair.borrower.objects.set_value(entry, plain(7))
    pair.link.run()
    assert [type(request) for request in pair.link.asked] == [GetReady]
