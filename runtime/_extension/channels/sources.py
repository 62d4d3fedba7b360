"""Where a reader's values come from: the memory of its node, or a connection to the writer's."""

from __future__ import annotations

import functools
import os
import socket
import threading
import time
from collections import deque
from typing import Protocol

import msgspec

from runtime._wire.handshake import HandshakeError

from . import frames
from .address import ChannelAddress, Place
from .errors import ChannelClosedError, ChannelTimeoutError, PeerLostError
from .forwarding import prove
from .memory import Block, Geometry, ReaderMemory
from .rendezvous import Hello, Welcome
from .waiting import deadline_of

RETRY_S = 0.05


class Source(Protocol):
    """Where values come from.

    Attributes:
        capacity: of the ring.
        data_fd: an eventfd that counts the values that have come.
        news_fd: readable when there is something in `news`.
    """

    capacity: int
    data_fd: int
    news_fd: int

    def read(self, slot: int) -> tuple[int, memoryview, Block | None]:
        """See `ReaderMemory.read`."""

    def taken(self) -> None:
        """One more value was taken, and its slot may be reused."""

    def news(self) -> tuple[list[tuple[int, bytes]], bool]:
        """Frames that are no values, and whether the writer's side is gone."""

    def say(self, kind: int, payload: bytes) -> None:
        """Tells the writer's process something; not, if it is gone."""

    def close(self) -> None:
        """Gives everything up."""

    def close_descriptors(self) -> None:
        """The same in a forked child."""


class LocalSource:
    """The memory of this node.

    Args:
        sock: the connection to the writer's process.
        welcome: its answer.
        fds: the memory and both eventfds, taken over.
    """

    def __init__(self, sock: socket.socket, welcome: Welcome, fds: list[int]) -> None:
        memory_fd, self.data_fd, self._taken_fd = fds
        self.taken = functools.partial(os.eventfd_write, self._taken_fd, 1)
        self.capacity = welcome.capacity
        self._sock = sock
        self._received = frames.FrameReader(sock)
        self.news_fd = sock.fileno()
        geometry = Geometry(welcome.capacity, welcome.slot_bytes, welcome.readers)
        self._memory = ReaderMemory(memory_fd, geometry, welcome.index)
        self.read = self._memory.read

    def news(self) -> tuple[list[tuple[int, bytes]], bool]:
        return self._received.read(), self._received.is_over

    def say(self, kind: int, payload: bytes) -> None:
        try:
            frames.send(self._sock, kind, payload)
        except OSError:
            pass

    def close(self) -> None:
        self.close_descriptors()

    def close_descriptors(self) -> None:
        self._sock.close()
        self._memory.close()
        os.close(self.data_fd)
        os.close(self._taken_fd)


class RemoteSource:
    """A TCP connection to the writer's process. A thread reads it, so that the writer is never held up by more than the
    ring's capacity.

    Args:
        sock: connected and welcomed; taken over.
        welcome: the answer.
    """

    def __init__(self, sock: socket.socket, welcome: Welcome) -> None:
        self.capacity = welcome.capacity
        flags = os.EFD_NONBLOCK | os.EFD_CLOEXEC
        self.data_fd = os.eventfd(0, flags)
        self.news_fd = os.eventfd(0, flags)
        self._sock = sock
        self._values: deque[tuple[int, memoryview]] = deque()
        self._news: list[tuple[int, bytes]] = []
        self._is_over = False
        self._lock = threading.Lock()
        self._is_closed = False
        threading.Thread(target=self._receive, name="channel from another node", daemon=True).start()

    def _receive(self) -> None:
        """The thread's work: until the connection ends."""
        try:
            while True:
                kind, payload = frames.receive(self._sock)
                if kind >= frames.VALUE:
                    self._values.append((kind - frames.VALUE, payload))
                    self._ring(self.data_fd)
                else:
                    with self._lock:
                        self._news.append((kind, bytes(payload)))
                    self._ring(self.news_fd)
        except OSError:
            pass
        finally:
            self._sock.close()  # here: nobody else must get its number while this thread may still read
        with self._lock:
            self._is_over = True
        self._ring(self.news_fd)

    def _ring(self, fd: int) -> None:
        with self._lock:
            if not self._is_closed:
                os.eventfd_write(fd, 1)

    def read(self, slot: int) -> tuple[int, memoryview, Block | None]:
        kind, payload = self._values.popleft()
        return kind, payload, None

    def taken(self) -> None:
        self.say(frames.TAKEN, frames.COUNT.pack(1))

    def news(self) -> tuple[list[tuple[int, bytes]], bool]:
        with self._lock:
            news, self._news = self._news, []
            try:
                os.eventfd_read(self.news_fd)
            except BlockingIOError:
                pass
            return news, self._is_over

    def say(self, kind: int, payload: bytes) -> None:
        try:
            frames.send(self._sock, kind, payload)
        except OSError:
            pass

    def close(self) -> None:
        try:
            self._sock.shutdown(socket.SHUT_RDWR)  # ends the thread
        except OSError:
            pass
        with self._lock:
            self._is_closed = True
            os.close(self.data_fd)
            os.close(self.news_fd)

    def close_descriptors(self) -> None:
        self._sock.close()
        os.close(self.data_fd)
        os.close(self.news_fd)


