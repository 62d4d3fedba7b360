"""A source that runs ahead in a thread: order, bounds, errors, and an end in every way that a consumer may end."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from runtime.data._iteration.prefetch import Cancellation, Feed, ahead
from tests.polling import eventually


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "prefetch"]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    assert not threads()


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("items", [0, 1, 5000])
def test_all_items_come_in_order(groups: int, items: int) -> None:
    assert list(ahead(lambda feed: range(items), groups)) == list(range(items))


@pytest.mark.parametrize("groups", [1, 3])
def test_so_many_groups_are_prepared_ahead(groups: int) -> None:
    made: list[int] = []

    def begin(feed: Feed) -> Iterator[int]:
        for item in range(50):
            feed.flush()  # as for items that are slow to make
            made.append(item)
            yield item

    for item in ahead(begin, groups):
        expected = min(50, item + 1 + groups)
        eventually(lambda expected=expected: len(made) == expected)  # type: ignore[misc]
        assert len(made) <= item + 1 + groups


def test_items_are_handed_over_before_the_source_waits() -> None:
    go = threading.Event()

    def begin(feed: Feed) -> Iterator[int]:
        yield 1
        feed.flush()
        assert go.wait(60)
        yield 2

    items = ahead(begin, 2)
    assert next(items) == 1
    go.set()
    assert list(items) == [2]


def test_an_error_comes_after_the_items_before_it() -> None:
    def begin(feed: Feed) -> Iterable[int]:
        yield from range(3)
        raise KeyError("source")

    items = ahead(begin, 1)
    assert [next(items) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyError, match="source"):
        next(items)


def test_an_error_at_the_beginning() -> None:
    def begin(feed: Feed) -> Iterable[int]:
        raise ValueError("begin")

    with pytest.raises(ValueError, match="begin"):
        next(ahead(begin, 1))


@pytest.mark.parametrize("way", ["close", "drop", "throw"])
def test_the_thread_and_the_source_end_with_the_iterator(way: str) -> None:
    closed = []

    def begin(feed: Feed) -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.append(threading.current_thread().name)

    items = ahead(begin, 1)
    next(items)
    if way == "close":
        items.close()  # type: ignore[attr-defined]
    elif way == "throw":
        with pytest.raises(KeyboardInterrupt):
            items.throw(KeyboardInterrupt())  # type: ignore[attr-defined]
    del items
    assert not threads()
    assert closed == ["prefetch"]


def test_a_source_that_waits_is_cancelled() -> None:
    def begin(feed: Feed) -> Iterator[int]:
        yield 1
        feed.flush()
        arrived = threading.Event()
        feed.cancellation.on_set(arrived.set)
        assert arrived.wait(60)

    items = ahead(begin, 2)
    next(items)
    items.close()  # type: ignore[attr-defined]
    assert not threads()


def test_an_iterator_that_another_thread_drops_ends_its_thread() -> None:
    held: list[Any] = [ahead(lambda feed: iter(int, 1), 1)]
    next(held[0])
    dropper = threading.Thread(target=held.clear)
    dropper.start()
    dropper.join()
    eventually(lambda: not threads())


def test_consumed_items_are_let_go() -> None:
    class Item:
        alive = 0

        def __init__(self) -> None:
            Item.alive += 1

        def __del__(self) -> None:
            Item.alive -= 1

    def begin(feed: Feed) -> Iterator[Item]:
        for _ in range(20):
            feed.flush()
            yield Item()

    for item in ahead(begin, 1):
        assert Item.alive <= 3  # the consumer's, one that is ready, and one that the source still names
        del item


def test_a_callback_after_the_end_is_called_at_once() -> None:
    called = []
    cancellation = Cancellation()
    cancellation.on_set(lambda: called.append(1))
    cancellation.set()
    cancellation.on_set(lambda: called.append(2))
    assert called == [1, 2]


def test_a_program_may_end_in_the_middle() -> None:
    program = (
        "from runtime.data._iteration.prefetch import ahead\n"
        "import itertools\n"
        "items = ahead(lambda feed: itertools.count(), 1)\n"
        "print(next(items))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")
