"""The sockets of a driver or worker, without an event loop: the waiting thread pumps.

A thread that needs something (`Pump.wait`) becomes the leader: it flushes what is buffered, polls, reads and dispatches
until its condition holds, so that between a call and its reply lies no thread hand-off. Other waiting threads follow
and recheck after each round. Only when nobody waits does the background thread lead; it naps while callers are active,
for waking it costs more than the message, and sleeps while one of them waits long. A process at rest does not wake:
`on_wait` says when something is due. Leader/followers: Schmidt et al., "Leader/Followers", PLoP 2000.

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

from runtime._wire.handshake import HandshakeError
from runtime._wire.messages.base import ErrorKind, ErrorReply, Message, Request

from .connection import Connection
from .failures import report
from .greeting import Greeter, connect_proven
from .listener import Listener

log = logging.getLogger(__name__)
NAP_S = 0.002
LONG_NAP_S = 0.1
NAPS_BEFORE_SLEEP = 16
IDLE_POLL_S = 0.25
REST_S = 60.0
"""Timeout of a poll while no timer is due; incoming data ends the poll."""
CONNECT_TIMEOUT_S = 5.0


class Pump:
    """All connections of a process. `handler` serves the messages that come in."""

    def __init__(self, handler: Callable[[Connection, Message, int], None]) -> None:
        self.lock = threading.RLock()
        self._lock_check = threading.Condition(
            self.lock
        )  # tells whether a thread holds the lock, see `interruptible`
        self.handler = handler
        self.epoll = select.epoll()
        self.dirty: list[Connection] = []
        self.on_wait: Callable[[], float] | None = None
        """Runs before each wait; returns how many seconds that may last."""
        self.failure: Exception | None = None  # raised by every wait from then on
        self._sources: dict[int, Callable[[int], None]] = {}
        self._listeners: list[socket.socket] = []
        self.timed: set[Greeter | Listener] = set()
        """Their `expire` runs before each wait and returns how many seconds that may last. See `schedule`."""
        self.greeter = Greeter(self)
        self._secret: bytes | None = None  # None: not known yet
        self._unwatched: list[tuple[socket.socket, Callable[[socket.socket], None]]] = []  # until it is
        self._leading = threading.Lock()
        self._followers: list[threading.Event] = []
        self._wanted = 0  # threads that would lead instead of the background thread
        self._background_polls = False
        self._asleep = False
        self._rounds = 0  # rounds led by a waiting thread that dispatched events
        self._external = False
        self.stopped = False
        self.sent_much = False  # a thread had to flush its own messages since the last poll began
        self._in_burst = False  # another thread flushed its own messages during the last poll
        self._sleep_s: float | None = None  # how long the background thread may, beside an event loop
        self._alarm_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._alarm = select.poll()
        self._alarm.register(self._alarm_fd, select.POLLIN)
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.epoll.register(
            self._wake_fd, select.EPOLLIN | select.EPOLLET
        )  # each write is news: none is read
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
            self.epoll.register(sock.fileno(), select.EPOLLIN)
            self._sources[sock.fileno()] = on_events

    def forget(self, fd: int) -> None:
        """Undoes `watch`."""
        if self._sources.pop(fd, None) is not None:
            self.epoll.unregister(fd)

    def schedule(self, timed: Greeter | Listener) -> None:
        """Runs `timed.expire` from the next round on. Call it again when a deadline moves forward. Under the lock."""
        self.timed.add(timed)
        if self._external:
            self._ring()  # the background thread may sleep for longer

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
            self._wake_followers()
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
                    self._lead(ready, deadline, look_s)
                finally:
                    self._stop_leading()
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
                self._stop_leading()

    def drive_externally(self) -> None:
        """From now on an event loop calls `poll_once` when `epoll` is readable; the background thread only helps."""
        self._external = True
        self._alarm.register(self.epoll.fileno(), select.POLLIN)
        self._ring()

    def _lead(self, ready: Callable[[], Any], deadline: float | None, look_s: float) -> None:
        while not ready() and self.failure is None:
            timeout = look_s
            if deadline is not None:
                timeout = min(timeout, deadline - time.monotonic())
                if timeout <= 0:
                    return
            self._rounds += self._round(timeout)

    def _stop_leading(self) -> None:
        self._leading.release()
        self._wake_followers()
        if self._asleep and not self._external:
            self._ring()  # it sleeps because somebody led

    def _follow(self, ready: Callable[[], Any], left: float | None) -> None:
        if self.dirty:
            self.flush_all()  # whoever leads may wait for long
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

    def _round(self, timeout_s: float, interruptible: bool = False) -> bool:
        """Flush, poll, dispatch. The caller leads. `interruptible`: `kick` may end the poll. Whether anything came."""
        if self.on_wait is not None:
            with self.lock:
                try:
                    self._sleep_s = self.on_wait()
                except Exception:
                    report("the work before a wait")
                    self._sleep_s = LONG_NAP_S
            timeout_s = min(timeout_s, self._sleep_s)
        if self.timed:
            due_s = self._expire()
            timeout_s = min(timeout_s, due_s)
            if self._sleep_s is not None:
                self._sleep_s = min(self._sleep_s, due_s)
        if self.dirty:
            self.flush_all()
        if interruptible:
            self._background_polls = True
            if self.dirty or self._wanted:  # came between the flush and the flag
                timeout_s = 0
        self.sent_much = False
        events = self.epoll.poll(timeout_s)
        self._background_polls = False
        self._in_burst = self.sent_much
        with self.lock:
            for fd, mask in events:
                source = self._sources.get(fd)
                if source is not None:
                    try:
                        source(mask)
                    except Exception:
                        report("the handling of a socket")
        if events and self._followers:
            self._wake_followers()
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

    def interruptible(self, retry: Callable[[], None]) -> bool:
        """For a signal handler: whether it may raise now. Not while its thread changes shared state: then `retry`
        runs a moment later, on another thread, to send the signal again."""
        try:
            self._lock_check.notify()  # nobody waits for it: it only raises where this thread does not hold the lock
        except RuntimeError:
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
            self._ring()

    def wake(self) -> None:
        """Interrupts the poll of whoever leads. Takes no lock: `__del__` may call it."""
        self._background_polls = False
        _write(self._wake_fd)

    def _woken(self, _events: int) -> None:
        """That the poll has ended is all."""

    def _ring(self) -> None:
        """Wakes the background thread."""
        self._asleep = False
        _write(self._alarm_fd)

    def _background(self) -> None:
        while not self.stopped:
            try:
                self._background_turns()
            except Exception:
                if not self.stopped:  # else it met what `stop` has closed
                    report("the background thread")
                    time.sleep(LONG_NAP_S)

    def _background_turns(self) -> None:
        idle_naps = 0
        while not self.stopped:
            if self._external:
                self._help_event_loop()
                continue
            rounds = self._rounds
            if idle_naps < NAPS_BEFORE_SLEEP:
                time.sleep(NAP_S)
            else:
                self._sleep()
                idle_naps = 0
            if self._wanted or rounds != self._rounds:
                idle_naps = 0
            elif self._leading.acquire(blocking=False):
                try:
                    while not (self._wanted or self.stopped or self._external):
                        self._round(IDLE_POLL_S if self.on_wait is None else REST_S, True)
                        if (
                            self._in_burst
                        ):  # do not fight the caller for the interpreter: what comes in waits for a nap
                            break
                finally:
                    self._stop_leading()
                idle_naps = 0
            else:  # whoever leads waits for something
                if self.dirty:
                    self.flush_all()
                idle_naps += 1

    def _sleep(self) -> None:
        """Until something is to be sent, or nobody leads any more."""
        self._asleep = True
        # Whoever stops leading, or sends, from here on sees that we are asleep.
        if self._leading.locked() and not self.dirty and not self.stopped:
            self._alarm.poll()
        self._asleep = False
        _read(self._alarm_fd)

    def _help_event_loop(self) -> None:
        """One turn of the background thread beside an event loop, which leads unless user code holds it up."""
        self._asleep = True
        if not self.dirty and not self.stopped:
            self._alarm.poll(None if self._sleep_s is None else self._sleep_s * 1000)
        self._asleep = False
        _read(self._alarm_fd)
        if self.dirty:
            time.sleep(NAP_S)
        elif not self.stopped:
            time.sleep(LONG_NAP_S)
        if not self.stopped:
            self.poll_once()

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
        self._close_eventfds()

    def stop(self) -> None:
        """Flushes and closes everything; waits end with whatever `failure` says."""
        self.flush_all()
        self.stopped = True
        self._ring()
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
            self.greeter.close()
            self._sources.clear()
            self.epoll.close()
            self._close_eventfds()

    def _close_eventfds(self) -> None:
        # Whoever wakes us later must not hit what gets these numbers next.
        fds = self._wake_fd, self._alarm_fd
        self._wake_fd = self._alarm_fd = -1
        for fd in fds:
            if fd >= 0:
                os.close(fd)


def _write(eventfd: int) -> None:
    if eventfd >= 0:
        try:
            os.eventfd_write(eventfd, 1)
        except OSError:
            pass  # already pending, or closed at exit


def _read(eventfd: int) -> None:
    if eventfd >= 0:
        try:
            os.eventfd_read(eventfd)
        except OSError:
            pass  # nothing was pending


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
