"""Large bodies of requests and answers, which pass through a file and never through the head's memory as a whole."""

from __future__ import annotations

import asyncio
import codecs
import hashlib
import json
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

_BLOCK_BYTES = 2**20


class TooLong(ValueError):
    """A body is longer than it may be."""


@dataclass(frozen=True, slots=True)
class Spooled:
    """A body on disk."""

    path: Path
    sha256: str


@asynccontextmanager
async def spooled(stream: AsyncIterator[bytes], folder: Path, limit_bytes: int) -> AsyncIterator[Spooled]:
    """Writes a body to a file in `folder`, which is gone afterwards.

    Raises:
        TooLong: it is longer than `limit_bytes`.
        OSError: it cannot be written.
    """
    os.makedirs(folder, mode=0o700, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=folder)
    digest, size = hashlib.sha256(), 0
    try:
        with os.fdopen(descriptor, "wb") as file:
            async for chunk in stream:
                size += len(chunk)
                if size > limit_bytes:
                    raise TooLong(f"the request is longer than {limit_bytes} bytes")
                digest.update(chunk)
                await asyncio.to_thread(file.write, chunk)
        yield Spooled(Path(name), digest.hexdigest())
    finally:
        os.unlink(name)


def as_json_text(path: Path, key: str) -> Iterator[bytes]:
    """A file as the text of a JSON object's only key, block by block. A file that is not there is empty. What is
    appended meanwhile is left out."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    yield f'{{{json.dumps(key)}: "'.encode()
    try:
        with open(path, "rb") as file:
            left = os.fstat(file.fileno()).st_size
            while left > 0 and (block := file.read(min(_BLOCK_BYTES, left))):
                left -= len(block)
                yield json.dumps(decoder.decode(block))[1:-1].encode()
    except FileNotFoundError:
        pass
    yield json.dumps(decoder.decode(b"", final=True))[1:-1].encode() + b'"}'
