"""The shared memory of one channel: an anonymous file with the ring's slots, then the blocks of larger values.

A slot is a head (kind, length, and a block's offset and size) and room for small values. A block begins with a byte
per reader, 1 while the reader may still look at it. Nothing has a name in a file system: the memory goes with the last
process that maps it.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from collections.abc import Sequence
from typing import Any

import msgspec

from runtime._wire import serialization

from .blocks import Blocks

HEAD = struct.Struct("<QQQQ")  # kind, length in the slot, offset and size of a block
PICKLE, PACKED, BLOCK, PLAIN = range(4)
"""What a value is: a pickle in its slot; a pickle and buffers, in its slot; the same, in a block; in its slot, what
`serialization.dump_plain` gave, which needs no care when it is read."""

NO_BUFFERS: Sequence[Any] = ()


class Geometry(msgspec.Struct, frozen=True):
    """How the memory is laid out.

    Attributes:
        capacity: number of slots.
        slot_bytes: room in a slot for a small value.
        readers: number of readers.
    """

    capacity: int
    slot_bytes: int
    readers: int

    @property
    def stride(self) -> int:
        """Bytes from slot to slot."""
        return HEAD.size + self.slot_bytes

    @property
    def blocks_at(self) -> int:
        """Where the blocks begin."""
        size = self.capacity * self.stride
        return size + -size % mmap.PAGESIZE

    @property
    def flags_bytes(self) -> int:
        """The beginning of a block, before the value."""
        return self.readers + -self.readers % serialization.ALIGNMENT


class WriterMemory:
    """The writer's side.

    Args:
        geometry: of a new memory.
    """

    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry
        self.fd = os.memfd_create("clusterctl-channel", os.MFD_CLOEXEC)
        self._stride = geometry.stride
        self._view = memoryview(b"")
        self._resize(0)
        self._blocks = Blocks(0, self._is_free, self._resize)

    def _resize(self, blocks_bytes: int) -> None:
        """Old mappings of readers stay valid, for the pages of the file stay where they are."""
        size = self.geometry.blocks_at + blocks_bytes
        os.ftruncate(self.fd, size)
        self._view = memoryview(mmap.mmap(self.fd, size))

    def _is_free(self, offset: int) -> bool:
        start = self.geometry.blocks_at + offset
        return not any(self._view[start : start + self.geometry.readers])

    @property
    def blocks(self) -> Blocks:
        """The blocks of larger values."""
        return self._blocks

    def write(self, slot: int, value: bytes | serialization.Serialized) -> None:
        """Writes a value for every reader to take. Bytes are the pickle of a plain value."""
        if isinstance(value, bytes):
            kind, data, buffers = PLAIN, value, NO_BUFFERS
        else:
            kind, data, buffers = PICKLE, value.data, value.buffers
        at = slot * self._stride
        if not buffers and len(data) <= self.geometry.slot_bytes:
            start = at + HEAD.size
            self._view[start : start + len(data)] = data
            HEAD.pack_into(self._view, at, kind, len(data), 0, 0)
        else:
            self._write_large(at, data, buffers)

    def _write_large(self, at: int, data: bytes, buffers: Sequence[Any]) -> None:
        geometry = self.geometry
        size, offsets = serialization.layout(data, buffers)
        if size <= geometry.slot_bytes:
            start = at + HEAD.size
            serialization.write_block(self._view[start : start + size], data, buffers, offsets)
            HEAD.pack_into(self._view, at, PACKED, size, 0, 0)
            return
        offset = geometry.blocks_at + self._blocks.allocate(geometry.flags_bytes + size)
        start = offset + geometry.flags_bytes
        serialization.write_block(self._view[start : start + size], data, buffers, offsets)
        self._view[offset : offset + geometry.readers] = b"\x01" * geometry.readers
        HEAD.pack_into(self._view, at, BLOCK, 0, offset, size)

    def close(self) -> None:
        """Gives the memory up here; readers keep it while they need it."""
        self._view = memoryview(b"")
        os.close(self.fd)


class ReaderMemory:
    """A reader's side.

    Args:
        fd: the file, taken over.
        geometry: of the memory.
        index: which reader this is.
    """

    def __init__(self, fd: int, geometry: Geometry, index: int) -> None:
        self.fd = fd
        self._geometry = geometry
        self._stride = geometry.stride
        self._index = index
        self._map: mmap.mmap | bytearray = mmap.mmap(fd, os.fstat(fd).st_size)
        self._view = memoryview(self._map)

    def read(self, slot: int) -> tuple[int, memoryview, Block | None]:
        """The kind and bytes of a value, and its block if it has one. Bytes in the slot are the reader's until it says
        that it has taken the value; those of a block until `Block.release`."""
        at = slot * self._stride
        kind, length, offset, size = HEAD.unpack_from(self._view, at)
        if kind != BLOCK:
            start = at + HEAD.size
            return kind, self._view[start : start + length], None
        geometry = self._geometry
        end = offset + geometry.flags_bytes + size
        if end > len(self._view):
            # Arrays over the old mapping keep it.
            self._map = mmap.mmap(self.fd, os.fstat(self.fd).st_size)
            self._view = memoryview(self._map)
        block = Block(self._view, offset + self._index)
        whole = (ctypes.c_ubyte * size).from_buffer(self._map, offset + geometry.flags_bytes)
        return kind, memoryview(whole).cast("B"), block

    def close(self) -> None:
        """Gives the memory up; arrays that lie in it keep their mapping."""
        self._map = bytearray()
        self._view = memoryview(self._map)
        os.close(self.fd)


class Block:
    """A reader's claim on a block."""

    __slots__ = ("_at", "_view")

    def __init__(self, view: memoryview, at: int) -> None:
        self._view = view
        self._at = at

    def release(self) -> None:
        """The writer may reuse the block. Safe in a finalizer."""
        self._view[self._at] = 0
