"""The caller's side of a stream: in order, once each, the error last, and what is inside is released at the end."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from runtime._core import ids
from runtime._owner.effects import Effects
from runtime._owner.objects import Objects
from runtime._owner.reading import Reader
from runtime._owner.streaming import Stream, Streams
from runtime._owner.value_requests import ValueRequests
from runtime._ownership.borrowing import Borrowing
from runtime._ownership.released import Released
from runtime._wire.messages.base import WorkerAddress
from runtime._wire.messages.worker import (
    Borrowed,
    ReleaseHold,
    StreamConsumed,
    StreamItem,
    StreamPaused,
    Value,
)

TASK = b"t" * 24
OWNER = WorkerAddress(b"o" * 28, b"n" * 28, "owner")
TASK_OF_IT: Any = SimpleNamespace(stores=lambda _entry: None)
NESTED = [(b"x" * 28, OWNER)]


class Connection:
    """Remembers what it was told; its calls are answered when the test says so."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.calls: list[Any] = []

    def send(self, message: Any) -> None:
        self.sent.append(message)

    def call(self, _request: Any, callback: Any) -> None:
        self.calls.append(callback)


class Core:
    """A process that borrows from one owner."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.released = Released(lambda: None)
        self.address = WorkerAddress(b"m" * 28, b"n" * 28, "me")
        self.owner = Connection()
        self.pump = SimpleNamespace(kick=lambda: None, failure=None)
        self.store = SimpleNamespace(forget=lambda _ids: None)
        us: Any = self
        effects = Effects(us, warns=False)
        self.objects = Objects(us, self.released, ids.TaskIds(b"job1"), us.store, effects)
        self.borrowing = Borrowing(self.objects, self.released, effects)
        self.value_requests = ValueRequests(self, self.objects, self.borrowing, self.store)  # type: ignore[arg-type]
        nobody: Any = None
        effects.attach(self.objects, us.store, self.value_requests, nobody, nobody, nobody)
        self.streams = Streams(us, self.released, self.objects, self.borrowing)
        lineage: Any = None  # nothing is lost
        self.reader = Reader(
            self, self.released, self.objects, self.borrowing, self.store, self.value_requests, lineage
        )  # type: ignore[arg-type]

    def peer(self, _address: WorkerAddress, connect: bool = True) -> Connection:
        return self.owner

    def check(self) -> None:
        """Nothing has ended."""

    def wait(self, ready: Any, _timeout_s: float | None) -> bool:
        return bool(ready())


@pytest.fixture
def core() -> Core:
    return Core()


@pytest.fixture
def worker() -> Connection:
    return Connection()


@pytest.fixture
def stream(core: Core) -> Stream:
    completed = core.objects.new_ref(core.objects.own(ids.object_id(TASK, 1)))
    return core.streams.open(TASK, completed)


def item(index: int, nested: Any = ()) -> StreamItem:
    return StreamItem(TASK, index, Value(0, b"N.", [], list(nested)))


def test_items_come_in_order_and_then_the_end(stream: Stream, worker: Connection) -> None:
    for index in range(3):
        stream.item(worker, item(index), TASK_OF_IT)  # type: ignore[arg-type]
    stream.end(None)
    refs = [stream.next(None) for _ in range(4)]
    assert refs[3] is None
    assert len({ref.binary() for ref in refs if ref is not None}) == 3


def test_items_have_their_values(core: Core, stream: Stream, worker: Connection) -> None:
    stream.item(worker, item(0), TASK_OF_IT)  # type: ignore[arg-type]
    ref = stream.next(None)
    assert ref is not None
    assert core.reader.get_one(ref, None) is None


def test_items_that_come_again_after_a_retry_are_skipped(stream: Stream, worker: Connection) -> None:
    for index in (0, 1, 0, 1, 2):
        stream.item(worker, item(index), TASK_OF_IT)  # type: ignore[arg-type]
    assert len(stream.items) == 3


def test_an_error_is_the_last_item(core: Core, stream: Stream, worker: Connection) -> None:
    stream.item(worker, item(0), TASK_OF_IT)  # type: ignore[arg-type]
    stream.raised = True
    assert stream.end(core.objects.error_value(KeyError("over"))).kind == 0
    stream.next(None)
    ref = stream.next(None)
    assert ref is not None
    with pytest.raises(KeyError, match="over"):
        core.reader.get_one(ref, None)
    assert stream.next(None) is None


def test_nothing_in_time(stream: Stream) -> None:
    with pytest.raises(TimeoutError):
        stream.next(0.0)


def test_a_stream_without_references_needs_no_release(stream: Stream, worker: Connection) -> None:
    stream.item(worker, item(0), TASK_OF_IT)  # type: ignore[arg-type]
    stream.end(None)
    assert worker.sent == []


@pytest.mark.parametrize("registered_first", [True, False])
def test_the_worker_is_released_when_all_is_registered_and_over(
    core: Core, stream: Stream, worker: Connection, registered_first: bool
) -> None:
    stream.item(worker, item(0, NESTED), TASK_OF_IT)  # type: ignore[arg-type]
    [registered] = core.owner.calls
    steps = [lambda: registered(Borrowed()), lambda: stream.end(None)]
    for step in steps if registered_first else reversed(steps):
        assert worker.sent == []
        step()
    assert worker.sent == [ReleaseHold(TASK)]


def test_the_worker_is_released_once(core: Core, stream: Stream, worker: Connection) -> None:
    for index in range(3):
        stream.item(worker, item(index, NESTED), TASK_OF_IT)  # type: ignore[arg-type]
    stream.end(None)
    for registered in core.owner.calls:
        registered(Borrowed())
    assert worker.sent == [ReleaseHold(TASK)]


def test_a_repeated_item_keeps_references_too(core: Core, stream: Stream, worker: Connection) -> None:
    first = Connection()
    stream.item(first, item(0), TASK_OF_IT)  # type: ignore[arg-type]
    stream.item(worker, item(0, NESTED), TASK_OF_IT)  # type: ignore[arg-type]
    stream.end(None)
    assert worker.sent == []
    for registered in core.owner.calls:
        registered(Borrowed())
    assert first.sent == []
    assert worker.sent == [ReleaseHold(TASK)]


def test_an_error_from_outside_is_the_end_itself(core: Core, stream: Stream, worker: Connection) -> None:
    stream.item(worker, item(0), TASK_OF_IT)  # type: ignore[arg-type]
    lost = core.objects.error_value(ValueError("lost"))
    assert stream.end(lost) is lost
    stream.next(None)
    assert stream.next(None) is stream.completed
    assert stream.next(None) is None


def test_the_next_item_can_be_seen_before_it_comes(core: Core, stream: Stream, worker: Connection) -> None:
    expected = stream.peek()
    assert expected._entry.value is None
    stream.item(worker, item(0), TASK_OF_IT)  # type: ignore[arg-type]
    assert expected._entry.value is not None
    assert stream.peek() is expected
    assert stream.next(None) is expected


def test_who_looks_ahead_learns_of_the_end(core: Core, stream: Stream) -> None:
    expected = stream.peek()
    stream.end(None)
    assert expected._entry.value is not None
    assert stream.peek()._entry.value is not None
    assert stream.next(None) is None


def test_a_worker_that_pauses_hears_of_what_was_taken(stream: Stream, worker: Connection) -> None:
    for index in range(2):
        stream.item(worker, item(index), TASK_OF_IT)  # type: ignore[arg-type]
    stream.paused(worker, StreamPaused(TASK, 0))  # type: ignore[arg-type]
    assert worker.sent == []
    stream.next(None)
    assert worker.sent == [StreamConsumed(TASK, 1)]
    stream.next(None)
    assert len(worker.sent) == 1


def test_a_worker_that_pauses_late_is_told_at_once(stream: Stream, worker: Connection) -> None:
    stream.item(worker, item(0), TASK_OF_IT)  # type: ignore[arg-type]
    stream.next(None)
    stream.paused(worker, StreamPaused(TASK, 0))  # type: ignore[arg-type]
    assert worker.sent == [StreamConsumed(TASK, 1)]


@pytest.mark.parametrize("paused_first", [True, False])
def test_an_abandoned_stream_lets_the_worker_go_on(
    core: Core, stream: Stream, worker: Connection, paused_first: bool
) -> None:
    stream.item(worker, item(0), TASK_OF_IT)  # type: ignore[arg-type]
    steps = [lambda: stream.paused(worker, StreamPaused(TASK, 0)), stream.abandon]  # type: ignore[arg-type]
    for step in steps if paused_first else reversed(steps):
        step()
    assert worker.sent == [StreamConsumed(TASK, -1)]


def test_what_comes_for_an_abandoned_stream_is_freed(core: Core, stream: Stream, worker: Connection) -> None:
    stream.item(worker, item(0), TASK_OF_IT)  # type: ignore[arg-type]
    stream.abandon()
    stream.item(worker, item(1), TASK_OF_IT)  # type: ignore[arg-type]
    core.objects.drain()
    assert list(core.objects.table.entries) == [ids.object_id(TASK, 1)]
