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

import msgspec

from runtime._wire.framing import HEADER, HEADER_BYTES, MAX_FRAME_BYTES, REPLY_BIT
from runtime._wire.handshake import GREETING_BYTES, PROOF_BYTES, Handshake, HandshakeError
from runtime._wire.messages import codec
from runtime._wire.messages.base import ErrorKind, ErrorReply, Message, Request

log = logging.getLogger(__name__)
RECEIVE_BYTES = 1 << 18
FLUSH_BYTES = 1 << 14  # a busy sender lets the receiver start after this much
NAP_S = 0.002
LONG_NAP_S = 0.1
IDLE_POLL_S = 0.25
CONNECT_TIMEOUT_S = 5.0

ReplyCallback = Callable[[Any], None]
"""Gets the reply, an `ErrorReply` included (kind UNAVAILABLE when the connection closed)."""


class Connection:
    """One framed connection. `handler(connection, message, correlation)` runs on the pumping thread, under the lock."""

    __slots__ = (
        "_calls",
        "_in",
        "_large",
        "_large",
        "_next",
        "_out",
        "_pump",
        "_sock",
        "_writing",
        "closed",
        "context",
        "handler",
        "name",
        "on_close",
        "peer",
        "sent_functions",
    )

    def __init__(self, pump: Pump, sock: socket.socket | None, name: str) -> None:
        self._pump = pump
        self._sock = sock  # None while it connects: what is sent waits
        self.name = name
        self.handler: Callable[[Connection, Message, int], None] = pump.handler
        self.on_close: Callable[[Connection], None] | None = None
        self.context: Any = None
        self.peer: Any = None  # WorkerAddress once its Hello has come
        self.sent_functions: set[bytes] = set()
        self.closed = False
        self._out = bytearray()
        self._in = b""
        self._large: tuple[bytearray, int, int] | None = (
            None  # a big frame, how much of it is here, its correlation
        )
        self._writing = False
        self._calls: dict[int, ReplyCallback] = {}
        self._next = 0

    def send(self, message: Message, correlation: int = 0) -> None:
        """Buffers one message; it leaves when a thread waits, when enough is buffered, or within milliseconds."""
        with self._pump.lock:
            if self.closed:
                return
            out = self._out
            start = len(out)
            if not start:
                self._pump.dirty.append(self)
            out += b"\0\0\0\0\0\0\0\0"
            codec.encode_into(message, out, -1)
            HEADER.pack_into(out, start, len(out) - start - HEADER_BYTES, correlation)
            if len(out) >= FLUSH_BYTES:
                self.flush()
        self._pump.kick()

    def call(self, request: Request[Any], callback: ReplyCallback) -> None:
        """Sends a request; `callback` runs on the pumping thread, under the lock."""
        with self._pump.lock:
            if self.closed:
                callback(ErrorReply(ErrorKind.UNAVAILABLE, f"the connection to {self.name} is closed"))
                return
            self._next = number = (self._next % 0x7FFF_FFFE) + 1
            self._calls[number] = callback
            self.send(request, number)  # type: ignore[arg-type]

    def reply(self, message: Message, correlation: int) -> None:
        """Answers a call that came in with this correlation."""
        self.send(message, correlation | REPLY_BIT)

    def flush(self) -> None:
        """Writes what the socket takes now; the rest follows when it is writable."""
        with self._pump.lock:
            out = self._out
            if not out or self.closed or self._sock is None:
                return
            try:
                sent = self._sock.send(out)
            except BlockingIOError:
                sent = 0
            except OSError:
                self.close()
                return
            if sent == len(out):
                out.clear()
            else:
                del out[:sent]
            self._watch_writable(bool(out))

    def close(self) -> None:
        """Closes at once. Pending calls are answered UNAVAILABLE."""
        with self._pump.lock:
            if self.closed:
                return
            self.closed = True
            if self._sock is not None:
                self._pump.forget(self._sock.fileno())
                self._sock.close()
            calls, self._calls = self._calls, {}
            for callback in calls.values():
                callback(ErrorReply(ErrorKind.UNAVAILABLE, f"the connection to {self.name} closed"))
            if self.on_close is not None:
                self.on_close(self)

    def on_events(self, events: int) -> None:
        """Reads or writes as epoll says. Runs under the lock."""
        if self.closed:
            return
        if events & select.EPOLLOUT:
            self.flush()
        if events & ~select.EPOLLOUT:
            self._read()

    def _watch_writable(self, wanted: bool) -> None:
        if wanted != self._writing:
            self._writing = wanted
            assert self._sock is not None
            self._pump.epoll.modify(self._sock.fileno(), select.EPOLLIN | (select.EPOLLOUT if wanted else 0))

    def attach(self, sock: socket.socket) -> None:
        """The connection is made: send what has waited."""
        with self._pump.lock:
            if self.closed or self._pump.stopped:
                sock.close()
                return
            self._sock = sock
            self._pump.watch(sock, self.on_events)
            self.flush()

    @property
    def remote_path(self) -> str:
        """Of a Unix connection: the path of the socket at the other end."""
        assert self._sock is not None
        return str(self._sock.getpeername())

    def _read(self) -> None:
        if self._large is not None:
            self._read_large()
            return
        assert self._sock is not None
        try:
            data = self._sock.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        if self._in:
            data = self._in + data
        offset, end = 0, len(data)
        unpack, deliver = HEADER.unpack_from, self._deliver
        view = memoryview(data)
        while end - offset >= HEADER_BYTES:
            length, correlation = unpack(data, offset)
            if length > MAX_FRAME_BYTES:
                self.close()
                return
            start = offset + HEADER_BYTES
            if start + length > end:
                if length > RECEIVE_BYTES:
                    self._large = _LargeFrame(length, correlation, view[start:])
                    offset = end
                break
            offset = start + length
            deliver(view[start:offset], correlation)
            if self.closed:
                return
        self._in = data[offset:] if offset < end else b""

    def _read_large(self) -> None:
        """A frame that is longer than one read goes into a buffer of its own: joining pieces would copy it often."""
        assert self._sock is not None
        assert self._large is not None
        frame = self._large
        try:
            count = self._sock.recv_into(frame.rest())
        except BlockingIOError:
            return
        except OSError:
            count = 0
        if not count:
            self.close()
            return
        frame.have += count
        if frame.have == len(frame.buffer):
            self._large = None
            self._deliver(memoryview(frame.buffer), frame.correlation)

    def _deliver(self, payload: memoryview, correlation: int) -> None:
        try:
            message = codec.decode(payload)
        except msgspec.DecodeError as error:
            log.error("closing the connection to %s: %s", self.name, error)
            self.close()
            return
        if correlation & REPLY_BIT:
            callback = self._calls.pop(correlation & ~REPLY_BIT, None)
            if callback is not None:
                callback(message)
        else:
            self.handler(self, message, correlation)


