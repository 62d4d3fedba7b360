"""Who may yield, who must wait, and who is asked to make room."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from runtime._executor.backpressure import Backpressure, Gate
from runtime._owner.context import Execution
from runtime._wire.messages.worker import Push, StreamConsumed, StreamOptions, StreamPaused


class Connection:
    """A caller that remembers what it was told."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.closed = False

    def send(self, message: Any) -> None:
        self.sent.append(message)


class Links:
    """A worker whose waits end when `during_wait` has run."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.pump = SimpleNamespace(flush_all=lambda: None, wake=lambda: None)
        self.during_wait: list[Any] = []

    def wait(self, ready: Any, _timeout_s: float | None) -> bool:
        while not ready():
            self.during_wait.pop(0)()
        return True


@pytest.fixture
def links() -> Links:
    return Links()


@pytest.fixture
def pressure(links: Links) -> Backpressure:
    return Backpressure(links)  # type: ignore[arg-type]


@pytest.fixture
def caller() -> Connection:
    CALLER.sent.clear()
    CALLER.closed = False
    return CALLER


def execution() -> Execution:
    return Execution(b"t", "", "", None)


CALLER = Connection()


def gate(
    pressure: Backpressure, caller: Connection, name: bytes = b"s", limit: int = -1, step: int = 1
) -> Gate:
    push = Push(name, b"", "", None, [], -1, stream=StreamOptions(limit, step))
    made = pressure.gate(caller, push)  # type: ignore[arg-type]
    assert made is not None
    return made


def consumed(pressure: Backpressure, count: int, name: bytes = b"s") -> None:
    pressure.on_consumed(CALLER, StreamConsumed(name, count), 0)  # type: ignore[arg-type]


def test_without_a_limit_there_is_no_gate(pressure: Backpressure, caller: Connection) -> None:
    assert pressure.gate(caller, Push(b"s", b"", "", None, [], -1)) is None  # type: ignore[arg-type]


def test_it_waits_when_the_limit_is_reached(links: Links, pressure: Backpressure, caller: Connection) -> None:
    stream = gate(pressure, caller, limit=2)
    for _ in range(2):
        pressure.wait(stream, execution())
        stream.yielded()
    assert caller.sent == []
    links.during_wait = [lambda: consumed(pressure, 1)]
    pressure.wait(stream, execution())
    assert caller.sent == [StreamPaused(b"s", 0)]
    assert stream.waiting == 2


def sized(pressure: Backpressure, caller: Connection, limit_bytes: int, limit: int = -1) -> Gate:
    push = Push(b"s", b"", "", None, [], -1, stream=StreamOptions(limit, 1, limit_bytes))
    made = pressure.gate(caller, push)  # type: ignore[arg-type]
    assert made is not None
    return made


def yields(pressure: Backpressure, stream: Gate, size_bytes: int) -> None:
    pressure.wait(stream, execution())
    pressure.sending(stream, size_bytes)
    stream.yielded()


def test_a_limit_in_bytes(links: Links, pressure: Backpressure, caller: Connection) -> None:
    stream = sized(pressure, caller, 100)
    for size in (60, 60):  # one value may exceed it
        yields(pressure, stream, size)
    links.during_wait = [lambda: consumed(pressure, 1)]
    yields(pressure, stream, 200)
    assert caller.sent == [StreamPaused(b"s", 0)]
    assert stream.unread_bytes == 260
    links.during_wait = [lambda: consumed(pressure, 2), lambda: consumed(pressure, 3)]
    yields(pressure, stream, 1)
    assert caller.sent[1:] == [StreamPaused(b"s", 1), StreamPaused(b"s", 2)]
    assert stream.unread_bytes == 1


def test_both_limits_hold(links: Links, pressure: Backpressure, caller: Connection) -> None:
    stream = sized(pressure, caller, 1000, limit=2)
    for _ in range(2):
        yields(pressure, stream, 1)
    links.during_wait = [lambda: consumed(pressure, 1)]
    yields(pressure, stream, 1)
    assert caller.sent == [StreamPaused(b"s", 0)]


def test_a_value_that_is_taken_before_its_yield_is_over_counts_no_more(
    pressure: Backpressure, caller: Connection
) -> None:
    stream = sized(pressure, caller, 10)
    pressure.wait(stream, execution())
    pressure.sending(stream, 50)
    consumed(pressure, 1)
    stream.yielded()
    assert stream.unread_bytes == 0
    yields(pressure, stream, 50)
    assert caller.sent == []


@pytest.mark.parametrize("loses", ["caller", "interest"])
def test_bytes_that_nobody_wants_do_not_count(
    links: Links, pressure: Backpressure, caller: Connection, loses: str
) -> None:
    stream = sized(pressure, caller, 10)
    yields(pressure, stream, 50)
    if loses == "caller":
        pressure.caller_lost(caller)  # type: ignore[arg-type]
    else:
        consumed(pressure, -1)
    for _ in range(5):
        yields(pressure, stream, 50)
    assert stream.unread_bytes == 0


def test_several_objects_per_yield_count_one_by_one(
    links: Links, pressure: Backpressure, caller: Connection
) -> None:
    stream = gate(pressure, caller, limit=3, step=2)
    for _ in range(2):
        pressure.wait(stream, execution())
        stream.yielded()
    links.during_wait = [lambda: consumed(pressure, 1), lambda: consumed(pressure, 2)]
    pressure.wait(stream, execution())
    assert caller.sent == [StreamPaused(b"s", 0), StreamPaused(b"s", 1)]


def test_nobody_wants_more(links: Links, pressure: Backpressure, caller: Connection) -> None:
    stream = gate(pressure, caller, limit=1)
    pressure.wait(stream, execution())
    stream.yielded()
    links.during_wait = [lambda: consumed(pressure, -1)]
    for _ in range(10):
        pressure.wait(stream, execution())
        stream.yielded()


def test_the_caller_dies(links: Links, pressure: Backpressure, caller: Connection) -> None:
    stream = gate(pressure, caller, limit=1)
    pressure.wait(stream, execution())
    stream.yielded()
    links.during_wait = [lambda: pressure.caller_lost(caller)]  # type: ignore[arg-type]
    for _ in range(3):
        pressure.wait(stream, execution())
        stream.yielded()


def test_cancelled_while_it_waits(links: Links, pressure: Backpressure, caller: Connection) -> None:
    stream, running = gate(pressure, caller, limit=1), execution()
    pressure.wait(stream, running)
    stream.yielded()
    links.during_wait = [lambda: setattr(running, "cancelled", True)]
    with pytest.raises(KeyboardInterrupt):
        pressure.wait(stream, running)


def test_a_common_limit_asks_everyone_who_fills_it(
    links: Links, pressure: Backpressure, caller: Connection
) -> None:
    pressure.limit = 2
    first, second = gate(pressure, caller, b"1"), gate(pressure, caller, b"2")
    pressure.wait(first, execution())
    first.yielded()
    pressure.wait(first, execution())
    first.yielded()
    pressure.end(first)  # it still fills the limit
    links.during_wait = [lambda: consumed(pressure, 1, b"1")]
    pressure.wait(second, execution())
    assert caller.sent == [StreamPaused(b"1", 0)]
    second.yielded()
    links.during_wait = [lambda: consumed(pressure, 1, b"2")]
    pressure.wait(second, execution())
    assert caller.sent[1:] == [StreamPaused(b"1", 1), StreamPaused(b"2", 0)]


def test_room_that_was_reserved_and_not_used_is_free(pressure: Backpressure, caller: Connection) -> None:
    pressure.limit = 1
    first, second = gate(pressure, caller, b"1"), gate(pressure, caller, b"2")
    pressure.wait(first, execution())
    pressure.end(first)
    pressure.wait(second, execution())
    assert caller.sent == []


def test_what_one_caller_has_taken_makes_no_room_in_anothers_stream_of_the_same_id(
    links: Links, pressure: Backpressure, caller: Connection
) -> None:
    mine, other = gate(pressure, caller, limit=1), gate(pressure, Connection(), limit=1)
    for stream in (mine, other):
        pressure.wait(stream, execution())
        stream.yielded()
    consumed(pressure, 1)
    assert (mine.waiting, other.waiting) == (0, 1)
    pressure.end(mine)
    pressure.caller_lost(other.connection)
    assert other.waiting == 0  # it is still known
