"""`tf.train.Example` messages, without TensorFlow and without protobuf.

An Example has features by name; a feature is a list of bytes (field 1), floats (2) or integers (3).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def decode(message: bytes) -> dict[str, list[Any]]:
    """The features of an Example. Raises ValueError if the message is cut off or of another kind."""
    features: dict[str, list[Any]] = {}
    for field, value in _fields(memoryview(message)):
        if field == 1:
            for inner, entry in _fields(_view(value)):
                if inner == 1:
                    name, values = _entry(_view(entry))
                    features[name] = values
    return features


def encode(features: dict[str, Any]) -> bytes:
    """An Example with these features; None is a feature without values.

    Raises:
        TypeError: A value is neither bytes, text, number nor a list of them.
    """
    entries = b"".join(
        _tagged(1, _tagged(1, name.encode()) + _tagged(2, _feature(name, value)))
        for name, value in features.items()
    )
    return _tagged(1, entries)


def _entry(data: memoryview) -> tuple[str, list[Any]]:
    name, values = "", []
    for field, value in _fields(data):
        if field == 1:
            name = bytes(_view(value)).decode()
        elif field == 2:
            for kind, content in _fields(_view(value)):
                values = _values(kind, _view(content))
    return name, values


def _values(kind: int, data: memoryview) -> list[Any]:
    found: list[Any] = []
    for _, value in _fields(data):
        if kind == 1:
            found.append(bytes(_view(value)))
        elif kind == 2:
            packed = value if isinstance(value, memoryview) else struct.pack("<I", value)
            found += struct.unpack(f"<{len(packed) // 4}f", packed)
        elif isinstance(value, memoryview):
            at = 0
            while at < len(value):
                number, at = _varint(value, at)
                found.append(_signed(number))
        else:
            found.append(_signed(value))
    return found


def _fields(data: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        field, kind = key >> 3, key & 7
        value: memoryview | int
        if kind == _VARINT:
            value, at = _varint(data, at)
        elif kind == _BYTES:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
        elif kind == _FIXED32:
            value, at = int.from_bytes(data[at : at + 4], "little"), at + 4
        elif kind == _FIXED64:
            value, at = int.from_bytes(data[at : at + 8], "little"), at + 8
        else:
            raise ValueError("it is no tf.train.Example")
        if at > len(data):
            raise ValueError("the tf.train.Example is cut off")
        yield field, value


def _view(value: memoryview | int) -> memoryview:
    if isinstance(value, int):
        raise ValueError("it is no tf.train.Example")
    return value


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("the tf.train.Example is cut off")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _number(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _tagged(field: int, content: bytes) -> bytes:
    return _number(field << 3 | _BYTES) + _number(len(content)) + content


def _feature(name: str, value: Any) -> bytes:
    if value is None:
        return b""
    if hasattr(value, "tolist"):
        value = value.tolist()
    values: Sequence[Any] = value if isinstance(value, list | tuple) else [value]
    if any(isinstance(each, list | tuple) for each in values):
        raise TypeError(
            f"Feature {name!r} has more than one dimension; flatten it, and store its shape beside it."
        )
    if not values:
        return b""
    if all(isinstance(each, str | bytes) for each in values):
        parts = [each.encode() if isinstance(each, str) else each for each in values]
        return _tagged(1, b"".join(_tagged(1, part) for part in parts))
    if all(isinstance(each, bool | int) for each in values):
        return _tagged(3, _tagged(1, b"".join(_number(int(each)) for each in values)))
    if all(isinstance(each, bool | int | float) for each in values):
        return _tagged(2, _tagged(1, struct.pack(f"<{len(values)}f", *values)))
    raise TypeError(f"Feature {name!r} must be bytes, text or numbers, not {values[0]!r:.80}.")
