"""Brings a channel to a reader on another node: reads the ring like a reader of this node and sends what it reads."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading

from runtime._wire.handshake import GREETING_BYTES, PROOF_BYTES, Handshake, HandshakeError

from . import frames
from .inherited import holders, opening
from .memory import ReaderMemory
from .positions import ReaderPositions
from .shared import SharedChannel

KEEPALIVE = ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 2), (socket.TCP_KEEPCNT, 3))
UNACKNOWLEDGED_MS = 15_000
"""A node that vanishes without a word breaks its connections after about this time."""


def prove(sock: socket.socket, secret: bytes, is_client: bool) -> None:
    """Both sides of a new TCP connection prove that they know the cluster's secret. Within the socket's timeout.

    Raises:
        HandshakeError, OSError: the peer did not.
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE:
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS)
    handshake = Handshake(secret, is_client)
    sock.sendall(handshake.greeting)
    sock.sendall(handshake.proof(_exactly(sock, GREETING_BYTES)))
    handshake.verify(_exactly(sock, PROOF_BYTES))


def _exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = sock.recv(count - len(data))
        if not more:
            raise HandshakeError("the peer closed the connection before it proved the secret")
        data += more
    return data


class Forwarder:
    """One reader on another node. `run` is a thread's whole work.

    Args:
        channel: with this forwarder attached as the reader `index`.
        sock: connected and proven; taken over.
    """

    def __init__(self, channel: SharedChannel, index: int, sock: socket.socket) -> None:
        self._channel = channel
        self._index = index
        self._sock = sock
        self._final: int | None = None
        self._failure: bytes | None = None
        self._lock = threading.Lock()
        self._is_over = False
        with opening:
            self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            try:
                self._memory = ReaderMemory(os.dup(channel.memory.fd), channel.geometry, index)
            except OSError:
                os.close(self._wake_fd)
                raise
            holders.add(self)

    def closed(self, final: int) -> None:
        """The writer has closed after `final` values. From any thread."""
        self._final = final
        self._wake()

    def failed(self, failure: bytes) -> None:
        """The channel has failed. From any thread."""
        self._failure = failure
        self._wake()

    def _wake(self) -> None:
        with self._lock:
            if not self._is_over:
                os.eventfd_write(self._wake_fd, 1)

    def discard(self) -> None:
        """In place of `run`: the reader was refused."""
        holders.discard(self)
        with self._lock:
            self._is_over = True
            os.close(self._wake_fd)
            self._memory.close()

    def close_descriptors(self) -> None:
        """In a forked child."""
        self._sock.close()
        self._memory.close()
        os.close(self._wake_fd)

    def run(self) -> None:
        """Forwards until the reader or the channel ends."""
        why = "its process ended"
        try:
            self._forward()
        except OSError as error:
            why = f"its connection broke: {error}"
        finally:
            self.discard()
            self._sock.close()
            self._channel.lost(self._index, why)

    def _forward(self) -> None:
        channel, memory, sock = self._channel, self._memory, self._sock
        data_fd = channel.data_fds[self._index]
        positions = ReaderPositions(channel.geometry.capacity)
        sent = 0  # values; the reader says later that it has taken them
        said_closed = False
        received = frames.FrameReader(sock)
        poll = select.poll()
        for fd in (data_fd, self._wake_fd, sock.fileno()):
            poll.register(fd, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if self._wake_fd in ready:
                os.eventfd_read(self._wake_fd)
            failure = self._failure
            if data_fd in ready or failure is not None:
                # What was written before the channel failed was counted before it.
                with contextlib.suppress(BlockingIOError):
                    positions.publish(os.eventfd_read(data_fd))
            while sent < positions.published:
                kind, view, block = memory.read(sent % channel.geometry.capacity)
                frames.send(sock, frames.VALUE + kind, view)
                sent += 1
                if block is not None:
                    block.release()
            if failure is not None:
                frames.send(sock, frames.FAILED, failure)
                return
            if sent == self._final and not said_closed:
                said_closed = True
                frames.send(sock, frames.CLOSED, frames.COUNT.pack(sent))
            if sock.fileno() in ready and self._hear(received, positions):
                return

    def _hear(self, received: frames.FrameReader, positions: ReaderPositions) -> bool:
        """Whether the reader has gone."""
        for kind, payload in received.read():
            if kind == frames.TAKEN:
                (count,) = frames.COUNT.unpack(payload)
                for _ in range(count):
                    positions.take()
                os.eventfd_write(self._channel.taken_fds[self._index], count)
            elif kind == frames.FAILED:
                self._channel.fail(payload)
            elif kind == frames.CLOSED:
                self._channel.left(self._index)
                return True
        return received.is_over
