"""A process's view of the object store: what is written is read in place, and pins live as long as what was read."""

from __future__ import annotations

import gc
import pathlib
import threading
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from runtime import exceptions
from runtime._wire import serialization
from runtime._wire.messages.base import ErrorKind, ErrorReply, WorkerAddress
from runtime._wire.messages.node import (
    StoreAbort,
    StoreCreate,
    StorePin,
    StorePinned,
    StoreSeal,
    StoreSpace,
    StoreUnpin,
)
from runtime._worker.released import Released
from runtime._worker.store import LINGER_S, Pin, Store

CAPACITY_BYTES = 1 << 20
OWNER = WorkerAddress(b"w" * 28, b"n" * 28, "path")
A, B = b"a" * 28, b"b" * 28


class Agent:
    """The node's side: hands out space, knows what is sealed, counts pins."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.spaces: dict[bytes, tuple[int, int]] = {}
        self.pins: dict[bytes, int] = {}
        self.error: ErrorReply | None = None
        self._next = 0

    def send(self, message: Any) -> None:
        self.sent.append(message)
        if isinstance(message, StoreSeal):
            self.pins[message.object_id] = self.pins.get(message.object_id, 0) + 1
        elif isinstance(message, StoreUnpin):
            for object_id in message.object_ids:
                self.pins[object_id] -= 1

    def answer(self, request: Any) -> Any:
        if self.error is not None:
            return self.error
        if isinstance(request, StoreCreate):
            if request.object_id in self.spaces:
                return ErrorReply(ErrorKind.EXISTS, "it is sealed")
            self.spaces[request.object_id] = self._next, request.size_bytes
            self._next += -(-request.size_bytes // 64) * 64
            return StoreSpace(self.spaces[request.object_id][0])
        assert isinstance(request, StorePin)
        if request.object_id not in self.spaces:
            return ErrorReply(ErrorKind.LOST, "no copy is left")
        self.pins[request.object_id] = self.pins.get(request.object_id, 0) + 1
        return StorePinned(*self.spaces[request.object_id])


class Core:
    """What the store needs of a process."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.released = Released(lambda: None)
        self.agent = Agent()
        self.store: Store

    def call_agent(self, request: Any, _timeout_s: float | None = None) -> Any:
        return self.agent.answer(request)

    def drain(self) -> None:
        gc.collect()
        while self.released:
            item = self.released.popleft()
            if isinstance(item, Pin):
                self.store.release(item)


@pytest.fixture
def core(tmp_path: pathlib.Path) -> Iterator[Core]:
    path = tmp_path / "store"
    path.write_bytes(bytes(CAPACITY_BYTES))
    core = Core()
    core.store = Store(core, str(path), CAPACITY_BYTES)  # type: ignore[arg-type]
    yield core
    core.drain()
    core.store.close()


def put(core: Core, object_id: bytes, value: Any) -> bool:
    return core.store.create(object_id, serialization.serialize(value), OWNER)[1]


def get(core: Core, object_id: bytes) -> Any:
    """Like a get: the count of the fetch goes once the value stands on its own."""
    pin = core.store.fetch(object_id, [], None)
    try:
        return core.store.read(pin)[0]
    finally:
        core.released.add(pin)


def much_later(core: Core) -> None:
    core.drain()
    core.store.tick(float("inf"))


@pytest.mark.parametrize(
    "value",
    [1, "text" * 1000, {"a": [1, 2]}, np.arange(1000), {"two": [np.zeros(10), np.ones((3, 3))]}],
    ids=repr,
)
def test_what_is_written_is_read(core: Core, value: Any) -> None:
    assert put(core, A, value)
    assert repr(get(core, A)) == repr(value)


def test_objects_do_not_disturb_each_other(core: Core) -> None:
    put(core, A, np.full(100, 1))
    put(core, B, np.full(100, 2))
    assert get(core, A).sum() == 100
    assert get(core, B).sum() == 200


def test_an_array_is_read_in_place_and_cannot_be_written(core: Core) -> None:
    put(core, A, np.arange(10))
    array = get(core, A)
    again = get(core, A)
    assert np.shares_memory(array, again)
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


def test_an_object_is_sealed_after_it_is_written(core: Core) -> None:
    put(core, A, 1)
    assert core.agent.sent == [StoreSeal(A)]


