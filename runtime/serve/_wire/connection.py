"""A stream socket that carries messages, on an event loop of asyncio."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any, cast

import msgspec

from runtime.serve._wire import messages

_LENGTH = struct.Struct("<I")
MOST_BYTES = 1 << 31

_encoder = msgspec.msgpack.Encoder()
_from_caller = msgspec.msgpack.Decoder(messages.FromCaller)
_from_replica = msgspec.msgpack.Decoder(messages.FromReplica)


class Connection(asyncio.Protocol):
    """Belongs to the event loop that it was made on.

    Args:
        received: is called with each message, in order. An exception that it raises closes the connection.
        lost: is called once, with what ended the connection, or None if either side closed it.
        from_replica: whether the other side is a replica.
        opened: is called with the connection when it stands.
    """

    def __init__(
        self,
        received: Callable[[Connection, Any], None],
        lost: Callable[[Connection, BaseException | None], None],
        *,
        from_replica: bool,
        opened: Callable[[Connection], None] | None = None,
    ) -> None:
        self._received = received
        self._lost = lost
        self._opened = opened
        self._decode = (_from_replica if from_replica else _from_caller).decode
        self._transport: asyncio.Transport | None = None
        self._came = bytearray()
        self._out: list[bytes] = []
        self._error: BaseException | None = None
        self._loop = asyncio.get_running_loop()

    # ------------------------------------------------------------ for its owner

    @property
    def is_open(self) -> bool:
        """Whether messages can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def send(self, message: messages.Message) -> None:
        """Sends a message, together with all others of this turn of the event loop. Of a closed connection it does
        nothing: its owner hears of that by `lost`."""
        body = _encoder.encode(message)
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(_LENGTH.pack(len(body)))
        self._out.append(body)

    def close(self) -> None:
        """Sends what waits, then closes."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    # ------------------------------------------------------------ for the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has no common base
        if self._opened is not None:
            self._opened(self)

    def data_received(self, data: bytes) -> None:
        came: bytes | bytearray = data
        if self._came:
            self._came += data
            came = self._came
        start, size = 0, len(came)
        try:
            while size - start >= 4:
                (length,) = _LENGTH.unpack_from(came, start)
                if length > MOST_BYTES:
                    raise ValueError(f"a message of {length} bytes, {MOST_BYTES} at most")
                end = start + 4 + length
                if end > size:
                    break
                message = self._decode(memoryview(came)[start + 4 : end])
                start = end
                self._received(self, message)
        except Exception as error:
            self._error = error
            assert self._transport is not None
            self._transport.abort()
        if came is data:
            self._came += came[start:] if start else came
        else:
            del self._came[:start]

    def connection_lost(self, error: BaseException | None) -> None:
        self._out.clear()
        self._lost(self, self._error or error)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if out and self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(out)
