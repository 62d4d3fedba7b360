"""Bytes on the two connections of a remote driver: the envelope of `remote_driver.proto`, and the frames between the
gRPC server and a driver process. An envelope has one field, so that it needs no generated code. Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

_TAG = 0x0A  # field 1, length-delimited
RELAY = struct.Struct(">IIB")
"""Header of a relayed frame: length of its payload, which Connect of the session it belongs to, and its kind."""
ATTACHED, DETACHED, ENVELOPE, FINISHED = range(4)
"""Kinds of relayed frames: a program has connected; it is cut off; an envelope; the session is over."""


def relayed(epoch: int, kind: int, payload: bytes = b"") -> bytes:
    """A frame between the server and a driver process. `epoch`: which Connect of the session it belongs to."""
    return RELAY.pack(len(payload), epoch, kind) + payload


class RelayDecoder:
    """Cuts what comes between the server and a driver process into frames."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Yields (epoch, kind, payload) of every frame that `data` completes. Take all of them before the next call."""
        rest = self._rest
        rest += data
        at = 0
        found: list[tuple[int, int, bytes]] = []
        while len(rest) - at >= RELAY.size:
            length, epoch, kind = RELAY.unpack_from(rest, at)
            end = at + RELAY.size + length
            if len(rest) < end:
                break
            found.append((epoch, kind, bytes(memoryview(rest)[at + RELAY.size : end])))
            at = end
        if at:
            del rest[:at]
        return iter(found)


class EnvelopeError(ValueError):
    """These bytes are no envelope."""


def encode(bodies: Iterable[bytes]) -> bytes:
    """Encodes an `Envelope`."""
    parts: list[bytes] = []
    for body in bodies:
        head = bytearray((_TAG,))
        length = len(body)
        while length > 0x7F:
            head.append(length & 0x7F | 0x80)
            length >>= 7
        head.append(length)
        parts += (bytes(head), body)
    return b"".join(parts)


def decode(data: bytes) -> list[bytes]:
    """The bodies of an `Envelope`.

    Raises:
        EnvelopeError: it is none.
    """
    bodies: list[bytes] = []
    at, end = 0, len(data)
    while at < end:
        if data[at] != _TAG:
            raise EnvelopeError(f"unexpected field {data[at]} at byte {at}")
        at += 1
        length = shift = 0
        while True:
            if at >= end or shift > 35:
                raise EnvelopeError("the envelope is cut off")
            byte = data[at]
            at += 1
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        if at + length > end:
            raise EnvelopeError("the envelope is cut off")
        bodies.append(data[at : at + length])
        at += length
    return bodies