def test_an_object_that_the_node_has_is_not_written_again(core: Core) -> None:
    assert put(core, A, 1)
    assert not put(core, A, 1)


def test_a_full_store(core: Core) -> None:
    core.agent.error = ErrorReply(ErrorKind.FULL, "everything is pinned by worker 7")
    with pytest.raises(exceptions.ObjectStoreFullError, match="pinned by worker 7"):
        put(core, A, 1)


def test_a_write_that_fails_leaves_nothing(core: Core) -> None:
    serialized = serialization.serialize(np.zeros(CAPACITY_BYTES))  # more than the mapping has
    with pytest.raises(ValueError, match="memoryview assignment"):
        core.store.create(A, serialized, OWNER)
    assert core.agent.sent == [StoreAbort(A)]


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (ErrorKind.LOST, exceptions.ObjectLostError),
        (ErrorKind.UNAVAILABLE, exceptions.ObjectLostError),
        (ErrorKind.TIMEOUT, exceptions.GetTimeoutError),
    ],
)
def test_what_cannot_be_fetched(core: Core, kind: str, error: type[Exception]) -> None:
    core.agent.error = ErrorReply(kind, "why")
    with pytest.raises(error):
        core.store.fetch(A, [], 1.0)


# ---------------------------------------------------------------- pins


def test_a_pin_lives_as_long_as_an_array_of_it(core: Core) -> None:
    put(core, A, np.arange(10))
    array = get(core, A)
    view = array[2:5]
    del array
    much_later(core)
    assert core.agent.pins[A] == 1
    assert view.tolist() == [2, 3, 4]
    del view
    much_later(core)
    assert core.agent.pins[A] == 0


def test_freeing_an_object_leaves_what_is_being_read(core: Core) -> None:
    put(core, A, np.arange(10))
    array = get(core, A)
    core.drain()
    core.store.forget([A])
    assert core.agent.pins[A] == 1
    assert array.sum() == 45
    del array
    much_later(core)
    assert core.agent.pins[A] == 0


def test_freeing_an_object_that_nothing_reads_gives_its_pin_back_at_once(core: Core) -> None:
    put(core, A, np.arange(10))
    core.store.forget([A])
    assert core.agent.pins[A] == 0


def test_values_that_were_copied_out_keep_no_pin(core: Core) -> None:
    put(core, A, {"plain": "value" * 100})
    value = get(core, A)
    much_later(core)
    assert core.agent.pins[A] == 0
    assert value["plain"].startswith("value")


def test_a_pin_lingers_a_moment(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("runtime._worker.store.time", types.SimpleNamespace(monotonic=lambda: now))
    put(core, A, 1)
    core.store.tick(now + LINGER_S * 0.9)
    assert core.agent.pins[A] == 1
    core.store.tick(now + LINGER_S * 1.1)
    assert core.agent.pins[A] == 0


def test_one_pin_serves_many_reads(core: Core) -> None:
    put(core, A, np.arange(10))
    arrays = [get(core, A) for _ in range(10)]
    assert core.agent.pins[A] == 1
    arrays.clear()
    much_later(core)
    assert core.agent.pins[A] == 0


def test_an_object_is_fetched_again_after_its_pin_went(core: Core) -> None:
    put(core, A, np.arange(10))
    much_later(core)
    assert get(core, A).sum() == 45
    assert core.agent.pins[A] == 1
    much_later(core)
    assert core.agent.pins[A] == 0


def test_two_threads_that_fetch_at_once_share_a_pin(core: Core) -> None:
    put(core, A, np.arange(10))
    much_later(core)
    answer, inside = core.agent.answer, []

    def answer_and_let_another_in(request: Any) -> Any:
        reply = answer(request)
        if not inside:
            inside.append(True)
            inside.append(get(core, A))
        return reply

    core.agent.answer = answer_and_let_another_in  # type: ignore[method-assign]
    array = get(core, A)
    assert core.agent.pins[A] == 1
    assert np.shares_memory(array, inside[1])
    del array
    inside.clear()
    much_later(core)
    assert core.agent.pins[A] == 0


def test_closing_leaves_what_is_still_read(core: Core) -> None:
    put(core, A, np.arange(10))
    array = get(core, A)
    core.store.close()
    assert array.sum() == 45
