"""The node's shared memory: one sparse anonymous file, mapped by every process of the node."""

from __future__ import annotations

import mmap
import os

from runtime._core.allocator import PAGE


class Arena:
    """Shared memory of `capacity_bytes` (rounded down to pages). It vanishes with the last process that maps
    it.

    Other processes of the same user open `path` and map it; nothing is ever visible in a file system.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = max(capacity_bytes - capacity_bytes % PAGE, PAGE)
        self.fd = os.memfd_create("clusterctl-store", os.MFD_CLOEXEC)
        os.ftruncate(self.fd, self.capacity_bytes)
        self._map = mmap.mmap(self.fd, self.capacity_bytes)
        self._view = memoryview(self._map)
        self.path = f"/proc/{os.getpid()}/fd/{self.fd}"

    def view(self, offset: int, length: int) -> memoryview:
        """A range itself, to be released before `close`."""
        return self._view[offset : offset + length]

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Fills a range."""
        self._view[offset : offset + len(data)] = data

    def give_back(self, offset: int, length: int) -> None:
        """Returns the memory of a range of whole pages to the system; it reads as zeros from then on, everywhere."""
        self._map.madvise(mmap.MADV_REMOVE, offset, length)

    def close(self) -> None:
        """Gives this process's mapping up."""
        self._view.release()
        self._map.close()
        os.close(self.fd)
