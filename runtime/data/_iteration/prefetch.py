"""Prepares what a consumer iterates over in a thread, ahead of the consumer."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from queue import Empty, SimpleQueue
from typing import Any

GROUP_S = 0.001
"""Items are handed over in groups that took so long to prepare: a switch of threads costs tens of microseconds."""

CALLBACKS = 4
"""A source has at most so many waits at a time."""
PATIENCE_S = 0.002
"""A consumer that waits longer may do something else than to wait for the thread only."""


class Cancellation:
    """Tells a source in one thread that a consumer in another needs nothing more. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], Any]] = []
        self._is_set = False

    @property
    def is_set(self) -> bool:
        """Whether the consumer is gone."""
        return self._is_set

    def on_set(self, callback: Callable[[], Any]) -> None:
        """Has a wait of the source ended when the consumer is gone; at once if it already is."""
        with self._lock:
            if not self._is_set:
                self._callbacks.append(callback)
                del self._callbacks[:-CALLBACKS]  # earlier waits are over
                return
        callback()

    def set(self) -> None:
        """The consumer is gone."""
        with self._lock:
            self._is_set = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


class Feed:
    """What a source gets: `flush` before it waits, and `cancellation` to hear that it can stop waiting."""

    def __init__(self, groups: int) -> None:
        """
        Args:
            groups: how many are prepared at most before the consumer asks for them, at least 1.
        """
        self.cancellation = Cancellation()
        self._ready: SimpleQueue[tuple[deque[Any], bool]] = SimpleQueue()
        self._free = threading.Semaphore(groups - 1)
        self._group: deque[Any] = deque()
        self._begun_s = 0.0
        self._error: BaseException | None = None
        self.bell: Callable[[], Any] | None = None
        """Called after a group is handed over."""

    def flush(self) -> None:
        """Hands over what has been prepared; then waits until more is wanted."""
        if self._group:
            group, self._group = self._group, deque()
            self._hand_over(group, False)
            del group  # or the consumer's last items would be held here
            self._free.acquire()
        if self.cancellation.is_set:
            raise _Cancelled

    def flushing(self, blocks: Iterator[Any]) -> Iterator[Any]:
        """The blocks; `flush` is called before each is waited for."""
        self.flush()
        for block in blocks:
            yield block
            del block
            self.flush()

    def run(self, begin: Callable[[Feed], Iterable[Any]]) -> None:
        """Prepares all items; in the thread."""
        try:
            self._begun_s = time.perf_counter()
            for item in begin(self):
                self._group.append(item)
                del item
                if time.perf_counter() - self._begun_s >= GROUP_S:
                    self.flush()
                    self._begun_s = time.perf_counter()
        except _Cancelled:
            pass
        except BaseException as error:
            self._error = error
        finally:
            self._hand_over(self._group, True)

    def _hand_over(self, group: deque[Any], is_last: bool) -> None:
        self._ready.put((group, is_last))
        bell = self.bell
        if bell is not None:
            bell()

    @property
    def is_ready(self) -> bool:
        """Whether there is something for the consumer."""
        return not self._ready.empty()

    def items(self, wait: Callable[[Feed], Any] | None = None) -> Iterator[Any]:
        """The items as they come; in the consumer's thread.

        Args:
            wait: see `ahead`.

        Raises:
            BaseException: that of the source, after the items before it.
        """
        has_ended = False
        while not has_ended:
            group, has_ended = self._take(wait)
            self._free.release()
            while group:
                yield group.popleft()
        if self._error is not None:
            raise self._error

    def _take(self, wait: Callable[[Feed], Any] | None) -> tuple[deque[Any], bool]:
        if wait is None:
            return self._ready.get()
        try:
            return self._ready.get(timeout=PATIENCE_S)
        except Empty:
            wait(self)
            return self._ready.get()

    def cancel(self) -> None:
        """Ends the thread, which may wait for room, or for the source."""
        self.cancellation.set()
        self._free.release()


class _Cancelled(Exception):
    """The consumer is gone."""


_running: weakref.WeakKeyDictionary[Feed, threading.Thread] = weakref.WeakKeyDictionary()
EXIT_S = 5.0
"""How long the interpreter's exit waits for such a thread, which may be in a function of the user."""


def ahead(
    begin: Callable[[Feed], Iterable[Any]], groups: int, wait: Callable[[Feed], Any] | None = None
) -> Iterator[Any]:
    """The items of `begin(feed)` in order, prepared in a thread that ends with this iterator.

    Args:
        begin: called in the thread. Its iterable calls `feed.flush()` before it waits for something.
        groups: how many groups of items (`GROUP_S`) are prepared before they are needed, at least 1.
        wait: how the consumer waits until `feed.is_ready`, which is when `feed.bell` is called. It may return earlier.
    """
    feed = Feed(groups)
    thread = threading.Thread(target=feed.run, args=(begin,), name="prefetch", daemon=True)
    consumer = threading.get_ident()
    _running[feed] = thread
    thread.start()
    try:
        yield from feed.items(wait)
    finally:
        feed.cancel()
        # The garbage collector may close this in any thread, also one that the source waits for.
        if threading.get_ident() == consumer:
            thread.join()


def is_preparing() -> bool:
    """Whether the calling thread prepares items for a consumer in another one."""
    return threading.current_thread() in list(_running.values())


@atexit.register
def _cancel_all() -> None:
    """Ends the threads of iterators that somebody still holds, before the interpreter goes away under them."""
    for feed, thread in list(_running.items()):
        feed.cancel()
        thread.join(EXIT_S)
