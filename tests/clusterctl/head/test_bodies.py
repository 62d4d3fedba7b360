"""Large bodies pass through files."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clusterctl.head.bodies import TooLong, as_json_text, spooled


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def test_a_body_is_on_disk_while_it_is_used(tmp_path: Path) -> None:
    async def main() -> None:
        async with spooled(chunks(b"ab", b"c"), tmp_path / "uploads", 3) as body:
            assert body.path.read_bytes() == b"abc"
            assert body.sha256 == hashlib.sha256(b"abc").hexdigest()
        assert [*(tmp_path / "uploads").iterdir()] == []

    asyncio.run(main())


def test_a_body_that_is_too_long_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(TooLong):
            async with spooled(chunks(b"ab", b"cd"), tmp_path, 3):
                raise AssertionError

    asyncio.run(main())
    assert [*tmp_path.iterdir()] == []


def test_a_text_is_the_same_in_blocks_and_at_once(tmp_path: Path) -> None:
    text = 'a "word"\n\\ \u20ac \U0001f600 ' * 100_000
    data = text.encode() + b"\xff"
    (tmp_path / "log").write_bytes(data)
    blocks = [*as_json_text(tmp_path / "log", "logs")]
    assert len(blocks) > 3
    assert json.loads(b"".join(blocks)) == {"logs": data.decode(errors="replace")}
    assert json.loads(b"".join(as_json_text(tmp_path / "none", "logs"))) == {"logs": ""}