class _LargeFrame:
    """A frame whose end has not come yet."""

    __slots__ = ("buffer", "correlation", "have")

    def __init__(self, length: int, correlation: int, start: memoryview) -> None:
        self.buffer = bytearray(length)
        self.correlation = correlation
        self.have = len(start)
        self.buffer[: self.have] = start

    def rest(self) -> memoryview:
        return memoryview(self.buffer)[self.have :]


class Pump:
    """All connections of a process. `handler` serves incoming messages, `on_accept` new connections."""

    def __init__(self, handler: Callable[[Connection, Message, int], None]) -> None:
        self.lock = threading.RLock()
        self.handler = handler
        self.epoll = select.epoll()
        self.dirty: list[Connection] = []
        self.on_round: Callable[[], float] | None = (
            None  # after each round; returns the longest next wait, seconds
        )
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
        sock.bind(path)
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
            if idle_naps < 16 or self.dirty:
                time.sleep(NAP_S)
            else:
                self._alarm.clear()
                self._asleep = True
                self._alarm.wait(LONG_NAP_S)
                self._asleep = False
            if self.stopped:
                return
            if self._wanted or rounds != self._rounds:
                idle_naps = 0
            elif self._external and not self.dirty:
                idle_naps += 1
            elif self._leading.acquire(blocking=False):
                try:
                    while not self._wanted and not self.stopped:
                        self._round(0 if self._external else self._timeout_s, not self._external)
                        if self._external:
                            break
                finally:
                    self._leading.release()
                    self._wake_followers()
                idle_naps = 0
            else:
                idle_naps += 1

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
            fd, self._wake_fd = (
                self._wake_fd,
                -1,
            )  # whoever wakes us later must not hit what gets this number next
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