def open_source(address: ChannelAddress, reader: str, timeout_s: float | None, place: Place) -> Source:
    """Opens the end `reader` of a channel.

    Raises:
        ChannelClosedError: the channel is no more, or has no such reader.
        PeerLostError: the writer's process is gone, or it broke every connection until the time was over.
        ChannelTimeoutError: it does not answer in time.
    """
    deadline = deadline_of(timeout_s)
    hello = msgspec.msgpack.encode(Hello(address.channel_id, address.token, reader))
    is_local = address.node_id == place.node_id
    broken: Exception | None = None
    while True:
        try:
            if is_local:
                return _open_local(address, hello, deadline)
            return _open_remote(address, hello, deadline, place)
        except TimeoutError as error:
            if broken is not None:  # and the time ended in another attempt
                raise PeerLostError(address.writer, f"its connection broke: {broken}") from broken
            raise ChannelTimeoutError(
                f"Channel {address.name!r}: the process of {address.writer!r} does not answer."
            ) from error
        except (ConnectionRefusedError, FileNotFoundError) as error:
            raise PeerLostError(address.writer) from error
        except (ConnectionError, HandshakeError, OSError) as error:
            # A crowded listener closes connections before it has greeted them.
            if is_local or (deadline is not None and time.monotonic() + RETRY_S > deadline):
                raise PeerLostError(address.writer, f"its connection broke: {error}") from error
            broken = error
            time.sleep(RETRY_S)


def _open_local(address: ChannelAddress, hello: bytes, deadline: float | None) -> Source:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(_left_s(deadline))
        sock.connect("\0" + address.socket_name)
        frames.send(sock, frames.HELLO, hello)
        kind, payload, fds = frames.receive_with_fds(sock)
        welcome = _welcomed(address, kind, payload)
        sock.settimeout(None)
        return LocalSource(sock, welcome, fds)
    except BaseException:
        sock.close()
        raise


def _open_remote(address: ChannelAddress, hello: bytes, deadline: float | None, place: Place) -> Source:
    if not address.port:
        raise PeerLostError(address.writer, "it cannot be reached from this node")
    sock = socket.create_connection((address.host, address.port), _left_s(deadline))
    try:
        sock.settimeout(_left_s(deadline))
        prove(sock, place.secret, is_client=True)
        frames.send(sock, frames.HELLO, hello)
        kind, payload = frames.receive(sock)
        welcome = _welcomed(address, kind, payload)
        sock.settimeout(None)
        return RemoteSource(sock, welcome)
    except BaseException:
        sock.close()
        raise


def _welcomed(address: ChannelAddress, kind: int, payload: memoryview) -> Welcome:
    if kind == frames.WELCOME:
        return msgspec.msgpack.decode(payload, type=Welcome)
    why = str(payload, errors="replace") if kind == frames.REFUSED else "an unknown answer"
    raise ChannelClosedError(f"Channel {address.name!r} cannot be opened: {why}.")


def _left_s(deadline: float | None) -> float | None:
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
