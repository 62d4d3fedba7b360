"""A channel carries messages both ways between two processes, with calls and replies on top, on an asyncio loop.

`Channel` holds all the logic; `StreamChannel` (sockets) and `LoopbackChannel` (one process) differ only in how a
frame's payload reaches the other side. The owner of a channel sets `handler` and `on_close`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from runtime._wire.framing import (
    GOOD_BYE,
    MAX_FRAME_BYTES,
    MAX_UNSENT_BYTES,
    ONE_WAY,
    REPLY_BIT,
    FrameDecoder,
    FrameError,
    MessageTooLargeError,
    encode_frame,
)
from runtime._wire.messages import codec
from runtime._wire.messages.base import ErrorKind, ErrorReply, Message, Request

log = logging.getLogger(__name__)
R = TypeVar("R")
_RECEIVE_BYTES = 1 << 18
LINGER_S = 3.0
"""How long a side that leaves tries to get its last messages across."""

_receiving = threading.local()
"""Per loop's thread, what its sockets are read into: a buffer of its own for each read costs three system calls."""

Handler = Callable[["Channel", Message], "Awaitable[Message | None] | Message | None"]
"""Gets every incoming message. For a `Request` it returns (or awaits) the reply; a raised `CallError` becomes an
`ErrorReply`. For one-way messages the result is ignored."""


class CallError(Exception):
    """A call was answered with `ErrorReply`, or could not be answered (`kind` UNAVAILABLE, TIMEOUT)."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(kind, message)
        self.kind = kind
        self.message = message

    def __str__(self) -> str:
        return self.message


class Channel:
    """One connection. All methods belong to the loop's thread."""

    def __init__(self, handler: Handler | None = None, name: str = "") -> None:
        self.handler = handler
        self.name = name
        self.on_close: Callable[[Channel], None] | None = None
        self.context: Any = None  # the owner's own data about the peer
        self.peer_left = False  # the peer said good-bye; without it a closed channel may be a broken one
        self._numbers = itertools.count(1)
        self._calls: dict[int, asyncio.Future[Message]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    def send(self, message: Message) -> None:
        """Sends one way. Does nothing on a closed channel, as `on_close` has reported that.

        Raises:
            CallError: INVALID, the message is too large. Nothing is sent.
        """
        if not self._closed:
            self._write(_encode(message), ONE_WAY)

    def send_encoded(self, payload: bytes) -> None:
        """The same for a message that was encoded already, because it goes to many."""
        if not self._closed:
            self._write(payload, ONE_WAY)

    async def call(self, request: Request[R], timeout_s: float | None = 30.0) -> R:
        """Sends a request and waits for its reply.

        Raises:
            CallError: the peer refused, the request is too large (INVALID), the channel closed (UNAVAILABLE), or no
                reply came in time (TIMEOUT).
        """
        if self._closed:
            raise CallError(ErrorKind.UNAVAILABLE, f"the connection to {self.name or 'the peer'} is closed")
        number = next(self._numbers) & 0x7FFF_FFFF or next(self._numbers)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Message] = loop.create_future()
        self._calls[number] = future
        timer = None
        try:
            self._write(_encode(request), number)
            if timeout_s is not None:
                timer = loop.call_later(timeout_s, _time_out, future)
            reply = await future
        except TimeoutError:
            raise CallError(
                ErrorKind.TIMEOUT,
                f"{self.name or 'the peer'} did not answer {type(request).__name__} within {timeout_s} s",
            ) from None
        finally:
            self._calls.pop(number, None)
            if timer is not None:
                timer.cancel()
        if isinstance(reply, ErrorReply):
            raise CallError(reply.kind, reply.message)
        return cast(R, reply)

    def close(self) -> None:
        """Closes at once; pending calls fail with UNAVAILABLE. Repeating it does nothing."""
        if self._closed:
            return
        self._closed = True
        for future in self._calls.values():
            if not future.done():
                future.set_exception(
                    CallError(ErrorKind.UNAVAILABLE, f"the connection to {self.name or 'the peer'} closed")
                )
        self._calls.clear()
        self._shut()
        if self.on_close is not None:
            self.on_close(self)

    async def leave(self) -> None:
        """Closes, and returns when the peer has taken what was sent and knows that we left."""
        self.close()

    # -- for subclasses

    def _write(self, payload: bytes, correlation: int) -> None:
        raise AssertionError("a subclass sends")

    def _shut(self) -> None:
        """Closes what lies below."""

    def _received(self, correlation: int, payload: bytes) -> None:
        """A subclass calls this for every frame."""
        try:
            message = codec.decode(payload)
        except Exception as error:
            self._undecodable(correlation, error)
            return
        if correlation & REPLY_BIT:
            future = self._calls.get(correlation & ~REPLY_BIT)
            if future is not None and not future.done():
                future.set_result(message)
            return
        if self.handler is None:
            log.error("closing %s: no handler for %s", self.name, type(message).__name__)
            self.close()
            return
        try:
            result = self.handler(self, message)
        except CallError as error:
            self._reply(correlation, ErrorReply(error.kind, error.message))
        except Exception as error:
            log.exception("handling %s from %s failed", type(message).__name__, self.name)
            self._reply(correlation, ErrorReply(ErrorKind.INTERNAL, f"{type(error).__name__}: {error}"))
        else:
            if result is None or isinstance(result, Message):
                self._reply(correlation, result)
            else:
                task = asyncio.ensure_future(self._finish(correlation, message, result))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def _undecodable(self, correlation: int, error: Exception) -> None:
        """A request with a field of the wrong type gets an error reply; any other fault closes the connection."""
        if correlation == ONE_WAY or correlation & REPLY_BIT:
            log.error("closing %s: undecodable message: %s", self.name, error)
            self.close()
        else:
            self._reply(
                correlation, ErrorReply(ErrorKind.INVALID, f"the request cannot be understood: {error}")
            )

    async def _finish(self, correlation: int, message: Message, result: Awaitable[Message | None]) -> None:
        try:
            self._reply(correlation, await result)
        except CallError as error:
            self._reply(correlation, ErrorReply(error.kind, error.message))
        except Exception as error:
            log.exception("handling %s from %s failed", type(message).__name__, self.name)
            self._reply(correlation, ErrorReply(ErrorKind.INTERNAL, f"{type(error).__name__}: {error}"))

    def _reply(self, correlation: int, reply: Message | None) -> None:
        if correlation != ONE_WAY and not self._closed:
            if reply is None:
                reply = ErrorReply(ErrorKind.INTERNAL, "the request has no answer")
            try:
                payload = _encode(reply)
            except Exception as error:
                refusal = f"{type(reply).__name__} cannot be sent: {error}"
                payload = codec.encode(ErrorReply(ErrorKind.INVALID, refusal))
            self._write(payload, correlation | REPLY_BIT)


