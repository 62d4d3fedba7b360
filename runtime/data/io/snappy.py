"""Files with the ending `.snappy`: Hadoop's blocks, or the framing format of Snappy itself."""

from __future__ import annotations

import struct

_FRAMING_START = b"\xff\x06\x00\x00sNaPpY"


def decompressed(data: bytes) -> bytes:
    """The content of a file. Raises ValueError if it is of neither format."""
    if data.startswith(_FRAMING_START):
        return _framed(data)
    return _hadoop(data)


def _framed(data: bytes) -> bytes:
    import pyarrow as pa

    out, at = bytearray(), 0
    while at < len(data):
        kind, size = data[at], int.from_bytes(data[at + 1 : at + 4], "little")
        chunk = data[at + 4 : at + 4 + size]
        at += 4 + size
        if kind == 0:  # a checksum of 4 bytes comes first
            out += pa.decompress(
                chunk[4:], decompressed_size=_length(chunk[4:]), codec="snappy", asbytes=True
            )
        elif kind == 1:
            out += chunk[4:]
        elif kind < 0x80:
            raise ValueError(f"unknown kind {kind:#x} of a chunk in a Snappy file")
    return bytes(out)


def _hadoop(data: bytes) -> bytes:
    """Blocks of (size of the content, then parts of (compressed size, compressed bytes) until it is complete)."""
    import pyarrow as pa

    out, at = bytearray(), 0
    while at < len(data):
        if at + 4 > len(data):
            raise ValueError("the Snappy file is cut off")
        (size,) = struct.unpack_from(">I", data, at)
        at += 4
        end = len(out) + size
        while len(out) < end:
            if at + 4 > len(data):
                raise ValueError("the Snappy file is cut off")
            (packed,) = struct.unpack_from(">I", data, at)
            part = data[at + 4 : at + 4 + packed]
            if not packed or len(part) < packed:
                raise ValueError("the Snappy file is cut off")
            at += 4 + packed
            out += pa.decompress(part, decompressed_size=_length(part), codec="snappy", asbytes=True)
    return bytes(out)


def _length(block: bytes) -> int:
    """The content's size, with which a Snappy block starts as a varint."""
    length = shift = 0
    for byte in block[:5]:
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            return length
        shift += 7
    raise ValueError("not a Snappy block")
