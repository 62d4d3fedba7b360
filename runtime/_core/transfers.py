"""Pulling one object from other nodes in chunks: which chunk to ask for next, and where to go when a source
fails. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

CHUNK_BYTES = 4 << 20
FIRST_CHUNK_BYTES = 1 << 20
"""Smaller than others: it is copied once more, because its size is unknown until the answer."""

CHUNKS_IN_FLIGHT = 4


class PullState(enum.Enum):
    ASKING = "ASKING"  # the first chunk of a source is awaited; it has the size
    COPYING = "COPYING"
    DONE = "DONE"
    LOST = "LOST"


class ReadChunk(msgspec.Struct, frozen=True):
    """Ask `source` for these bytes."""

    source: bytes
    offset: int
    length: int


class Pull:
    """One object on its way to this node.

    Feed it answers; `next_reads` says what to ask for. A source that fails loses its outstanding chunks to
    the next source; bytes already copied stay (objects are immutable). LOST when no source is left.
    """

    def __init__(
        self,
        sources: Iterable[bytes],
        chunk_bytes: int = CHUNK_BYTES,
        in_flight: int = CHUNKS_IN_FLIGHT,
        first_bytes: int = FIRST_CHUNK_BYTES,
    ) -> None:
        self._sources = list(dict.fromkeys(sources))
        self._tried: set[bytes] = set(self._sources)
        self._chunk_bytes = chunk_bytes
        self._first_bytes = min(first_bytes, chunk_bytes)
        self._limit = in_flight
        self._outstanding: dict[int, ReadChunk] = {}
        self._missing: list[int] = [0]
        self.size_bytes: int | None = None
        self.state = PullState.ASKING if self._sources else PullState.LOST

    @property
    def source(self) -> bytes:
        """The node that the request was sent to; empty if none."""
        return self._sources[0] if self._sources else b""

    def add_sources(self, sources: Iterable[bytes]) -> None:
        """More nodes are said to have it."""
        for source in sources:
            if source not in self._tried:
                self._tried.add(source)
                self._sources.append(source)

    def next_reads(self) -> list[ReadChunk]:
        """The chunks to ask for; each must be answered with `received` or `source_failed`."""
        if self.state in (PullState.DONE, PullState.LOST):
            return []
        limit = 1 if self.size_bytes is None else self._limit
        reads = []
        while self._missing and len(self._outstanding) < limit:
            offset = self._missing.pop(0)
            read = ReadChunk(self.source, offset, self._length(offset))
            self._outstanding[offset] = read
            reads.append(read)
        return reads

    def _length(self, offset: int) -> int:
        if not offset:
            return self._first_bytes
        return min(self._chunk_bytes, (self.size_bytes or 0) - offset)

    def received(self, read: ReadChunk, total_bytes: int) -> bool:
        """A chunk arrived. False when it is not wanted (any more): late, or of another size than
        announced."""
        if self._outstanding.get(read.offset) is not read:
            return False
        if self.size_bytes is None:
            self.size_bytes = total_bytes
            self._missing += range(self._first_bytes, total_bytes, self._chunk_bytes)
            self.state = PullState.COPYING
        elif total_bytes != self.size_bytes:
            self.source_failed(read.source)
            return False
        del self._outstanding[read.offset]
        if not self._missing and not self._outstanding:
            self.state = PullState.DONE
        return True

    def source_failed(self, source: bytes) -> None:
        """The node is gone or has no copy: its chunks are asked for elsewhere."""
        if source != self.source or self.state in (PullState.DONE, PullState.LOST):
            return
        self._sources.pop(0)
        self._missing = sorted([*self._missing, *self._outstanding])
        self._outstanding.clear()
        if not self._sources:
            self.state = PullState.LOST


class BytesBudget:
    """A bound on the bytes in flight over all pulls of a node. A single request above the bound passes
    alone."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self.used_bytes = 0

    def take(self, size_bytes: int) -> bool:
        """Takes `size_bytes` when they fit now."""
        if self.used_bytes and self.used_bytes + size_bytes > self._limit:
            return False
        self.used_bytes += size_bytes
        return True

    def give_back(self, size_bytes: int) -> None:
        self.used_bytes -= size_bytes
