"""An end of a channel that reads."""

from __future__ import annotations

import os
import pickle
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

from runtime._owner.unpickling import unpickle
from runtime._wire import serialization

from . import frames
from .address import ChannelAddress, Place, here
from .errors import (
    ChannelClosedError,
    ChannelError,
    ChannelTimeoutError,
    PeerLostError,
    load_failure,
)
from .inherited import holders
from .memory import PACKED, PICKLE, PLAIN, Block
from .positions import ReaderPositions
from .sources import Source, open_source
from .waiting import Ready, Waiter, deadline_of
from .writer import failure_of


def open_reader(
    address: ChannelAddress, reader: str, *, timeout_s: float | None, place: Place | None = None
) -> Reader:
    """Opens an end of a channel that another process, or this one, writes. Each end can be opened once.

    Args:
        address: the writer's `address`.
        reader: the name of the end, one of `address.readers`.
        timeout_s: how long to wait for the writer's process; None: until it answers or ends.
        place: where this process is; the default asks its cluster.

    Raises:
        ChannelClosedError: the channel was closed and its values are gone, or the end is open already.
        PeerLostError: the writer's process is gone.
        ChannelTimeoutError: it does not answer in time.
    """
    return Reader(address, reader, open_source(address, reader, timeout_s, place or here()))


class Reader:
    """An end that reads; made by `open_reader`. Calls of several threads follow each other.

    Values that have come are delivered first, whatever happens. When a call would wait, it raises `ChannelClosedError`
    once the writer has closed, `PeerLostError` once a process that holds an end is gone, and `ChannelFailedError` once
    an end was failed.

    Attributes:
        address: of the channel.
        name: of this end.
    """

    def __init__(self, address: ChannelAddress, name: str, source: Source) -> None:
        self.address = address
        self.name = name
        self._source = source
        self._positions = ReaderPositions(source.capacity)
        self._waiter = Waiter((source.data_fd, source.news_fd))
        self._has_news = False  # whether one of the following, or the end of the ring, may end a wait
        self._is_lost = False  # the connection to the writer's process has ended
        self._failure: bytes | None = None  # see `SharedChannel.failure`
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._is_closed = False
        holders.add(self)

    def take(self, timeout_s: float | None) -> Any:
        """The next value. Arrays in it are read-only and, if they are large, lie in the shared memory: they stay valid
        as long as they are held, and the writer's memory grows meanwhile.

        Args:
            timeout_s: how long to wait for it; None: until it comes or the channel ends.

        Raises:
            ChannelTimeoutError: none came in time.
            RaySystemError: it cannot be unpickled here. The next call gets the value after it.
            ChannelError: see the class.
        """
        return self.take_until(deadline_of(timeout_s))

    def take_until(self, deadline: float | None) -> Any:
        """`take`, waiting until a monotonic time; None: without a limit."""
        with self._lock:
            if self._is_closed or not self._positions.available:
                if self._has_news:
                    self._check()
                while not self._came(self._waiter.wait(deadline)):
                    pass
            return self._take()

    async def take_async(self, timeout_s: float | None) -> Any:
        """`take` for an event loop; one call at a time."""
        deadline = deadline_of(timeout_s)
        while not self._positions.available:
            self._check()
            ready = await self._waiter.wait_async(deadline)
            with self._lock:
                if self._came(ready):
                    break
        with self._lock:
            if self._is_closed:
                self._check()
            return self._take()

    @property
    def available(self) -> bool:
        """Whether `take` would return, or raise, at once."""
        return self.ended() is not None or bool(self._positions.available)

    def ended(self) -> ChannelError | None:
        """What `take` would raise at once; None: it would return a value, or wait."""
        with self._lock:
            try:
                if not self._positions.available:
                    self._check()
                    ready = self._waiter.wait(0.0)
                    if ready:
                        self._came(ready)
            except ChannelError as error:
                return error
            return None

    def _check(self) -> None:
        if self._is_closed:
            raise ChannelClosedError(f"Channel closed: {self.address.name!r} was closed at this end.")
        if self._failure is not None:
            raise load_failure(self._failure)
        if self._positions.is_over:
            raise ChannelClosedError(
                f"Channel closed: {self.address.writer!r} has closed {self.address.name!r}."
            )
        if self._is_lost:
            raise PeerLostError(self.address.writer)

    def _came(self, ready: Ready) -> bool:
        """Takes in what has come; whether a value is there."""
        if self._is_closed:
            self._check()
        if not ready:
            raise ChannelTimeoutError(
                f"No value came from {self.address.writer!r} over {self.address.name!r} in time."
            )
        source = self._source
        if source.news_fd in ready:
            self._has_news = True
            events, self._is_lost = source.news()
            for kind, payload in events:
                if kind == frames.CLOSED:
                    self._positions.close(*frames.COUNT.unpack(payload))
                elif kind == frames.FAILED and self._failure is None:
                    self._failure = payload
        # Also if only news has come: what was written before it is counted by now.
        try:
            self._positions.publish(os.eventfd_read(source.data_fd))
        except BlockingIOError:
            pass
        if self._positions.available:
            return True
        self._check()
        return False

    def _take(self) -> Any:
        source = self._source
        kind, view, block = source.read(self._positions.take())
        try:
            if kind == PLAIN:
                return pickle.loads(view)
            if kind == PICKLE:
                return unpickle(view)[0]
            if block is None and kind == PACKED and not view.readonly:
                view = serialization.aligned(bytes(view))
            return _unpacked(view, block)
        finally:
            source.taken()

    def fail(self, cause: BaseException) -> None:
        """Fails the channel: every wait at every end ends with `ChannelFailedError`. Idempotent, from any thread."""
        failure = failure_of(self.name, cause)
        if self._is_closed:
            return
        if self._failure is None:
            self._failure = failure
        self._has_news = True
        self._source.say(frames.FAILED, failure)

    def close(self) -> None:
        """Reads no more; the writer gets `ChannelClosedError` if it goes on. Idempotent, from any thread."""
        if os.getpid() != self._pid or self._is_closed:
            return
        self._is_closed = self._has_news = True
        self._waiter.wake()
        self._source.say(frames.CLOSED, frames.COUNT.pack(self._positions.taken))
        try:
            os.eventfd_write(self._source.data_fd, 1)  # ends a wait of another thread
        except OSError:
            pass
        with self._lock:
            holders.discard(self)
            self._source.close()

    def close_descriptors(self) -> None:
        """In a forked child."""
        self._is_closed = self._has_news = True
        self._source.close_descriptors()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        # When Python ends, threads that it has stopped may hold locks for ever, and the kernel closes everything.
        if not is_ending() and not self.__dict__.get("_is_closed", True):
            self.close()


def _unpacked(view: memoryview, block: Block | None) -> Any:
    """A value with buffers. Its block is free when the last array over it is gone."""
    free: Callable[[], None] = block.release if block is not None else lambda: None
    if block is not None:
        weakref.finalize(view.obj, free).atexit = False
    data, buffers = serialization.read_block(view.toreadonly())
    return unpickle(data, buffers)[0]
