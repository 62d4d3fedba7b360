"""Files compressed by Snappy."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from runtime.data.io.snappy import decompressed
from runtime.data.io.text import TextDatasource
from tests.runtime.data.io.reading import rows


def packed(content: bytes) -> bytes:
    return pa.compress(content, codec="snappy", asbytes=True)


def hadoop(*blocks: list[bytes]) -> bytes:
    out = b""
    for parts in blocks:
        out += struct.pack(">I", sum(map(len, parts)))
        out += b"".join(struct.pack(">I", len(packed(part))) + packed(part) for part in parts)
    return out


def test_blocks_of_hadoop():
    assert decompressed(hadoop([b"a" * 300, b"b"], [b"c"])) == b"a" * 300 + b"bc"
    assert decompressed(b"") == b""


def test_framing_format():
    chunk = b"\0" * 4 + packed(b"hello")
    plain = b"\0" * 4 + b" you"
    data = b"\xff\x06\x00\x00sNaPpY"
    data += (
        b"\x00"
        + len(chunk).to_bytes(3, "little")
        + chunk
        + b"\x01"
        + len(plain).to_bytes(3, "little")
        + plain
    )
    assert decompressed(data) == b"hello you"


def test_cut_off():
    for size in (3, 6, 12):
        with pytest.raises(ValueError, match="cut off"):
            decompressed(hadoop([b"abc" * 10])[:size])


def test_by_ending(tmp_path):
    (tmp_path / "a.txt.snappy").write_bytes(hadoop([b"x\ny\n"]))
    assert rows(TextDatasource(tmp_path)) == [{"text": "x"}, {"text": "y"}]
