"""CRC-32C (Castagnoli), by a library where one is installed, otherwise by a table in Python."""

from __future__ import annotations

import functools
from collections.abc import Callable

_POLYNOMIAL = 0x82F63B78


@functools.cache
def _table() -> list[int]:
    table = []
    for index in range(256):
        value = index
        for _ in range(8):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


def slow(data: bytes) -> int:
    """The checksum in Python: about 10 MB/s."""
    table, value = _table(), 0xFFFFFFFF
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


@functools.cache
def fast() -> Callable[[bytes], int] | None:
    """The checksum of a library, `google-crc32c` or `crc32c`, if one is installed."""
    for module, name in (("google_crc32c", "value"), ("crc32c", "crc32c")):
        try:
            found: Callable[[bytes], int] = getattr(__import__(module), name)
        except (ImportError, AttributeError):
            continue
        return found
    return None


def masked(data: bytes, checksum: Callable[[bytes], int] | None = None) -> int:
    """The checksum as TFRecord stores it: rotated, plus a constant."""
    value = (checksum or fast() or slow)(data)
    return (((value >> 15) | (value << 17)) + 0xA282EAD8) & 0xFFFFFFFF
