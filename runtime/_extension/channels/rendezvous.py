"""Where a process's channels are opened by their readers, and how an end learns that another is gone.

While a process holds writing ends, a thread of it listens: on an abstract Unix socket, which has no file, and on TCP.
A reader of the same node gets the memory and the eventfds as descriptors; its connection then says only when something
ends. So does the end of a process, killed or not, since the kernel closes its sockets.
"""

from __future__ import annotations

import logging
import os
import selectors
import socket
import struct
import threading
import time
from typing import Any

import msgspec

from runtime._wire.handshake import HandshakeError

from . import frames
from .address import Place
from .forwarding import Forwarder, prove
from .inherited import holders, opening
from .shared import LocalLink, SharedChannel

log = logging.getLogger("runtime")
GREETING_TIMEOUT_S = 10.0
LOOK_S = 1.0
MAX_UNPROVEN = 64
SAY_TIMEOUT = struct.pack("@ll", 2, 0)
"""Seconds and microseconds that the few bytes for a local reader may take. They always fit into its socket."""
_UCRED = struct.Struct("3i")


class Hello(msgspec.Struct, array_like=True, frozen=True):
    """What a reader says first."""

    channel_id: bytes
    token: bytes
    reader: str


class Welcome(msgspec.Struct, array_like=True, frozen=True):
    """What it is told: how the memory is laid out, and which reader it is."""

    capacity: int
    slot_bytes: int
    readers: int
    index: int


_listeners: dict[Place, Listener] = {}
_lock = threading.Lock()


def announce(channel: SharedChannel, place: Place) -> tuple[str, int]:
    """Lets readers open a channel. Returns the names of the Unix socket and of the TCP port (0: none).

    Raises:
        OSError: no socket can be made.
    """
    with _lock:
        listener = _listeners.get(place)
        if listener is None:
            with opening:
                listener = _listeners[place] = Listener(place)
                holders.add(listener)
            threading.Thread(target=listener.serve, name="channels", daemon=True).start()
        listener.channels[channel.channel_id] = channel
        return listener.socket_name, listener.port


def look(place: Place) -> None:
    """Something has ended: the listener sees what can be given up."""
    with _lock:
        listener = _listeners.get(place)
        if listener is not None:
            listener.wake()


