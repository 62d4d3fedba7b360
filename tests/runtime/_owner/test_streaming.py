"""The program's side of a generator: it waits for items, takes them as references, and drops what it does not take."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from runtime import exceptions
from runtime._core import ids
from runtime._owner.effects import Effects
from runtime._owner.objects import Objects
from runtime._owner.reading import Reader
from runtime._owner.streaming import Readers, StreamReader
from runtime._owner.value_requests import ValueRequests
from runtime._ownership.borrowing import Borrowing
from runtime._ownership.released import Released
from runtime._ownership.streams import Stream, Streams
from runtime._process import core_worker
from runtime._wire.messages.base import WorkerAddress
from runtime._wire.messages.worker import StreamConsumed, StreamItem, StreamPaused, Value
from runtime.object_ref_generator import DynamicObjectRefGenerator

TASK = b"t" * 24
OWNER = WorkerAddress(b"o" * 28, b"n" * 28, "owner")


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
        self.kicks = 0
        self.pump: Any = SimpleNamespace(kick=self._kick, failure=None)
        self.store = SimpleNamespace(forget=lambda _ids: None)
        us: Any = self
        effects = Effects(us)
        self.objects = Objects(us, self.released, ids.TaskIds(b"job1"), us.store, effects)
        self.borrowing = Borrowing(self.objects, self.released, effects)
        self.value_requests = ValueRequests(self, self.objects, self.borrowing, self.store)  # type: ignore[arg-type]
        nobody: Any = None
        effects.attach(self.objects, us.store, self.value_requests, nobody, nobody, nobody)
        self.streams = Streams(self.objects, self.borrowing, effects)
        self.readers = Readers(us, self.released, self.objects)
        self.task: Any = SimpleNamespace(push=SimpleNamespace(task_id=TASK), stores=lambda _entry: None)
        lineage: Any = None  # nothing is lost
        self.reader = Reader(
            self, self.released, self.objects, self.borrowing, self.store, self.value_requests, lineage
        )  # type: ignore[arg-type]

    def peer(self, _address: WorkerAddress, connect: bool = True) -> Connection:
        return self.owner

    def _kick(self) -> None:
        self.kicks += 1

    def check(self) -> None:
        """Nothing has ended."""

    def wait(self, ready: Any, _timeout_s: float | None) -> bool:
        return bool(ready())


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> Core:
    core = Core()
    monkeypatch.setattr(core_worker, "_current", core)
    return core


@pytest.fixture
def worker() -> Connection:
    return Connection()


@pytest.fixture
def stream(core: Core) -> Stream:
    return core.streams.open(core.task, core.objects.own(ids.object_id(TASK, 1)), collects=False)


@pytest.fixture
def reader(core: Core, stream: Stream) -> StreamReader:
    completed = core.objects.new_ref(core.objects.table.entries[ids.object_id(TASK, 1)])
    return StreamReader(core.readers, stream, completed)


def come(core: Core, worker: Connection, index: int) -> None:
    link: Any = worker
    core.task.stream.item(link, StreamItem(TASK, index, Value(0, b"N.")), core.task)


def test_items_come_in_order_and_then_the_end(
    core: Core, stream: Stream, reader: StreamReader, worker: Connection
) -> None:
    for index in range(3):
        come(core, worker, index)
    stream.end(None)
    assert len(reader.items) == 3
    refs = [reader.next(None) for _ in range(4)]
    assert refs[3] is None
    assert [ref.binary() for ref in refs if ref is not None] == [
        ids.object_id(TASK, index + 2) for index in range(3)
    ]


def test_an_item_lives_as_long_as_its_reference(core: Core, reader: StreamReader, worker: Connection) -> None:
    come(core, worker, 0)
    ref = reader.next(None)
    assert ref is not None
    assert core.reader.get_one(ref, None) is None
    binary = ref.binary()
    core.objects.drain()
    assert binary in core.objects.table.entries
    del ref
    core.objects.drain()
    assert binary not in core.objects.table.entries


def test_an_error_is_the_last_item(
    core: Core, stream: Stream, reader: StreamReader, worker: Connection
) -> None:
    stream.raised = True
    stream.end(core.objects.error_value(KeyError("over")))
    ref = reader.next(None)
    assert ref is not None
    with pytest.raises(KeyError, match="over"):
        core.reader.get_one(ref, None)
    assert reader.next(None) is None


def test_an_error_from_outside_is_the_end_itself(core: Core, stream: Stream, reader: StreamReader) -> None:
    stream.end(core.objects.error_value(ValueError("lost")))
    assert reader.next(None) == reader.completed
    assert reader.next(None) is None


def test_nothing_in_time(reader: StreamReader) -> None:
    with pytest.raises(TimeoutError):
        reader.next(0.0)


def test_the_next_item_can_be_seen_before_it_comes(
    core: Core, reader: StreamReader, worker: Connection
) -> None:
    expected = reader.peek()
    assert expected._entry.value is None
    come(core, worker, 0)
    assert expected._entry.value is not None
    assert reader.peek() == expected
    assert reader.next(None) == expected


def test_who_looks_ahead_learns_of_the_end(core: Core, stream: Stream, reader: StreamReader) -> None:
    expected = reader.peek()
    stream.end(None)
    with pytest.raises(exceptions.ObjectRefStreamEndOfStreamError):
        core.reader.get_one(expected, None)


def test_who_looks_ahead_learns_that_the_process_is_cut_off(core: Core, reader: StreamReader) -> None:
    core.pump.failure = ValueError("cut off")
    expected = reader.peek()
    with pytest.raises(ValueError, match="cut off"):
        core.reader.get_one(expected, None)


def test_a_worker_that_paused_goes_on_when_something_is_taken(
    core: Core, reader: StreamReader, worker: Connection
) -> None:
    link: Any = worker
    for index in range(2):
        come(core, worker, index)
    reader.next(None)
    assert core.kicks == 0
    core.streams.on_paused(link, StreamPaused(TASK, 1), 0)
    reader.next(None)
    assert worker.sent == [StreamConsumed(TASK, 2)]
    assert core.kicks == 1


def test_what_a_dropped_generator_has_is_freed(core: Core, reader: StreamReader, worker: Connection) -> None:
    come(core, worker, 0)
    core.released.add(reader)
    core.objects.drain()
    come(core, worker, 1)
    core.objects.drain()
    assert list(core.objects.table.entries) == [ids.object_id(TASK, 1)]


def test_collected_items_are_references(core: Core, worker: Connection) -> None:
    entry = core.objects.own(ids.object_id(TASK, 1), 1)
    stream = core.streams.open(core.task, entry, collects=True)
    for index in range(2):
        come(core, worker, index)
    entry.value = stream.end(None)
    core.objects.drain()  # the references that were pickled
    core.objects.release(entry)
    assert not core.objects.table.entries


def test_collected_items_are_given_one_by_one(core: Core, worker: Connection) -> None:
    entry = core.objects.own(ids.object_id(TASK, 1), 1)
    stream = core.streams.open(core.task, entry, collects=True)
    for index in range(2):
        come(core, worker, index)
    core.objects.set_value(entry, stream.end(None))
    generator = core.reader.get_one(core.objects.new_ref(entry), None)
    assert isinstance(generator, DynamicObjectRefGenerator)
    assert [ref.binary() for ref in generator] == [ids.object_id(TASK, index + 2) for index in range(2)]
