"""A process's view of the object store: what is written is read in place, and pins live as long as what was read.

Everything holds alike for objects that the process places by itself and for those it asks its agent for.
"""

from __future__ import annotations

import gc
import itertools
import pathlib
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from runtime import exceptions
from runtime._owner.store import LINGER_S, Pin, Store
from runtime._owner.store_writer import IDLE_S, REFUSED_S
from runtime._ownership.released import Released
from runtime._wire import serialization
from runtime._wire.messages.base import ErrorKind, ErrorReply, Ok, WorkerAddress
from runtime._wire.messages.node import (
    StoreAbort,
    StoreAdd,
    StoreAllot,
    StoreAllotted,
    StoreCreate,
    StoreFree,
    StorePin,
    StorePinned,
    StoreReturn,
    StoreSeal,
    StoreSettle,
    StoreSpace,
    StoreUnpin,
)

CAPACITY_BYTES = 1 << 20
OWNER = WorkerAddress(b"w" * 28, b"n" * 28, "path")
A, B = b"a" * 28, b"b" * 28


class Agent:
    """The node's side: hands out space, knows what is sealed, counts pins. `allots`: in advance, too."""

    def __init__(self, allots: bool) -> None:
        self.allots = allots
        self.allotted: list[tuple[int, int]] = []
        self.sent: list[Any] = []
        self.spaces: dict[bytes, tuple[int, int]] = {}
        self.pins: dict[bytes, int] = {}
        self.error: ErrorReply | None = None
        self.late = False
        self.asked: list[tuple[Any, Callable[[Any], None]]] = []  # if late: what waits for `catch_up`
        self._next = 0

    def send(self, message: Any) -> None:
        self.sent.append(message)
        if isinstance(message, StoreSeal):
            self.pins[message.object_id] = self.pins.get(message.object_id, 0) + 1
        elif isinstance(message, StoreUnpin):
            for object_id in message.object_ids:
                self.pins[object_id] -= 1
        elif isinstance(message, StoreAdd):
            for object_id, offset, size in message.objects:
                self.spaces[object_id] = offset, size
                self.pins[object_id] = self.pins.get(object_id, 0) + (not message.keeper)
        elif isinstance(message, StoreFree) and message.unpinned:
            for object_id in message.object_ids:
                self.pins[object_id] = 0

    def call(self, request: Any, callback: Callable[[Any], None]) -> None:
        if self.late:
            self.asked.append((request, callback))
        else:
            callback(self.answer(request))

    def catch_up(self) -> None:
        asked, self.asked = self.asked, []
        for request, callback in asked:
            callback(self.answer(request))

    def answer(self, request: Any) -> Any:
        if self.error is not None:
            return self.error
        if isinstance(request, StoreAllot):
            if not self.allots:
                return StoreAllotted([])
            size = -(-request.size_bytes // 64) * 64 * request.count
            self.allotted.append((self._next, size))
            self._next += size
            return StoreAllotted(self.allotted[-1:])
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


class Pump:
    """Who waits gets the answers at once."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def wait(self, ready: Callable[[], Any], _timeout_s: float | None = None) -> bool:
        self._agent.catch_up()
        return bool(ready())


class Core:
    """What the store needs of a process."""

    def __init__(self, allots: bool) -> None:
        self.lock = threading.RLock()
        self.released = Released(lambda: None)
        self.agent = Agent(allots)
        self.pump = Pump(self.agent)
        self.address = OWNER
        self.store: Store
        self.limits: list[tuple[Any, float | None]] = []  # of the calls: the request, and how long it waits

    def call_agent(self, request: Any, timeout_s: float | None = None) -> Any:
        self.limits.append((request, timeout_s))
        return self.agent.answer(request)

    def drain(self) -> None:
        gc.collect(1)  # what this test made; all of the run takes long
        while self.released:
            item = self.released.popleft()
            if isinstance(item, Pin):
                self.store.release(item)


@pytest.fixture(params=[True, False], ids=["allotted", "asked for"])
def core(tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> Iterator[Core]:
    path = tmp_path / "store"
    path.write_bytes(bytes(CAPACITY_BYTES))
    core = Core(allots=request.param)
    core.store = Store(core, core.released, core.drain, str(path), CAPACITY_BYTES)  # type: ignore[arg-type]
    yield core
    core.drain()
    core.store.close()


def put(core: Core, object_id: bytes, value: Any) -> None:
    core.store.put(object_id, serialization.serialize(value))


def told(core: Core, object_id: bytes, value: Any) -> None:
    """Like `put`, and the agent knows of it."""
    put(core, object_id, value)
    core.store.say_all()


def create(core: Core, object_id: bytes, value: Any, **options: Any) -> int:
    """Writes it for another process. Returns where it is pinned for the keeper."""
    return core.store.create(object_id, serialization.serialize(value), OWNER, **options)[1]


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
    put(core, A, value)
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


def test_an_object_that_is_made_again_may_be_there(core: Core) -> None:
    create(core, A, 1)
    assert create(core, A, 1, again=True, keeper=b"k") == -1
    assert get(core, A) == 1


def test_a_full_store(core: Core) -> None:
    core.agent.error = ErrorReply(ErrorKind.FULL, "everything is pinned by worker 7")
    with pytest.raises(exceptions.ObjectStoreFullError, match="pinned by worker 7"):
        put(core, A, 1)


def test_a_write_that_fails_leaves_nothing(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("runtime._wire.serialization.write_block", fails)
        with pytest.raises(KeyboardInterrupt):
            put(core, A, 1)
    assert StoreAbort(A) in core.agent.sent or core.agent.allots
    core.store.tick(0.0)
    assert not any(isinstance(message, StoreAdd | StoreSeal) for message in core.agent.sent)
    told(core, B, 2)
    assert not core.agent.allots or core.agent.spaces[B][0] == core.agent.allotted[0][0]


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


def test_a_fetch_waits_as_long_as_it_is_told(core: Core) -> None:
    told(core, A, 1)
    core.store.forget([A])
    core.released.add(core.store.fetch(A, [], 5.0))
    [(request, waits_s)] = [call for call in core.limits if isinstance(call[0], StorePin)]
    assert request.timeout_s == 5.0
    assert waits_s is not None
    assert waits_s > 5.0


def test_a_fetch_without_a_timeout_waits_for_ever(core: Core) -> None:
    told(core, A, 1)
    core.store.forget([A])
    core.released.add(core.store.fetch(A, [], None))
    [(request, waits_s)] = [call for call in core.limits if isinstance(call[0], StorePin)]
    assert (request.timeout_s, waits_s) == (None, None)


def test_what_is_brought_ahead_may_take_for_ever(core: Core) -> None:
    told(core, A, 1)
    core.store.forget([A])
    core.agent.late = True
    core.store.prefetch(A, [], lambda _error: None)
    assert core.agent.asked[0][0].timeout_s is None
    core.agent.catch_up()


# ---------------------------------------------------------------- pins


def test_a_pin_lives_as_long_as_an_array_of_it(core: Core) -> None:
    told(core, A, np.arange(10))
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
    told(core, A, np.arange(10))
    array = get(core, A)
    core.drain()
    core.store.forget([A])
    assert core.agent.pins[A] == 1
    assert array.sum() == 45
    del array
    much_later(core)
    assert core.agent.pins[A] == 0


def test_freeing_an_object_that_nothing_reads_gives_its_pin_back_at_once(core: Core) -> None:
    told(core, A, np.arange(10))
    core.store.forget([A])
    assert core.agent.pins[A] == 0


def test_values_that_were_copied_out_keep_no_pin(core: Core) -> None:
    told(core, A, {"plain": "value" * 100})
    value = get(core, A)
    much_later(core)
    assert core.agent.pins[A] == 0
    assert value["plain"].startswith("value")


def test_a_pin_lingers_a_moment(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("runtime._owner.store.time", types.SimpleNamespace(monotonic=lambda: now))
    told(core, A, 1)
    core.store.tick(now + LINGER_S * 0.9)
    assert core.agent.pins[A] == 1
    core.store.tick(now + LINGER_S * 1.1)
    assert core.agent.pins[A] == 0


def test_one_pin_serves_many_reads(core: Core) -> None:
    told(core, A, np.arange(10))
    arrays = [get(core, A) for _ in range(10)]
    assert core.agent.pins[A] == 1
    arrays.clear()
    much_later(core)
    assert core.agent.pins[A] == 0


def test_an_object_is_fetched_again_after_its_pin_went(core: Core) -> None:
    told(core, A, np.arange(10))
    much_later(core)
    assert get(core, A).sum() == 45
    assert core.agent.pins[A] == 1
    much_later(core)
    assert core.agent.pins[A] == 0


def test_two_threads_that_fetch_at_once_share_a_pin(core: Core) -> None:
    told(core, A, np.arange(10))
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
    told(core, A, np.arange(10))
    array = get(core, A)
    core.store.close()
    assert array.sum() == 45


# ---------------------------------------------------------------- freeing


def test_what_is_freed_and_not_read_goes_with_its_pin(core: Core) -> None:
    told(core, A, np.arange(10))
    core.store.free([A], [b"n"])
    assert core.agent.pins[A] == 0
    assert core.agent.sent[-1] == StoreFree([A], [b"n"], unpinned=True)


def test_what_is_freed_while_it_is_read_goes_when_it_is_not(core: Core) -> None:
    put(core, A, np.arange(10))
    array = get(core, A)
    core.drain()
    core.store.free([A], [b"n"])
    assert core.agent.sent[-1] == StoreFree([A], [b"n"])
    assert core.agent.pins[A] == 1
    put(core, B, np.zeros(10))
    assert array.sum() == 45
    del array
    core.drain()
    assert core.agent.pins[A] == 0


def test_a_value_that_goes_although_it_is_referred_to(core: Core) -> None:
    put(core, A, 1)
    core.store.empty(A, [b"n"])
    assert core.agent.pins[A] == 0
    assert core.agent.sent[-1] == StoreFree([A], [b"n"])


def test_what_another_process_has_pinned_for_us_is_read_without_a_question(core: Core) -> None:
    put(core, A, np.arange(10))
    core.store.say_all()
    offset, size = core.agent.spaces[A]
    much_later(core)
    core.agent.pins[A] += 1
    core.agent.error = ErrorReply(ErrorKind.UNAVAILABLE, "nobody is asked")
    core.store.take_over(A, offset, size)
    assert get(core, A).sum() == 45
    much_later(core)
    assert core.agent.pins[A] == 0


# ---------------------------------------------------------------- what the process places by itself


placing = pytest.mark.parametrize("core", [True], indirect=True, ids=["allotted"])


def said(core: Core) -> list[bytes]:
    return [o[0] for message in core.agent.sent if isinstance(message, StoreAdd) for o in message.objects]


@placing
def test_what_was_freed_before_anybody_knew_was_never_there(core: Core) -> None:
    for _ in range(100):
        put(core, A, np.zeros(100))
        core.store.free([A], [b"n"])
    core.store.tick(0.0)
    assert core.agent.sent == []
    assert sum(size for _, size in core.agent.allotted) < 10 * 1000


@placing
def test_an_object_is_said_before_others_meet_it(core: Core) -> None:
    put(core, A, 1)
    assert said(core) == []
    core.store.say_all()
    assert said(core) == [A]
    core.store.say_all()
    assert said(core) == [A]


@placing
def test_nothing_more_is_asked_for_while_an_answer_is_under_way(core: Core) -> None:
    core.agent.late = True
    asked = []
    for number in range(60):
        before = len(core.agent.allotted)
        put(core, bytes([number]) * 28, np.zeros(100))
        asked.append(len(core.agent.asked))
        assert len(core.agent.allotted) - before <= 1
    assert max(asked) == 1
    assert len(core.agent.allotted) < 20


@placing
def test_space_that_was_asked_for_smaller_objects_is_no_reason_to_give_up(core: Core) -> None:
    core.agent.late = True
    numbers = itertools.count()
    while not core.agent.asked:
        put(core, bytes([next(numbers)]) * 28, 1)
    put(core, A, np.zeros(1000))
    core.agent.catch_up()
    assert not [message for message in core.agent.sent if isinstance(message, StoreSeal)]


@placing
def test_an_object_for_somebody_else_is_said_at_once(core: Core) -> None:
    offset = create(core, A, 1, keeper=b"k")
    assert [message.keeper for message in core.agent.sent] == [b"k"]
    assert core.agent.spaces[A][0] == offset
    assert core.agent.pins[A] == 0


@placing
def test_an_object_is_said_before_its_pin_goes(core: Core) -> None:
    put(core, A, 1)
    core.store.forget([A])
    assert [type(message) for message in core.agent.sent] == [StoreAdd, StoreUnpin]


@placing
def test_who_keeps_placing_asks_for_more_at_a_time(core: Core) -> None:
    for number in range(60):
        put(core, bytes([number]) * 28, np.zeros(100))
    assert len(core.agent.allotted) < 20
    core.store.say_all()
    spaces = sorted(core.agent.spaces.values())
    assert len(spaces) == 60
    assert all(first + size <= second for (first, size), (second, _) in itertools.pairwise(spaces))


@placing
def test_space_that_is_not_needed_goes_back(core: Core) -> None:
    for number in range(4):
        told(core, bytes([number]) * 28, np.zeros(100))
    core.store.tick(1.0)
    core.store.tick(1.0 + IDLE_S / 2)
    assert not any(isinstance(message, StoreReturn) for message in core.agent.sent)
    core.store.tick(1.1 + IDLE_S)
    (returned,) = [message for message in core.agent.sent if isinstance(message, StoreReturn)]
    used = sum(-(-size // 64) * 64 for _, size in core.agent.spaces.values())
    assert sum(size for _, size in returned.ranges) + used == sum(size for _, size in core.agent.allotted)


@placing
def test_when_memory_is_short_space_goes_back_and_each_object_is_asked_for(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    clock = types.SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr("runtime._owner.store_writer.time", clock)
    put(core, A, 1)
    answers: list[Any] = []
    connection = types.SimpleNamespace(reply=lambda message, number: answers.append((message, number)))
    core.store.on_settle(connection, StoreSettle(True), 7)  # type: ignore[arg-type]
    assert answers == [(Ok(), 7)]
    assert said(core) == [A]
    asked = len(core.agent.allotted)
    put(core, B, 1)
    assert StoreSeal(B) in core.agent.sent
    assert len(core.agent.allotted) == asked
    now += 2 * REFUSED_S
    put(core, b"c" * 28, 1)
    assert len(core.agent.allotted) == asked + 1


@placing
def test_a_large_object_is_asked_for(core: Core) -> None:
    put(core, A, np.zeros(CAPACITY_BYTES // 256))
    assert core.agent.sent == [StoreSeal(A)]


def test_an_object_that_is_there_already_was_made_by_an_earlier_attempt(core: Core) -> None:
    core.agent.error = ErrorReply(ErrorKind.EXISTS, "it is sealed")
    serialized = serialization.serialize(np.zeros(2000))
    assert core.store.create(A, serialized, OWNER, again=True)[1] == -1


def test_an_id_that_another_owner_has_is_an_error(core: Core) -> None:
    core.agent.error = ErrorReply(ErrorKind.CLASH, "two owners")
    with pytest.raises(exceptions.RaySystemError, match="two owners"):
        core.store.create(A, serialization.serialize(np.zeros(2000)), OWNER, again=True)
    with pytest.raises(exceptions.RaySystemError, match="two owners"):
        core.store.fetch(A, [], None)