class Listener:
    """The thread that greets readers. It ends with the last channel.

    Args:
        place: of this process.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self.channels: dict[bytes, SharedChannel] = {}
        self._unproven: set[socket.socket] = set()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_fd, selectors.EVENT_READ)
        self.socket_name = f"clusterctl-channels-{os.getpid()}-{os.urandom(8).hex()}"
        self._unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._tcp: socket.socket | None = None
        self._connections: dict[socket.socket, _Connection] = {}
        try:
            self._listen(self._unix, "\0" + self.socket_name)
            self.port = 0
            if place.host:
                family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
                self._tcp = socket.socket(family, socket.SOCK_STREAM)
                self._listen(self._tcp, (place.host, 0))
                self.port = self._tcp.getsockname()[1]
        except OSError:
            self._close()
            raise

    def _listen(self, sock: socket.socket, address: Any) -> None:
        sock.bind(address)
        sock.listen(128)
        sock.setblocking(False)
        self._selector.register(sock, selectors.EVENT_READ)

    def wake(self) -> None:
        """Looks at once whether something is over."""
        os.eventfd_write(self._wake_fd, 1)

    def serve(self) -> None:
        """The thread's work."""
        while True:
            for key, _ in self._selector.select(LOOK_S if self._waits() else None):
                try:
                    self._handle(key.fileobj)
                except Exception:
                    log.exception("a channel's connection")
            now = time.monotonic()
            self._drop_silent(now)
            with _lock:
                for channel in [one for one in self.channels.values() if one.release_if_over(now)]:
                    del self.channels[channel.channel_id]
                if not self.channels:
                    del _listeners[self._place]
                    holders.discard(self)
                    self._close()
                    return

    def _waits(self) -> bool:
        """Whether time alone may end something."""
        return any(one.channel is None for one in self._connections.values()) or any(
            channel.final is not None for channel in list(self.channels.values())
        )

    def _handle(self, source: Any) -> None:
        if source == self._wake_fd:
            os.eventfd_read(self._wake_fd)
        elif source is self._unix:
            self._accept(source, self._greet_local)
        elif source is self._tcp:
            self._accept(source, self._greet_remote)
        else:
            self._hear(self._connections[source])

    def _accept(self, listening: Any, greet: Any) -> None:
        try:
            with opening:
                sock, _ = listening.accept()
                greet(sock)
        except (BlockingIOError, InterruptedError, ConnectionError):
            return
        except OSError as error:
            log.warning("cannot accept a reader of a channel (%s); trying again", error)
            time.sleep(0.1)  # too many open files, most likely: the peer waits in the backlog

    # ------------------------------------------------------------ readers of this node

    def _greet_local(self, sock: socket.socket) -> None:
        raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        _, uid, _ = _UCRED.unpack(raw)
        if uid not in (os.getuid(), 0):
            sock.close()
            return
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, SAY_TIMEOUT)
        self._connections[sock] = _Connection(sock)
        self._selector.register(sock, selectors.EVENT_READ)

    def _hear(self, connection: _Connection) -> None:
        """Handles what a local reader says."""
        for kind, payload in connection.received.read():
            channel = connection.channel
            if channel is None:
                if kind != frames.HELLO or not self._welcome_local(connection, payload):
                    self._end(connection)
                    return
            elif kind == frames.FAILED:
                channel.fail(payload)
            elif kind == frames.CLOSED:
                channel.left(connection.index)
                connection.channel = None
                self._end(connection)
                return
        if connection.received.is_over:
            self._end(connection)

    def _welcome_local(self, connection: _Connection, payload: bytes) -> bool:
        channel, index, refusal = self._find(payload)
        sock = connection.sock
        try:
            if channel is None:
                frames.send(sock, frames.REFUSED, refusal.encode())
                return False
            refusal = channel.attach(index, LocalLink(sock))
            if refusal:
                frames.send(sock, frames.REFUSED, refusal.encode())
                return False
            connection.channel, connection.index = channel, index
            fds = [channel.memory.fd, channel.data_fds[index], channel.taken_fds[index]]
            frames.send_with_fds(sock, frames.WELCOME, _welcome(channel, index), fds)
        except OSError:
            return False  # it has gone again
        channel.greeted(index)
        return True

    def _end(self, connection: _Connection) -> None:
        self._selector.unregister(connection.sock)
        del self._connections[connection.sock]
        connection.sock.close()
        if connection.channel is not None:
            connection.channel.lost(connection.index)

    def _drop_silent(self, now: float) -> None:
        for connection in list(self._connections.values()):
            if connection.channel is None and now > connection.came_at + GREETING_TIMEOUT_S:
                self._end(connection)

    def _find(self, payload: bytes | memoryview) -> tuple[SharedChannel | None, int, str]:
        """The channel that a hello names and the reader's index, or why not."""
        hello = msgspec.msgpack.decode(payload, type=Hello)
        with _lock:
            channel = self.channels.get(hello.channel_id)
        if channel is None or channel.token != hello.token:
            return None, 0, "there is no such channel (any more)"
        if hello.reader not in channel.readers:
            return None, 0, f"{channel.name!r} has no reader {hello.reader!r}"
        return channel, channel.readers.index(hello.reader), ""

    # ------------------------------------------------------------ readers of other nodes

    def _greet_remote(self, sock: socket.socket) -> None:
        if len(self._unproven) >= MAX_UNPROVEN:
            sock.close()  # the reader tries again
            return
        self._unproven.add(sock)
        threading.Thread(
            target=self._serve_remote, args=(sock,), name="channel to another node", daemon=True
        ).start()

    def _serve_remote(self, sock: socket.socket) -> None:
        """The whole work of a thread: greets a reader and forwards to it."""
        try:
            forwarder = self._greeted(sock)
        except (HandshakeError, OSError, msgspec.DecodeError) as error:
            log.warning("refused a reader of a channel: %s", error)
            forwarder = None
        finally:
            self._unproven.discard(sock)
        if forwarder is None:
            sock.close()
            return
        forwarder.run()
        look(self._place)

    def _greeted(self, sock: socket.socket) -> Forwarder | None:
        sock.settimeout(GREETING_TIMEOUT_S)
        prove(sock, self._place.secret, is_client=False)
        kind, payload = frames.receive(sock)
        channel, index, refusal = (
            self._find(payload) if kind == frames.HELLO else (None, 0, "say HELLO first")
        )
        if channel is not None:
            forwarder = Forwarder(channel, index, sock)
            refusal = channel.attach(index, forwarder)
            if not refusal:
                sock.settimeout(None)
                try:
                    frames.send(sock, frames.WELCOME, _welcome(channel, index))
                except OSError:
                    pass  # it has gone again: `run` notices
                channel.greeted(index)
                return forwarder
            forwarder.discard()
        frames.send(sock, frames.REFUSED, refusal.encode())
        return None

    def close_descriptors(self) -> None:
        """In a forked child."""
        for sock in self._unproven:
            sock.close()
        self._close()

    def _close(self) -> None:
        """At the end: threads still greet those that are unproven, and close their sockets themselves."""
        self._selector.close()
        self._unix.close()
        if self._tcp is not None:
            self._tcp.close()
        for sock in self._connections:
            sock.close()
        os.close(self._wake_fd)


class _Connection:
    """A local reader's connection; without a channel before it is greeted."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.received = frames.FrameReader(sock)
        self.came_at = time.monotonic()
        self.channel: SharedChannel | None = None
        self.index = 0


def _welcome(channel: SharedChannel, index: int) -> bytes:
    geometry = channel.geometry
    return msgspec.msgpack.encode(Welcome(geometry.capacity, geometry.slot_bytes, geometry.readers, index))


def _forget_parent() -> None:
    """In a forked child: the threads are not there, and one of them may have held the lock."""
    global _lock
    _lock = threading.Lock()
    _listeners.clear()


os.register_at_fork(after_in_child=_forget_parent)
