"""Large data over a TCP connection of its own: from the pages of a file into memory, with no copy of ours in between.

The receiver sends frames, each of one message. The sender answers requests in their order: a fixed head and then the
data itself, or the reason why there is none. Both sides are asyncio protocols that take over a connection whose peer
has proved the secret (`StreamChannel.take_over`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import struct
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, cast

import msgspec

from runtime._wire.framing import FrameDecoder, FrameError, encode_frame
from runtime._wire.messages import codec
from runtime._wire.messages.base import ErrorKind, ErrorReply, Message

from .channel import CallError

log = logging.getLogger(__name__)
STALL_S = 30.0
"""Timeout of a sender that owes data and sends none."""

_HEAD = struct.Struct(
    "<?QQ128p"
)  # whether it is an error; bytes of the whole; bytes that follow; what it is about
_SINK_BYTES = 1 << 18
_MAX_ERROR_BYTES = 1 << 16
_MAX_REQUEST_BYTES = 1 << 16


class Piece(msgspec.Struct):
    """An answer: `length` bytes from `offset` of the file `fd`, or of `data`.

    `total_bytes` is the size of the whole; `about`, 127 bytes at most, is passed on as it is.
    """

    total_bytes: int
    length: int
    offset: int = 0
    fd: int = -1
    data: bytes = b""
    about: bytes = b""


class Answer(NamedTuple):
    """What the sender says of the whole to which a piece belongs."""

    total_bytes: int
    about: bytes


class BulkSender(asyncio.Protocol):
    """The side that has the data.

    What a piece refers to must not change until the receiver says that it has it: the network may still read its pages
    after they were "sent".

    Args:
        answer: gives the piece that a message asks for, or None when it asks for nothing; what `CallError` it raises is
            the answer too.
        on_close: called once.
    """

    def __init__(
        self,
        answer: Callable[[BulkSender, Message], Awaitable[Piece | None]],
        on_close: Callable[[BulkSender], None],
        name: str,
    ) -> None:
        self.name = name
        self._answer = answer
        self._on_close = on_close
        self._decoder = FrameDecoder(_MAX_REQUEST_BYTES)
        self._received: deque[Message] = deque()
        self._answering: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._fd = -1  # our own descriptor of the socket: that of the transport is watched for what comes
        self._out: deque[Piece] = deque()
        self._waits = False
        self._sent: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._fd = os.dup(transport.get_extra_info("socket").fileno())

    def data_received(self, data: bytes) -> None:
        try:
            for _, payload in self._decoder.feed(data):
                self._received.append(codec.decode(payload))
        except (FrameError, msgspec.DecodeError) as error:
            log.error("closing %s: %s", self.name, error)
            self.close()
            return
        if self._answering is None:
            self._answering = asyncio.get_running_loop().create_task(self._answer_all(), name=self.name)

    def connection_lost(self, exc: Exception | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes at once. Repeating it does nothing."""
        if self._fd < 0:
            return
        self._wait_writable(False)
        os.close(self._fd)
        self._fd = -1
        if self._answering is not None:
            self._answering.cancel()
        self._out.clear()
        if self._transport is not None:
            self._transport.abort()
        self._on_close(self)

    async def _answer_all(self) -> None:
        try:
            while self._received:
                await self._answer_one(self._received.popleft())
        except Exception:
            log.exception("closing %s", self.name)
            self.close()
        finally:
            self._answering = None

    async def _answer_one(self, message: Message) -> None:
        try:
            piece = await self._answer(self, message)
            if piece is None:
                return
            head = _HEAD.pack(False, piece.total_bytes, piece.length, piece.about)
        except CallError as error:
            text = codec.encode(ErrorReply(error.kind, error.message))
            piece, head = Piece(0, len(text), data=text), _HEAD.pack(True, 0, len(text), b"")
        self._out.append(Piece(0, len(head), data=head))
        self._out.append(piece)
        self._send()
        if self._out:
            self._sent = asyncio.get_running_loop().create_future()
            await self._sent  # ends with the connection at the latest, which cancels this task

    def _send(self) -> None:
        """Gives the socket what it takes now."""
        out = self._out
        try:
            while out and self._fd >= 0:
                piece = out[0]
                if piece.length:
                    sent = self._send_some(piece)
                    piece.offset += sent
                    piece.length -= sent
                if not piece.length:
                    out.popleft()
        except BlockingIOError:
            pass
        except OSError as error:
            log.info("closing %s: %s", self.name, error)
            self.close()
            return
        self._wait_writable(bool(out))
        if not out and self._sent is not None and not self._sent.done():
            self._sent.set_result(None)

    def _send_some(self, piece: Piece) -> int:
        if piece.fd < 0:
            return os.write(self._fd, memoryview(piece.data)[piece.offset :])
        sent = os.sendfile(self._fd, piece.fd, piece.offset, piece.length)
        if not sent:
            raise OSError(f"{piece.length} bytes of a file are missing")
        return sent

    def _wait_writable(self, wanted: bool) -> None:
        if wanted != self._waits:
            self._waits = wanted
            loop = asyncio.get_running_loop()
            if wanted:
                loop.add_writer(self._fd, self._send)
            else:
                loop.remove_writer(self._fd)


