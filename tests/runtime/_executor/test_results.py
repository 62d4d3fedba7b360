"""What a worker keeps for its callers, and the values of generators."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from runtime._core import ids
from runtime._executor.results import ItemSender, Results
from runtime._wire.messages.base import WorkerAddress
from runtime._wire.messages.worker import Push, StreamItem

ADDRESS = WorkerAddress(b"w" * 28, b"n" * 28, "path")
TASK = b"t" * 24


class Caller:
    """A connection that remembers what it was sent."""

    def __init__(self) -> None:
        self.closed = False
        self.peer = ADDRESS
        self.sent: list[Any] = []

    def send(self, message: Any) -> None:
        self.sent.append(message)


class Owner:
    """An owner's side that counts what it releases."""

    pack = None

    def __init__(self) -> None:
        self.held: list[Any] = []
        self.released: list[Any] = []
        self.hold = self.held.extend
        self.release = self.released.append


def entry() -> Any:
    return SimpleNamespace()


def push(attempt: int = 0) -> Push:
    return Push(TASK, b"", "method", None, [], -1, attempt=attempt)


@pytest.fixture
def owner() -> Owner:
    return Owner()


@pytest.fixture
def results(owner: Owner) -> Results:
    links: Any = SimpleNamespace(lock=threading.RLock(), address=ADDRESS)
    return Results(links, owner)  # type: ignore[arg-type]


def test_one_caller_releases_nothing_of_another_whose_call_has_the_same_id(
    owner: Owner, results: Results
) -> None:
    one, other = Caller(), Caller()
    mine, theirs = entry(), entry()
    results.hold(one, push(), [mine])  # type: ignore[arg-type]
    results.hold(other, push(), [theirs])  # type: ignore[arg-type]
    results.release(one, TASK)  # type: ignore[arg-type]
    assert owner.released == [mine]
    assert results.lends
    results.caller_lost(other)  # type: ignore[arg-type]
    assert owner.released == [mine, theirs]
    assert not results.lends


def test_one_attempt_is_released_by_itself(owner: Owner, results: Results) -> None:
    caller = Caller()
    first, again, second = entry(), entry(), entry()
    for attempt, held in ((0, first), (0, again), (1, second)):
        results.hold(caller, push(attempt), [held])  # type: ignore[arg-type]
    results.release(caller, TASK, 0)  # type: ignore[arg-type]
    assert owner.released == [first, again]
    results.release(caller, TASK)  # type: ignore[arg-type]
    assert owner.released == [first, again, second]
    assert not results.lends


def test_a_generator_that_yields_too_much_is_told_so(
    owner: Owner, results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ids, "MAX_STREAM_ITEMS", 2)
    caller = Caller()
    sender = ItemSender(owner, results, caller, push(), None)  # type: ignore[arg-type]
    sender.send_one(1)
    sender.send_one(2)
    with pytest.raises(ValueError, match="yielded more than 2 values"):
        sender.send_one(3)
    assert [type(message) for message in caller.sent] == [StreamItem, StreamItem]
