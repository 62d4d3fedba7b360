"""Length-prefixed frames with a correlation number: one format for every socket and stream of the system.

A frame is `<II` (payload length, correlation) followed by the payload, a msgpack-encoded message. Correlation 0 is a
one-way message; otherwise the low 31 bits number a call and the top bit marks its reply. A frame without payload is a
good-bye: it distinguishes a peer that left from a broken connection.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

HEADER = struct.Struct("<II")
HEADER_BYTES = HEADER.size
REPLY_BIT = 0x8000_0000
ONE_WAY = 0
GOOD_BYE = HEADER.pack(0, ONE_WAY)
MAX_FRAME_BYTES = 512 * 2**20
MAX_UNSENT_BYTES = 2 * MAX_FRAME_BYTES
"""A peer that leaves more than this unread is dropped."""


class FrameError(Exception):
    """The peer sent bytes that are not a frame; the connection cannot be used any more."""


class MessageTooLargeError(Exception):
    """A message does not fit into a frame. Nothing was sent."""

    def __init__(self, name: str, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"{name} has {size_bytes} bytes, and one message may have at most {limit_bytes}. Put large values into the "
            "object store (put) and pass their references, or send fewer at once."
        )


def encode_frame(payload: bytes, correlation: int = ONE_WAY) -> bytes:
    """Returns `payload` with its header."""
    return HEADER.pack(len(payload), correlation) + payload


class FrameDecoder:
    """Cuts a byte stream into frames. Feed it whatever arrives; it keeps the incomplete rest."""

    __slots__ = ("_rest", "max_frame_bytes")

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._rest = bytearray()
        self.max_frame_bytes = max_frame_bytes

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[tuple[int, bytes]]:
        """Yields `(correlation, payload)` for every frame that `data` completes.

        Raises:
            FrameError: a frame is longer than `max_frame_bytes`.
        """
        rest = self._rest
        rest += data
        offset, end = 0, len(rest)
        frames: list[tuple[int, bytes]] = []
        while end - offset >= HEADER_BYTES:
            length, correlation = HEADER.unpack_from(rest, offset)
            if length > self.max_frame_bytes:
                raise FrameError(f"a frame of {length} bytes is over the limit of {self.max_frame_bytes}")
            start = offset + HEADER_BYTES
            if end - start < length:
                break
            offset = start + length
            frames.append((correlation, bytes(memoryview(rest)[start:offset])))
        if offset:
            del rest[:offset]
        yield from frames
