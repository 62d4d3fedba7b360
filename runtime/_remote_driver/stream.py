"""One direction-pair of messages that survives cuts: each message arrives exactly once and in order. Sans-I/O.

Both sides number what they send and keep it until the other side has acknowledged it. After a cut each side first says
how far it has received, and then the other one sends the rest again.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from .messages import AnyMessage

ACKNOWLEDGE_EVERY = 64
ACKNOWLEDGE_BYTES = 1 << 20
"""After so many messages or bytes an acknowledgement is due although there is nothing to send."""


class Body(msgspec.Struct, frozen=True, array_like=True):
    """What an envelope carries. `number` 0: an acknowledgement alone."""

    number: int
    received: int
    message: AnyMessage | None = None


class StreamBroken(Exception):
    """The peer does not keep to the protocol: a message is missing. Nothing can be handled any more."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Body).decode


class Stream:
    """One side's numbers, and what it may have to send again. Not thread-safe."""

    def __init__(self) -> None:
        self._sent = 0
        self._received = 0
        self._unacknowledged: deque[tuple[int, bytes]] = deque()
        self.unacknowledged_bytes = 0
        self._due_messages = 0
        self._due_bytes = 0

    def send(self, message: AnyMessage) -> bytes:
        """The body to send for a message; it is kept until it is acknowledged.

        Raises:
            TypeError, OverflowError: the message cannot be encoded. Nothing changed.
        """
        body = _encode(Body(self._sent + 1, self._received, message))
        self._sent += 1
        self._unacknowledged.append((self._sent, body))
        self.unacknowledged_bytes += len(body)
        self._due_messages = self._due_bytes = 0
        return body

    def acknowledgement(self) -> bytes:
        """The body that only says what has been received."""
        self._due_messages = self._due_bytes = 0
        return _encode(Body(0, self._received))

    @property
    def is_acknowledgement_due(self) -> bool:
        return self._due_messages >= ACKNOWLEDGE_EVERY or self._due_bytes >= ACKNOWLEDGE_BYTES

    def receive(self, data: bytes) -> Any:
        """Takes a body; returns its message, or None when there is no new one in it.

        Raises:
            StreamBroken: a message before it is missing.
            msgspec.DecodeError: it is no body.
        """
        body = _decode(data)
        kept = self._unacknowledged
        while kept and kept[0][0] <= body.received:
            self.unacknowledged_bytes -= len(kept.popleft()[1])
        if body.number <= self._received:  # of no message, or of one that was sent again
            return None
        if body.number != self._received + 1:
            raise StreamBroken(f"message {body.number} came after {self._received}")
        self._received = body.number
        self._due_messages += 1
        self._due_bytes += len(data)
        return body.message

    def again(self) -> list[bytes]:
        """What to send after a reconnect, once the peer's first body was received."""
        return [body for _, body in self._unacknowledged]
