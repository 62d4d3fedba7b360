"""A driver process's way to its program."""

from __future__ import annotations

import logging
import select
import socket
import threading
from collections import deque
from typing import Any

from . import frames, messages
from .stream import Stream

log = logging.getLogger("runtime._remote_driver")


class Outlet:
    """Sends messages to the program by way of the server. Any thread may; none ever waits for the server."""

    def __init__(self, relay: socket.socket) -> None:
        self._relay = relay
        self._lock = threading.Lock()
        self._news = threading.Condition(self._lock)
        self._stream = Stream()
        self._epoch = 0  # which Connect it is; 0: none
        self._is_ready = False
        self._backlog: deque[memoryview] = deque()
        threading.Thread(target=self._write_backlog, name="outlet", daemon=True).start()

    def send(self, message: messages.AnyMessage) -> None:
        """Sends a message, now or when the program is back."""
        with self._lock:
            try:
                body = self._stream.send(message)
            except (TypeError, OverflowError, UnicodeEncodeError) as error:
                log.error("cannot send a %s: %s", type(message).__name__, error)
                if not isinstance(message, messages.Answer):
                    raise
                return
            if self._is_ready:
                self._write(frames.ENVELOPE, frames.encode([body]))

    def attached(self, epoch: int) -> None:
        """The program has connected, for the `epoch`-th time."""
        with self._lock:
            self._epoch = epoch
            self._is_ready = False
            self._write(frames.ENVELOPE, frames.encode([self._stream.acknowledgement()]))

    def detached(self, epoch: int) -> bool:
        """The program is cut off, unless it has connected again already."""
        with self._lock:
            if epoch != self._epoch:
                return False
            self._is_ready = False
            self._epoch = 0
            return True

    def receive(self, epoch: int, body: bytes) -> Any:
        """See `Stream.receive`. None for what came by an earlier connection."""
        with self._lock:
            if epoch != self._epoch:
                return None
            message = self._stream.receive(body)
            if not self._is_ready:
                self._is_ready = True
                for again in self._stream.again():
                    self._write(frames.ENVELOPE, frames.encode([again]))
            elif self._stream.is_acknowledgement_due:
                self._write(frames.ENVELOPE, frames.encode([self._stream.acknowledgement()]))
            return message

    def finish(self) -> None:
        """Tells the server that the session is over, after all that was sent."""
        with self._lock:
            self._write(frames.FINISHED, b"")
            self._news.wait_for(lambda: not self._backlog, 5.0)

    def _write(self, kind: int, payload: bytes) -> None:
        """Under the lock."""
        data = memoryview(frames.relayed(self._epoch, kind, payload))
        if not self._backlog:
            try:
                data = data[self._relay.send(data, socket.MSG_DONTWAIT) :]
            except BlockingIOError:
                pass
            except OSError:
                return  # the server is gone: reading says so
        if data:
            self._backlog.append(data)
            self._news.notify_all()

    def _write_backlog(self) -> None:
        writable = select.poll()
        writable.register(self._relay, select.POLLOUT)
        while True:
            with self._lock:
                self._news.wait_for(lambda: self._backlog)
                data = self._backlog[0]
            writable.poll()  # it does not block: a pump watches it
            try:
                sent = self._relay.send(data, socket.MSG_DONTWAIT)
            except BlockingIOError:
                continue
            except OSError:
                return  # the server is gone: reading says so
            with self._lock:
                if sent == len(data):
                    self._backlog.popleft()
                    self._news.notify_all()
                else:
                    self._backlog[0] = data[sent:]