def _encode(message: Message | Request[Any]) -> bytes:
    payload = codec.encode(message)
    if len(payload) > MAX_FRAME_BYTES:
        error = MessageTooLargeError(type(message).__name__, len(payload), MAX_FRAME_BYTES)
        raise CallError(ErrorKind.INVALID, str(error))
    return payload


def _time_out(future: asyncio.Future[Message]) -> None:
    if not future.done():
        future.set_exception(TimeoutError())


class StreamChannel(Channel, asyncio.BufferedProtocol):
    """A channel over a connected Unix or TCP socket. Writes of one loop turn leave in one syscall."""

    def __init__(self, handler: Handler | None = None, name: str = "") -> None:
        super().__init__(handler, name)
        self._decoder = FrameDecoder()
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self._gone: asyncio.Future[None] | None = (
            None  # set while we leave; done when the connection has ended
        )

    @property
    def sock(self) -> Any:
        """The socket below, for its options; None when there is none any more."""
        return None if self._transport is None else self._transport.get_extra_info("socket")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> bytearray:
        buffer: bytearray | None = getattr(_receiving, "buffer", None)
        if buffer is None:
            buffer = _receiving.buffer = bytearray(_RECEIVE_BYTES)
        return buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.feed(memoryview(_receiving.buffer)[:nbytes])

    def feed(self, data: bytes | memoryview) -> None:
        """Takes in what came from the socket."""
        try:
            for correlation, payload in self._decoder.feed(data):
                if self._closed:
                    return
                if not payload:
                    self.peer_left = True
                    self.close()
                    return
                self._received(correlation, payload)
        except FrameError as error:
            log.error("closing %s: %s", self.name, error)
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)
        self.close()

    async def leave(self) -> None:
        if self._closed or self._transport is None:
            return
        self._gone = asyncio.get_running_loop().create_future()
        self._out.append(GOOD_BYE)
        self.close()
        # Closing at once would throw away what the peer has not read yet, if it sends something meanwhile.
        done, _ = await asyncio.wait((self._gone,), timeout=LINGER_S)
        if not done:
            self._transport.abort()

    def take_over(self, protocol: asyncio.BaseProtocol) -> None:
        """Gives the connection to another protocol; both sides must have said so, and the peer be silent meanwhile.
        This channel is closed then, without its owner being told.

        Raises:
            CallError: UNAVAILABLE, it is closed already.
        """
        transport = self._transport
        if self._closed or transport is None:
            raise CallError(ErrorKind.UNAVAILABLE, f"the connection to {self.name or 'the peer'} is closed")
        self._flush()
        self._closed = True
        self._transport = None
        transport.set_protocol(protocol)
        protocol.connection_made(transport)

    def _write(self, payload: bytes, correlation: int) -> None:
        if not self._out:
            asyncio.get_running_loop().call_soon(self._flush)
        self._out.append(encode_frame(payload, correlation))

    def _flush(self) -> None:
        transport = self._transport
        if self._out and transport is not None and not transport.is_closing():
            transport.write(b"".join(self._out))
            if transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
                log.error(
                    "closing %s: it leaves %d bytes unread", self.name, transport.get_write_buffer_size()
                )
                transport.abort()
        self._out.clear()

    def _shut(self) -> None:
        self._flush()
        if self._transport is not None:
            if self._gone is not None and self._transport.can_write_eof():
                self._transport.write_eof()
            else:
                self._transport.close()


class LoopbackChannel(Channel):
    """One end of a pair inside one process; what is sent arrives on the loop's next turn."""

    peer: LoopbackChannel

    def __init__(self, handler: Handler | None = None, name: str = "") -> None:
        super().__init__(handler, name)
        self._under_way: list[tuple[int, bytes]] = []

    @classmethod
    def pair(cls, left: Handler | None, right: Handler | None) -> tuple[LoopbackChannel, LoopbackChannel]:
        a, b = cls(left, "the in-process peer"), cls(right, "the in-process peer")
        a.peer, b.peer = b, a
        return a, b

    def _write(self, payload: bytes, correlation: int) -> None:
        if not self._under_way:
            asyncio.get_running_loop().call_soon(self._deliver_all)
        self._under_way.append((correlation, payload))

    def _deliver_all(self) -> None:
        arrived, self._under_way = self._under_way, []
        for correlation, payload in arrived:
            self._deliver(correlation, payload)

    def _deliver(self, correlation: int, payload: bytes) -> None:
        if not self.peer.closed:
            self.peer._received(correlation, payload)

    def _shut(self) -> None:
        try:
            asyncio.get_running_loop().call_soon(self.peer.close)
        except RuntimeError:  # the loop has ended: so has the peer
            pass
