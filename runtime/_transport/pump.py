"""The sockets of a driver or worker, without an event loop: the waiting thread pumps.

A thread that needs something (`Pump.wait`) becomes the leader: it flushes what is buffered, polls, reads and dispatches
until its condition holds, so that between a call and its reply lies no thread hand-off. Other waiting threads follow
and recheck after each round. Only when nobody waits does the background thread lead (`background.py` decides when).
A process at rest does not wake: `on_wait` says when something is due. Leader/followers: Schmidt et al.,
"Leader/Followers", PLoP 2000.

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
from types import FrameType
from typing import Any

from runtime._wire.handshake import HandshakeError
from runtime._wire.messages.base import ErrorKind, ErrorReply, Message, Request

from .background import LONG_NAP_S, Background
from .bell import Bell
from .connection import Connection
from .failures import report
from .greeting import Greeter, connect_proven
from .interrupts import Interrupts
from .leadership import Leader, Leadership
from .listener import Listener
from .pumping import Timed

log = logging.getLogger(__name__)
IDLE_POLL_S = 0.25
REST_S = 60.0
"""Timeout of a poll while no timer is due; incoming data ends the poll."""
CONNECT_TIMEOUT_S = 5.0
STOP_S = 2.0
"""How long `stop` waits for the background thread, and for the thread that leads."""


class Pump:
    """All connections of a process. `handler` serves the messages that come in."""

    def __init__(self, handler: Callable[[Connection, Message, int], None]) -> None:
        self.lock = threading.RLock()
        self._interrupts = Interrupts(self.lock)
        self.handler = handler
        self.epoll = select.epoll()
        self.dirty: list[Connection] = []
        self.on_wait: Callable[[], float] | None = None
        """Runs before each wait; returns how many seconds that may last."""
        self.failure: Exception | None = (
            None  # raised by every wait from then on; `stop` sets one if there is none
        )
        self._sources: dict[int, Callable[[int], None]] = {}
        self._listeners: list[socket.socket] = []
        self.timed: set[Timed] = set()
        """Their `expire` runs before each wait and returns how many seconds that may last. See `schedule`."""
        self.greeter = Greeter(self)
        self._secret: bytes | None = None  # None: not known yet
        self._unwatched: list[tuple[socket.socket, Callable[[socket.socket], None]]] = []  # until it is
        self._leadership = Leadership(self._left)
        self.followers = self._leadership.followers
        self.rounds = 0
        """Rounds led by a waiting thread that dispatched events."""
        self.stopped = False
        self.sent_much = False
        """A thread had to flush its own messages since the last poll began."""
        self.in_burst = False
        """Another thread flushed its own messages during the last poll."""
        self._wake = Bell()
        """Ends the leader's poll. Armed while the leader is the background thread, which leaves for any caller."""
        self.epoll.register(
            self._wake.fd, select.EPOLLIN | select.EPOLLET
        )  # each write is news: none is read
        self._sources[self._wake.fd] = self._woken
        self._background = Background(self)
        self._thread = threading.Thread(target=self._background.run, name="pump", daemon=True)

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
            self.epoll.register(sock.fileno(), select.EPOLLIN)
            self._sources[sock.fileno()] = on_events

    def forget(self, fd: int) -> None:
        """Undoes `watch`."""
        if self._sources.pop(fd, None) is not None:
            self.epoll.unregister(fd)

    def schedule(self, timed: Timed) -> None:
        """Runs `timed.expire` from the next round on. Call it again when a deadline moves forward. Under the lock."""
        self.timed.add(timed)
        if self._background.assists:
            self._background.alarm.ring()  # it may sleep for longer

    def connect_unix(self, path: str, name: str) -> Connection:
        """Connects to a process of this host, in the background when it has no room for another connection yet. The
        connection takes messages at once, and closes when the process does not accept it in time.

        Raises:
            OSError: nobody listens there.
        """
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.connect(path)
        except BlockingIOError:
            connection = Connection(self, None, name)
            self._connect_later(connection, lambda: _connect_unix(sock, path))
            return connection
        except BaseException:
            sock.close()
            raise
        return self.add(sock, name)

    def connect_tcp(self, host: str, port: int, secret: bytes, name: str) -> Connection:
        """Connects to a process of another node and proves the secret both ways, in the background: two processes that
        connect to each other must not wait for one another. The connection takes messages at once, and closes when
        nobody listens there or it is of another cluster."""
        connection = Connection(self, None, name)

        def is_wanted() -> bool:
            return not (connection.closed or self.stopped)

        self._connect_later(
            connection, lambda: connect_proven(host, port, secret, CONNECT_TIMEOUT_S, is_wanted)
        )
        return connection

    def _connect_later(self, connection: Connection, connect: Callable[[], socket.socket]) -> None:
        """Connects on a thread: that may take seconds, and the caller holds the lock."""

        def run() -> None:
            try:
                sock = connect()
            except (OSError, HandshakeError) as error:
                log.debug("cannot connect to %s: %s", connection.name, error)
                connection.close(str(error))
            else:
                connection.attach(sock)
            self._leadership.wake_followers()
            self.wake()

        threading.Thread(target=run, name=f"connect to {connection.name}", daemon=True).start()

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

        with self.lock:
            self._listeners.append(sock)
            Listener(self, sock, accept)

    def listen_tcp(self, host: str, on_accept: Callable[[Connection], None]) -> int:
        """Listens for processes that know the secret, and returns the port. They are accepted from `admit` on."""
        sock = socket.create_server((host, 0), backlog=512)

        def proven(peer: socket.socket) -> None:
            on_accept(self.add(peer, "a remote process"))

        def accept(peer: socket.socket) -> None:
            assert self._secret is not None
            self.greeter.greet(peer, self._secret, proven)

        with self.lock:
            self._listeners.append(sock)
            if self._secret is not None:
                Listener(self, sock, accept, self.greeter)
            else:
                self._unwatched.append((sock, accept))
        return int(sock.getsockname()[1])

    def admit(self, secret: bytes) -> None:
        """Accepts the processes that come to a TCP listener and know this secret."""
        with self.lock:
            self._secret = secret
            unwatched, self._unwatched = self._unwatched, []
            for sock, accept in unwatched:
                Listener(self, sock, accept, self.greeter)

    # ------------------------------------------------------------ waiting

    def wait(
        self, ready: Callable[[], Any], timeout_s: float | None = None, look_s: float = IDLE_POLL_S
    ) -> bool:
        """Pumps until `ready()` is true; False after `timeout_s`.

        Args:
            look_s: how long it may take to see that another thread made `ready()` true without a word (`wake`).

        Raises:
            Exception: whatever `failure` was set to: the process lost its node, or the pump was stopped.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        left = timeout_s
        while not ready():
            if self.failure is not None:
                raise self.failure.with_traceback(None)  # else each wait would add its frames
            if left is not None and left <= 0:
                self.poll_once()
                return bool(ready())
            if self._leadership.take(Leader.CALLER):
                try:
                    if self._lead(ready, deadline, look_s):
                        return True
                finally:
                    self._leadership.leave()
            else:
                self._follow(ready, left)
            if deadline is not None:
                left = deadline - time.monotonic()
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
        if self._leadership.take(Leader.VISITOR):
            try:
                self._round(0)
            finally:
                self._leadership.leave()

    def drive_externally(self) -> None:
        """From now on an event loop calls `poll_once` when `epoll` is readable; the background thread only helps."""
        self._background.assist(self.epoll.fileno())

    def _lead(self, ready: Callable[[], Any], deadline: float | None, look_s: float) -> bool:
        """Whether `ready()` is true, rather than the time up or the process without its node."""
        while not ready():
            if self.failure is not None:
                return False
            timeout = look_s
            if deadline is not None:
                timeout = min(timeout, deadline - time.monotonic())
                if timeout <= 0:
                    return False
            self.rounds += self._round(timeout)
        return True

    @property
    def is_led(self) -> bool:
        """Whether a thread leads."""
        return self._leadership.is_led

    def try_to_lead(self) -> bool:
        """For the background thread: becomes the leader, unless there is one. Then it must call `stop_leading`."""
        return self._leadership.take(Leader.BACKGROUND)

    def stop_leading(self) -> None:
        """Lets another thread lead."""
        self._leadership.leave()

    def _left(self) -> None:
        background = self._background
        if background.alarm.armed and not background.assists:
            background.alarm.ring()  # it sleeps because a caller led

    def _follow(self, ready: Callable[[], Any], left: float | None) -> None:
        if self.dirty:
            self.flush_all()  # the leader may wait for long
        nap_s = LONG_NAP_S if left is None else min(left, LONG_NAP_S)
        self._leadership.follow(self._call_background, ready, nap_s)

    def _call_background(self) -> None:
        """The background thread stops leading when a caller waits."""
        if self._wake.armed:
            self._wake.ring()

    def background_round(self) -> None:
        """A round of the background thread: `kick` and any waiting thread end its poll. The caller leads."""
        self._round(IDLE_POLL_S if self.on_wait is None else REST_S, True)

    def _round(self, timeout_s: float, interruptible: bool = False) -> bool:
        """Flush, poll, dispatch. The caller leads. `interruptible`: `kick` may end the poll. Whether anything came."""
        rest_s: float | None = None
        if self.on_wait is not None:
            with self.lock:
                try:
                    rest_s = self.on_wait()
                except Exception:
                    report("the work before a wait")
                    rest_s = LONG_NAP_S
            timeout_s = min(timeout_s, rest_s)
        if self.timed:
            due_s = self._expire()
            timeout_s = min(timeout_s, due_s)
            if rest_s is not None:
                rest_s = min(rest_s, due_s)
        self._background.rest_s = rest_s
        if self.dirty:
            self.flush_all()
        if interruptible:
            self._wake.armed = True
            if self.dirty or self.followers:  # came between the flush and the arming
                timeout_s = 0
        self.sent_much = False
        try:
            events = self.epoll.poll(timeout_s)
        except (ValueError, OSError):  # closed: this thread called `stop`, or was too slow for it
            if not self.stopped:
                raise
            events = []
        self._wake.armed = False
        self.in_burst = self.sent_much
        with self.lock:
            for fd, mask in events:
                source = self._sources.get(fd)
                if source is not None:
                    try:
                        source(mask)
                    except Exception:
                        report("the handling of a socket")
        if events and self.followers:
            self._leadership.wake_followers()
        return bool(events)

    def _expire(self) -> float:
        with self.lock:
            try:
                return min((each.expire() for each in tuple(self.timed)), default=REST_S)
            except Exception:
                report("the deadlines of a listener")
                return LONG_NAP_S

    def flush_all(self) -> None:
        """Writes everything buffered."""
        with self.lock:
            dirty, self.dirty = self.dirty, []
            for connection in dirty:
                try:
                    connection.flush()
                except Exception:
                    report("sending")

    def interruptible(self, frame: FrameType | None, retry: Callable[[], None]) -> bool:
        """For a signal handler: whether it may raise now. Not while its thread changes shared state or runs a
        finalizer: then `retry` runs a moment later, on another thread, to send the signal again."""
        return self._interrupts.may_raise(frame, retry)

    # ------------------------------------------------------------ waking

    def kick(self) -> None:
        """Something is buffered: see that it leaves soon even if no thread waits."""
        if self._wake.armed:
            self._wake.ring()
        elif self._background.alarm.armed:
            self._background.alarm.ring()

    def wake(self) -> None:
        """Interrupts the poll of the leader. Takes no lock: `__del__` may call it."""
        self._wake.ring()

    def _woken(self, _events: int) -> None:
        """That the poll has ended is all."""

    # ------------------------------------------------------------ the end

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
        self.greeter.abandon()
        self._sources = {}
        self.epoll.close()
        self._close_bells()

    def stop(self) -> None:
        """Flushes and closes everything; waits end with whatever `failure` says. Doing it again does nothing."""
        if self.stopped:
            return
        self.flush_all()
        if self.failure is None:
            self.failure = ConnectionAbortedError("the connections of this process were closed")
        self.stopped = True
        self._background.alarm.ring()
        self.wake()
        self._leadership.wake_followers()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(STOP_S)
        self._leadership.close(STOP_S)  # nobody polls what is closed now
        with self.lock:
            for sock in self._listeners:
                sock.close()
            for source in list(self._sources.values()):
                connection = getattr(source, "__self__", None)
                if isinstance(connection, Connection):
                    connection.close()
            self.greeter.close()
            self._sources.clear()
            self.epoll.close()
            self._close_bells()

    def _close_bells(self) -> None:
        self._wake.close()
        self._background.alarm.close()


def _connect_unix(sock: socket.socket, path: str) -> socket.socket:
    """Waits until the listener accepts. Python's own timeout does not: to it, a full backlog is an error."""
    try:
        sock.setblocking(True)
        seconds, rest = divmod(CONNECT_TIMEOUT_S, 1)
        sock.setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(seconds), int(rest * 1e6))
        )
        sock.connect(path)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 0))
    except BaseException:
        sock.close()
        raise
    return sock
