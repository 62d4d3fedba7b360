"""The sockets of a driver or worker, without an event loop: whoever waits pumps.

A thread that needs something (`Pump.wait`) becomes the leader: it flushes what is buffered, polls, reads and dispatches
until its condition holds, so that between a call and its reply lies no thread hand-off. Other waiting threads follow
and recheck after each round. Only when nobody waits does the background thread lead; it naps while callers are active,
for waking it costs more than the message. Leader/followers: Schmidt et al., "Leader/Followers", PLoP 2000.

All shared state is guarded by `Pump.lock`, which handlers run under.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

from runtime._wire.handshake import GREETING_BYTES, PROOF_BYTES, Handshake, HandshakeError
from runtime._wire.messages.base import ErrorKind, ErrorReply, Message, Request

from .connection import Connection

log = logging.getLogger(__name__)
NAP_S = 0.002
LONG_NAP_S = 0.1
NAPS_BEFORE_SLEEP = 16
IDLE_POLL_S = 0.25
CONNECT_TIMEOUT_S = 5.0


class Pump:
    """All connections of a process. `handler` serves the messages that come in."""

    def __init__(self, handler: Callable[[Connection, Message, int], None]) -> None:
        self.lock = threading.RLock()
        self.handler = handler
        self.epoll = select.epoll()
        self.dirty: list[Connection] = []
        self.on_round: Callable[[], float] | None = None
        """Runs after each round; returns the longest next wait in seconds."""
        self.failure: Exception | None = None  # raised by every wait from then on
        self._sources: dict[int, Callable[[int], None]] = {}
        self._listeners: list[socket.socket] = []
        self._leading = threading.Lock()
        self._followers: list[threading.Event] = []
        self._wanted = 0  # threads that would lead instead of the background thread
        self._background_polls = False
        self._asleep = False
        self._alarm = threading.Event()
        self._rounds = 0
        self._external = False
        self.stopped = False
        self._timeout_s = IDLE_POLL_S
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.epoll.register(self._wake_fd, select.EPOLLIN)
        self._sources[self._wake_fd] = self._woken
        self._thread = threading.Thread(target=self._background, name="pump", daemon=True)

    def start(self) -> None:
        """Starts the background thread."""
        self._thread.start()

    # ------------------------------------------------------------ connections

    def add(self, sock: socket.socket, name: str) -> Connection:
        """Adopts a connected socket."""
        connection = Connection(self, sock, name)
        self.watch(sock, connection.on_events)
        return connection

    def watch(self, sock: socket.socket, on_events: Callable[[int], None]) -> None:
        """Calls `on_events` with epoll's mask whenever the socket has something to read."""
        sock.setblocking(False)
        with self.lock:
            self._sources[sock.fileno()] = on_events
            self.epoll.register(sock.fileno(), select.EPOLLIN)

    def forget(self, fd: int) -> None:
        """Undoes `watch`."""
        if self._sources.pop(fd, None) is not None:
            self.epoll.unregister(fd)

    def connect_unix(self, path: str, name: str) -> Connection:
        """Connects to a process of this host.

        Raises:
            OSError: nobody listens there.
        """
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(CONNECT_TIMEOUT_S)
            sock.connect(path)
        except BaseException:
            sock.close()
            raise
        return self.add(sock, name)

    def connect_tcp(self, host: str, port: int, secret: bytes, name: str) -> Connection:
        """Connects to a process of another node and proves the secret both ways, in the background: two processes that
        connect to each other must not wait for one another. The connection takes messages at once, and closes when
        nobody listens there or it is of another cluster."""
        connection = Connection(self, None, name)

        def connect() -> None:
            sock = None
            try:
                sock = socket.create_connection((host, port), CONNECT_TIMEOUT_S)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                prove(sock, secret, is_client=True)
            except (OSError, HandshakeError) as error:
                log.debug("cannot connect to %s:%d: %s", host, port, error)
                if sock is not None:
                    sock.close()
                connection.close()
            else:
                connection.attach(sock)
            self._wake_followers()
            self.wake()

        threading.Thread(target=connect, name=f"connect-{host}:{port}", daemon=True).start()
        return connection

    def listen_unix(self, path: str, on_accept: Callable[[Connection], None]) -> None:
        """Accepts processes of the same user on a Unix socket at `path`."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.bind(path)
        except OSError:
            sock.close()
            raise
        sock.listen(512)

        def accept(peer: socket.socket) -> None:
            credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            if struct.unpack("3i", credentials)[1] not in (os.getuid(), 0):
                peer.close()
                return
            on_accept(self.add(peer, "a local process"))

        self._listen(sock, accept)

    def listen_tcp(
        self, host: str, secret: Callable[[], bytes], on_accept: Callable[[Connection], None]
    ) -> int:
        """Accepts processes that know the secret (asked for at each connection); returns the port."""
        sock = socket.create_server((host, 0), backlog=128)

        def greet(peer: socket.socket) -> None:
            try:
                peer.settimeout(CONNECT_TIMEOUT_S)
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                prove(peer, secret(), is_client=False)
            except (HandshakeError, OSError) as error:
                log.warning("refused a connection: %s", error)
                peer.close()
                return
            with self.lock:
                if self.stopped:
                    peer.close()
                else:
                    on_accept(self.add(peer, "a remote process"))

        def accept(peer: socket.socket) -> None:
            # The proof takes round trips with a peer we do not trust yet: not on the pumping thread.
            threading.Thread(target=greet, args=(peer,), daemon=True).start()

        self._listen(sock, accept)
        return int(sock.getsockname()[1])

    def _listen(self, sock: socket.socket, accept: Callable[[socket.socket], None]) -> None:
        def ready(_events: int) -> None:
            while True:
                try:
                    peer, _ = sock.accept()
                except (BlockingIOError, InterruptedError):
                    return
                except OSError:
                    return
                accept(peer)

        self._listeners.append(sock)
        self.watch(sock, ready)

    # ------------------------------------------------------------ waiting

    def wait(self, ready: Callable[[], Any], timeout_s: float | None = None) -> bool:
        """Pumps until `ready()` is true; False after `timeout_s`.

        Raises:
            Exception: whatever `failure` was set to, when the process lost its node.
        """
        if ready():
            return True
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not ready():
            if self.failure is not None:
                raise self.failure
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                self.poll_once()
                return bool(ready())
            if self._leading.acquire(blocking=False):
                try:
                    self._lead(ready, deadline)
                finally:
                    self._leading.release()
                    self._wake_followers()
            else:
                self._follow(ready, left)
        return True

    def call(self, connection: Connection, request: Request[Any], timeout_s: float | None = 30.0) -> Any:
        """Calls and waits. Returns the reply, an `ErrorReply` included (kind TIMEOUT when none came)."""
        box: list[Any] = []
        connection.call(request, box.append)
        if not self.wait(lambda: box, timeout_s):
            return ErrorReply(
                ErrorKind.TIMEOUT,
                f"{connection.name} did not answer {type(request).__name__} within {timeout_s} s",
            )
        return box[0]

    def poll_once(self) -> None:
        """One round without waiting, if nobody else leads. For an event loop that watches `epoll` itself."""
        if self._leading.acquire(blocking=False):
            try:
                self._round(0)
            finally:
                self._leading.release()
                self._wake_followers()

    def drive_externally(self) -> None:
        """From now on an event loop calls `poll_once` when `epoll` is readable; the background thread only helps."""
        self._external = True

    def _lead(self, ready: Callable[[], Any], deadline: float | None) -> None:
        while not ready() and self.failure is None:
            timeout = self._timeout_s
            if deadline is not None:
                timeout = min(timeout, deadline - time.monotonic())
                if timeout <= 0:
                    return
            self._rounds += 1
            self._round(timeout)

    def _follow(self, ready: Callable[[], Any], left: float | None) -> None:
        self._wanted += 1
        event = threading.Event()
        self._followers.append(event)
        try:
            if self._background_polls:
                self.wake()
            if not ready():
                event.wait(LONG_NAP_S if left is None else min(left, LONG_NAP_S))
        finally:
            self._followers.remove(event)
            self._wanted -= 1

    def _wake_followers(self) -> None:
        for event in tuple(self._followers):
            event.set()

    def _round(self, timeout_s: float, interruptible: bool = False) -> None:
        """Flush, poll, dispatch. The caller leads. `interruptible`: `kick` may end the poll."""
        if self.dirty:
            self.flush_all()
        if interruptible:
            self._background_polls = True
            if self.dirty or self._wanted:  # came between the flush and the flag
                timeout_s = 0
        events = self.epoll.poll(timeout_s)
        self._background_polls = False
        with self.lock:
            for fd, mask in events:
                source = self._sources.get(fd)
                if source is not None:
                    source(mask)
            if self.on_round is not None:
                self._timeout_s = self.on_round()
        if events and self._followers:
            self._wake_followers()

    def flush_all(self) -> None:
        """Writes everything buffered."""
        with self.lock:
            dirty, self.dirty = self.dirty, []
            for connection in dirty:
                connection.flush()

    def interruptible(self, retry: Callable[[], None]) -> bool:
        """For a signal handler: whether it may raise now. Not while its thread changes shared state: then `retry`
        runs a moment later, on another thread, to send the signal again."""
        if not self.lock._is_owned():  # type: ignore[attr-defined]
            return True
        timer = threading.Timer(NAP_S, retry)
        timer.daemon = True
        timer.start()
        return False

    # ------------------------------------------------------------ the background thread

    def kick(self) -> None:
        """Something is buffered: see that it leaves soon even if no thread waits."""
        if self._background_polls:
            self.wake()
        elif self._asleep:
            self._asleep = False
            self._alarm.set()

    def wake(self) -> None:
        """Interrupts the poll of whoever leads."""
        self._background_polls = False
        if self._wake_fd < 0:
            return
        try:
            os.eventfd_write(self._wake_fd, 1)
        except (BlockingIOError, OSError):
            pass  # already pending, or closed at exit

    def _woken(self, _events: int) -> None:
        try:
            os.eventfd_read(self._wake_fd)
        except BlockingIOError:
            pass

    def _background(self) -> None:
        idle_naps = 0
        while not self.stopped:
            rounds = self._rounds
            if idle_naps < NAPS_BEFORE_SLEEP or self.dirty:
                time.sleep(NAP_S)
            else:
                self._alarm.clear()
                self._asleep = True
                if not self.dirty:
                    self._alarm.wait(LONG_NAP_S)
                self._asleep = False
            if self.stopped:
                return
            if self._wanted or rounds != self._rounds:
                idle_naps = 0
            elif self._external and not self.dirty and idle_naps < NAPS_BEFORE_SLEEP:
                idle_naps += (
                    1  # the event loop leads; in quiet times its upkeep (references that died) is ours
                )
            elif self._leading.acquire(blocking=False):
                try:
                    while not self._wanted and not self.stopped:
                        self._round(0 if self._external else self._timeout_s, not self._external)
                        if self._external:
                            break
                finally:
                    self._leading.release()
                    self._wake_followers()
                if not self._external:
                    idle_naps = 0
            else:
                idle_naps += 1

    def abandon(self) -> None:
        """In a forked child: lets go of the parent's sockets without a word to anybody.

        Descriptors are only closed: to unregister them would take them from the parent's epoll as well.
        """
        self.lock = threading.RLock()  # a thread that is not here may have held the old one
        self.stopped = True
        self.dirty = []
        for listener in self._listeners:
            listener.close()
        for source in self._sources.values():
            connection = getattr(source, "__self__", None)
            if isinstance(connection, Connection):
                connection.abandon()
        self._sources = {}
        self.epoll.close()
        fd, self._wake_fd = self._wake_fd, -1
        if fd >= 0:
            os.close(fd)

    def stop(self) -> None:
        """Flushes and closes everything; waits end with whatever `failure` says."""
        self.flush_all()
        self.stopped = True
        self._alarm.set()
        self.wake()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(2.0)
        with self.lock:
            for sock in self._listeners:
                sock.close()
            for source in list(self._sources.values()):
                connection = getattr(source, "__self__", None)
                if isinstance(connection, Connection):
                    connection.close()
            self._sources.clear()
            self.epoll.close()
            # Whoever wakes us later must not hit what gets this number next.
            fd, self._wake_fd = self._wake_fd, -1
            os.close(fd)


def prove(sock: socket.socket, secret: bytes, *, is_client: bool) -> None:
    """Runs the handshake on a blocking socket with a timeout.

    Raises:
        HandshakeError: the peer does not know the secret.
        OSError: the connection broke or timed out.
    """
    handshake = Handshake(secret, is_client)
    sock.sendall(handshake.greeting)
    sock.sendall(handshake.proof(_exactly(sock, GREETING_BYTES)))
    handshake.verify(_exactly(sock, PROOF_BYTES))


def _exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = sock.recv(count - len(data))
        if not part:
            raise HandshakeError("the peer closed the connection during the handshake")
        data += part
    return data
