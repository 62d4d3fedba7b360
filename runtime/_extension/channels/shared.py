"""What the writing end of a channel shares with the threads that serve its readers."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Protocol

from . import frames
from .errors import ChannelClosedError, ChannelError, PeerLostError, dump_failure, load_failure
from .memory import Geometry, WriterMemory

LINGER_S = 30.0


class Link(Protocol):
    """The way to one reader that has come. Its methods do not block for long."""

    def closed(self, final: int) -> None:
        """The writer has closed after `final` values."""

    def failed(self, failure: bytes) -> None:
        """The channel has failed."""


class LocalLink:
    """To a reader on this node: a socket for what happens seldom."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def closed(self, final: int) -> None:
        self._say(frames.CLOSED, frames.COUNT.pack(final))
        try:
            self._sock.shutdown(
                socket.SHUT_RDWR
            )  # the reader has the memory; the listener's thread closes it
        except OSError:
            pass

    def failed(self, failure: bytes) -> None:
        self._say(frames.FAILED, failure)

    def _say(self, kind: int, payload: bytes) -> None:
        try:
            frames.send(self._sock, kind, payload)
        except OSError:
            pass  # it is gone itself


class SharedChannel:
    """One channel in its writer's process.

    Attributes:
        data_fds: for each reader an eventfd that counts the values written.
        taken_fds: for each reader an eventfd that counts the values taken.
        news_fd: wakes the writer when the channel fails.
        failure: the error, as `dump_failure` wrote it: the error itself would keep the frames that it passed alive, and
            with them values that lie in the memory.
    """

    def __init__(
        self,
        channel_id: bytes,
        name: str,
        readers: tuple[str, ...],
        geometry: Geometry,
        on_failure: Callable[[ChannelError], None] | None = None,
    ) -> None:
        self.channel_id = channel_id
        self.token = os.urandom(16)
        self.name = name
        self.readers = readers
        self.geometry = geometry
        self.memory = WriterMemory(geometry)
        flags = os.EFD_NONBLOCK | os.EFD_CLOEXEC
        self.data_fds = [os.eventfd(0, flags) for _ in readers]
        self.taken_fds = [os.eventfd(0, flags) for _ in readers]
        self.news_fd = os.eventfd(0, flags)
        self.failure: bytes | None = None
        self._on_failure = on_failure
        self.final: int | None = None
        self.closed_at = 0.0
        self._links: dict[int, Link] = {}
        self._come: set[int] = set()
        self._greeted: set[int] = set()  # others know nothing yet: what happens is told after the greeting
        self._lock = threading.Lock()
        self._is_released = False

    # ------------------------------------------------------------ readers come and go

    def attach(self, index: int, link: Link) -> str:
        """A reader has come. Returns why it is refused, or ""."""
        with self._lock:
            if index in self._come:
                return f"{self.readers[index]!r} reads {self.name!r} already"
            if self._is_released:
                return f"{self.name!r} was closed"
            self._come.add(index)
            self._links[index] = link
        return ""

    def greeted(self, index: int) -> None:
        """The reader knows all that it needs: tells it what has happened already."""
        with self._lock:
            self._greeted.add(index)
            link = self._links.get(index)
            failure, final = self.failure, self.final
        if link is None:
            return
        if failure is not None:
            link.failed(failure)
        if final is not None:
            link.closed(final)

    def lost(self, index: int, why: str = "its process ended") -> None:
        """A reader's connection has ended. Unless all is over, the channel has failed."""
        with self._lock:
            self._links.pop(index, None)
            is_over = self.final is not None or self.failure is not None
        if not is_over:
            self.fail(dump_failure(PeerLostError(self.readers[index], why)))

    def left(self, index: int) -> None:
        """A reader has closed its end."""
        with self._lock:
            self._links.pop(index, None)
            is_over = self.final is not None
        if not is_over:
            error = ChannelClosedError(f"Channel closed: {self.readers[index]!r} reads no more.")
            self.fail(dump_failure(error))

    # ------------------------------------------------------------ the end

    def fail(self, failure: bytes) -> None:
        """Fails every end, unless it has failed before. The reader that said so hears it, too: that ends its own wait
        in another thread."""
        with self._lock:
            if self.failure is not None or self._is_released:
                return
            self.failure = failure
            links = self._told()
            os.eventfd_write(self.news_fd, 1)
        for link in links:
            link.failed(failure)
        if self._on_failure is not None:
            self._on_failure(load_failure(failure))

    def close(self, final: int) -> None:
        """The writer writes no more."""
        with self._lock:
            if self.final is not None:
                return
            self.final = final
            self.closed_at = time.monotonic()
            links = self._told()
        for link in links:
            link.closed(final)

    def _told(self) -> list[Link]:
        """The readers that are told what happens now. Under the lock."""
        return [link for index, link in self._links.items() if index in self._greeted]

    def release_if_over(self, now: float) -> bool:
        """Gives everything up if the writer has closed and no reader needs it. Returns whether that is done.

        Readers that have not come yet may come for `LINGER_S`, if there is anything to read.
        """
        with self._lock:
            if self.final is None or self._links:
                return self._is_released
            awaited = len(self._come) < len(self.readers) and self.final > 0 and self.failure is None
            if self._is_released or (awaited and now < self.closed_at + LINGER_S):
                return self._is_released
            self._is_released = True
        self._close()
        return True

    def close_descriptors(self) -> None:
        """In a forked child, or in place of all else. Does nothing if the channel was released."""
        if not self._is_released:
            self._is_released = True
            self._close()

    def _close(self) -> None:
        self.memory.close()
        for fd in (*self.data_fds, *self.taken_fds, self.news_fd):
            os.close(fd)