class Incoming:
    """Data that was asked for: `done` gets the answer once it is there, in `data`.

    Args:
        data: where it goes; None for a new buffer.
    """

    __slots__ = ("data", "done", "length")

    def __init__(self, data: memoryview | None, length: int) -> None:
        self.data = data
        self.length = length
        self.done: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def let_go(self) -> None:
        """Gives it up, or gives the memory back that it filled. What still comes of it is thrown away."""
        self.done.cancel()
        if self.data is not None:
            self.data.release()
            self.data = None


class BulkReceiver(asyncio.BufferedProtocol):
    """The side that asks.

    Args:
        on_close: called once.
    """

    def __init__(self, on_close: Callable[[BulkReceiver], None], name: str) -> None:
        self.name = name
        self._on_close = on_close
        self._transport: asyncio.Transport | None = None
        self._pending: deque[Incoming] = deque()
        self._closed = False
        self._heard_s = 0.0
        self._watch: asyncio.TimerHandle | None = None
        # What is being read: a head, and then the body that it announces.
        self._head = memoryview(bytearray(_HEAD.size))
        self._body: memoryview | None = None  # None while its bytes are thrown away
        self._is_body = self._is_error = False
        self._said = Answer(0, b"")
        self._length = self._have = 0
        self._sink = memoryview(b"")

    def request(self, message: Message, length: int, into: memoryview | None) -> Incoming:
        """Asks for at most `length` bytes, to be written to `into` if that is given.

        Raises:
            CallError: UNAVAILABLE, the connection is closed. `done` of the result raises it too, and what the sender
                answers.
        """
        if self._closed or self._transport is None:
            raise CallError(ErrorKind.UNAVAILABLE, f"the connection to {self.name} is closed")
        loop = asyncio.get_running_loop()
        if not self._pending:
            self._heard_s = loop.time()
        incoming = Incoming(into, length)
        self._pending.append(incoming)
        if self._watch is None:
            self._watch = loop.call_later(STALL_S, self._look)
        self.send(message)
        return incoming

    def send(self, message: Message) -> None:
        """Sends a message that asks for nothing."""
        if not self._closed and self._transport is not None:
            self._transport.write(encode_frame(codec.encode(message)))

    def close(self, reason: str = "") -> None:
        """Closes at once; what is awaited fails with UNAVAILABLE. Repeating it does nothing."""
        if self._closed:
            return
        self._closed = True
        if self._watch is not None:
            self._watch.cancel()
        if self._transport is not None:
            self._transport.abort()
        error = CallError(ErrorKind.UNAVAILABLE, reason or f"the connection to {self.name} closed")
        pending, self._pending = self._pending, deque()
        for incoming in pending:
            if not incoming.done.done():
                incoming.done.set_exception(error)
        self._body = None
        self._on_close(self)

    # -- the protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.close()

    def get_buffer(self, sizehint: int) -> Any:
        if not self._is_body:
            return self._head[self._have :]
        if not self._is_error:
            self._body = self._pending[0].data  # given up meanwhile?
        if self._body is not None:
            return self._body[self._have : self._length]
        if not self._sink:
            self._sink = memoryview(bytearray(_SINK_BYTES))
        return self._sink[: self._length - self._have]

    def buffer_updated(self, nbytes: int) -> None:
        self._heard_s = asyncio.get_running_loop().time()
        self._have += nbytes
        if not self._is_body and self._have == _HEAD.size:
            self._begin_body()
        if self._is_body and self._have == self._length and not self._closed:
            self._end_body()

    def _begin_body(self) -> None:
        self._is_error, total, self._length, about = _HEAD.unpack(self._head)
        self._said = Answer(total, about)
        limit = _MAX_ERROR_BYTES if self._is_error else self._pending[0].length if self._pending else -1
        if not self._pending or self._length > limit:
            log.error("closing %s: %d bytes come unasked", self.name, self._length)
            self.close(f"{self.name} does not speak this protocol")
            return
        self._is_body, self._have = True, 0
        incoming = self._pending[0]
        if self._is_error:
            self._body = memoryview(bytearray(self._length))
        elif incoming.data is None and not incoming.done.done():
            incoming.data = memoryview(bytearray(self._length))

    def _end_body(self) -> None:
        incoming = self._pending.popleft()
        body, is_error = self._body, self._is_error
        self._is_body, self._is_error, self._body, self._have = False, False, None, 0
        if incoming.done.done():
            return
        if not is_error:
            incoming.done.set_result(self._said)
            return
        assert body is not None
        try:
            reply = codec.decode(body)
        except msgspec.DecodeError:
            reply = None
        if isinstance(reply, ErrorReply):
            incoming.done.set_exception(CallError(reply.kind, reply.message))
        else:
            self.close(f"{self.name} does not speak this protocol")

    def _look(self) -> None:
        """Whether a sender that owes data has exceeded its timeout."""
        self._watch = None
        if not self._pending:
            return
        loop = asyncio.get_running_loop()
        left_s = self._heard_s + STALL_S - loop.time()
        if left_s <= 0:
            self.close(f"{self.name} sent nothing for {STALL_S:g} s")
        else:
            self._watch = loop.call_later(left_s, self._look)
