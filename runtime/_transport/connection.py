"""One framed connection of a pump: buffers what is sent, cuts what comes into messages, matches replies to calls."""

from __future__ import annotations

import contextlib
import logging
import select
import socket
from collections.abc import Callable
from typing import Any

import msgspec

from runtime._wire.framing import (
    HEADER,
    HEADER_BYTES,
    MAX_FRAME_BYTES,
    MAX_UNSENT_BYTES,
    REPLY_BIT,
    MessageTooLargeError,
)
from runtime._wire.messages import codec
from runtime._wire.messages.base import ErrorKind, ErrorReply, Message, Request

from .failures import report
from .pumping import Carrier

log = logging.getLogger(__name__)
RECEIVE_BYTES = 1 << 16  # malloc maps anew what is larger than 128 KiB: three system calls more for each read
FLUSH_BYTES = 1 << 14  # a busy sender lets the receiver start after this much
CONGESTED_BYTES = 1 << 25
"""With more than this unsent, senders that can wait do: calls of actors stay with their caller, generators pause."""

ReplyCallback = Callable[[Any], None]
"""Gets the reply, an `ErrorReply` included (kind UNAVAILABLE when the connection closed)."""


class Connection:
    """One framed connection. `handler(connection, message, correlation)` runs on the pumping thread, under the lock."""

    __slots__ = (
        "_broken",
        "_calls",
        "_in",
        "_large",
        "_next",
        "_out",
        "_pump",
        "_sock",
        "_writing",
        "closed",
        "congested",
        "context",
        "handler",
        "name",
        "on_close",
        "on_room",
        "peer",
        "sent_functions",
    )

    def __init__(self, pump: Carrier, sock: socket.socket | None, name: str) -> None:
        self._pump = pump
        self._sock = sock  # None while it connects: what is sent waits
        self.name = name
        self.handler: Callable[[Connection, Message, int], None] = pump.handler
        self.on_close: Callable[[Connection], None] | None = None
        self.context: Any = None
        self.peer: Any = None  # WorkerAddress once its Hello has come
        self.sent_functions: set[bytes] = set()
        self.closed = False
        self.congested = False
        """Much is unsent: the peer reads slowly, or not at all."""
        self.on_room: Callable[[Connection], None] | None = None
        """Called once, under the lock, when the connection is no longer congested."""
        self._out = bytearray()
        self._in = b""
        self._large: _LargeFrame | None = None
        self._writing = False
        self._broken = False  # the socket takes nothing more; it closes once everything that arrived is read
        self._calls: dict[int, ReplyCallback] = {}
        self._next = 0

    def send(self, message: Message, correlation: int = 0) -> None:
        """Buffers one message; it leaves when a thread waits, when enough is buffered, or within milliseconds.

        Raises:
            TypeError, OverflowError: a field holds what the wire does not carry. Nothing is sent.
            MessageTooLargeError: likewise.
        """
        with self._pump.lock:
            if self.closed or self._broken:
                return
            out = self._out
            start = len(out)
            if not start:
                self._pump.dirty.append(self)
            out += b"\0\0\0\0\0\0\0\0"
            try:
                codec.encode_into(message, out, -1)
            except Exception as error:
                self._encode_again(message, start, error)
            size = len(out) - start - HEADER_BYTES
            if size > MAX_FRAME_BYTES:
                del out[start:]
                raise MessageTooLargeError(type(message).__name__, size, MAX_FRAME_BYTES)
            HEADER.pack_into(out, start, size, correlation)
            if len(out) >= FLUSH_BYTES:
                self._pump.sent_much = True
                self.flush()
                if len(out) > CONGESTED_BYTES:
                    self._congest()
        self._pump.kick()

    def _congest(self) -> None:
        self.congested = True
        unsent = len(self._out)
        if unsent > MAX_UNSENT_BYTES:
            reason = (
                f"{self.name} leaves {unsent} bytes unread, and at most {MAX_UNSENT_BYTES} are kept for it"
            )
            log.error("closing the connection: %s", reason)
            self.close(reason)

    def _encode_again(self, message: Message, start: int, error: Exception) -> None:
        """Takes back what a failed encoding has left behind the header at `start`. Texts get a second chance."""
        out = self._out
        del out[start + HEADER_BYTES :]
        try:
            if not isinstance(error, UnicodeEncodeError):
                raise error
            out += codec.encode(message)
        except Exception:
            del out[start:]
            raise

    def call(self, request: Request[Any], callback: ReplyCallback) -> None:
        """Sends a request; `callback` runs on the pumping thread, under the lock. It gets an `ErrorReply` (INVALID)
        at once when the request cannot be sent."""
        with self._pump.lock:
            if self.closed:
                callback(ErrorReply(ErrorKind.UNAVAILABLE, f"the connection to {self.name} is closed"))
                return
            self._next = number = (self._next % 0x7FFF_FFFE) + 1
            self._calls[number] = callback
            try:
                self.send(request, number)  # type: ignore[arg-type]
            except Exception as error:
                del self._calls[number]
                callback(ErrorReply(ErrorKind.INVALID, _cannot_send(request, error)))

    def reply(self, message: Message, correlation: int) -> None:
        """Answers a call that came in with this correlation; with an `ErrorReply` when `message` cannot be sent."""
        try:
            self.send(message, correlation | REPLY_BIT)
        except Exception as error:
            refusal = ErrorReply(ErrorKind.INVALID, _cannot_send(message, error))
            self.send(refusal, correlation | REPLY_BIT)

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
            except OSError as error:
                self._break(error)
                return
            if sent == len(out):
                out.clear()
            else:
                del out[:sent]
            self._watch_writable(bool(out))
            if self.congested and len(out) <= CONGESTED_BYTES // 2:
                self._relieve()

    def _break(self, error: OSError) -> None:
        """The socket takes nothing more, mostly because the peer is gone. What the peer sent before may still be in the
        socket's buffer: the pump reads it, then meets the end and closes the connection."""
        assert self._sock is not None
        log.debug("nothing more can be sent to %s: %s", self.name, error)
        self._broken = True
        self.congested = True  # what can wait must not be lost with what is sent from here on
        self._out.clear()
        self._watch_writable(False)
        with contextlib.suppress(OSError):  # not connected any more: the end comes by itself
            self._sock.shutdown(socket.SHUT_RDWR)  # an end for reads too, whatever the peer does

    def _relieve(self) -> None:
        self.congested = False
        tell, self.on_room = self.on_room, None
        if tell is not None:
            try:
                tell(self)
            except Exception:
                report("going on after a congestion")

    def close(self, reason: str = "") -> None:
        """Closes at once. Pending calls are answered UNAVAILABLE."""
        with self._pump.lock:
            if self.closed:
                return
            self.closed = True
            self.congested = False
            self._out.clear()
            if self._sock is not None:
                self._pump.forget(self._sock.fileno())
                self._sock.close()
            if self.on_close is not None:
                try:
                    self.on_close(self)
                except Exception:
                    report("telling of a closed connection")
            calls, self._calls = self._calls, {}
            text = f"the connection to {self.name} closed" + (f": {reason}" if reason else "")
            for callback in calls.values():
                try:
                    callback(ErrorReply(ErrorKind.UNAVAILABLE, text))
                except Exception:
                    report("a callback of a call")

    def abandon(self) -> None:
        """In a forked child: closes the descriptor and nothing else. See `Pump.abandon`."""
        self.closed = True
        if self._sock is not None:
            self._sock.close()

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
        try:
            if correlation & REPLY_BIT:
                callback = self._calls.pop(correlation & ~REPLY_BIT, None)
                if callback is not None:
                    callback(message)
            else:
                self.handler(self, message, correlation)
        except (
            Exception
        ) as error:  # one message must not stop the others, nor the thread that happens to pump
            log.exception("%s from %s could not be handled", type(message).__name__, self.name)
            if correlation and not correlation & REPLY_BIT:
                self.reply(ErrorReply(ErrorKind.INTERNAL, f"{type(error).__name__}: {error}"), correlation)


def _cannot_send(message: Any, error: Exception) -> str:
    return f"{type(message).__name__} cannot be sent: {error}"


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
