"""Where objects go for which there is no memory: one file each, in a private directory of the node.

Readers map a file as they map the shared memory, so nothing is ever brought back: the kernel keeps in memory what is
read often. Every method but `delete` may block and belongs on a thread.
"""

from __future__ import annotations

import errno
import itertools
import os

from runtime._system import files

FULL_FROM = 0.95
"""Share of the file system above which nothing more is written to it."""


class SpillDirectory:
    """Files of objects. The directory is made with the first one and goes with `close`.

    Args:
        path: of the directory; its parents may not exist yet.
        full_from: see `FULL_FROM`.
    """

    def __init__(self, path: str, full_from: float = FULL_FROM) -> None:
        self.path = path
        self._full_from = full_from
        self._numbers = itertools.count(1)

    def write(self, name: str, data: memoryview) -> str:
        """Writes a new file and returns its path.

        Raises:
            OSError: among others ENOSPC when the disk is (nearly) full.
        """
        path, fd = self._open(name, len(data))
        try:
            done = 0
            while done < len(data):  # without slices that outlive this: the mapping is closed some day
                done += os.pwrite(fd, data[done:], done)
        except BaseException:
            os.unlink(path)
            raise
        finally:
            os.close(fd)
        return path

    def reserve(self, name: str, size_bytes: int) -> str:
        """Makes a file of this size whose blocks are really there, to be mapped and written by others.

        Raises:
            OSError: see `write`.
        """
        path, fd = self._open(name, size_bytes)
        try:
            os.posix_fallocate(fd, 0, size_bytes)
        except BaseException:
            os.unlink(path)
            raise
        finally:
            os.close(fd)
        return path

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Part of a file.

        Raises:
            OSError: it is gone.
        """
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(fd, length, offset)
        finally:
            os.close(fd)

    def write_at(self, path: str, offset: int, data: bytes | memoryview) -> None:
        """Fills part of a reserved file.

        Raises:
            OSError: it is gone.
        """
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            view = memoryview(data)
            while view:
                done = os.pwrite(fd, view, offset)
                view, offset = view[done:], offset + done
        finally:
            os.close(fd)

    def delete(self, path: str) -> None:
        """Removes a file; who has mapped it keeps its contents."""
        files.remove(path)

    def close(self) -> None:
        """Removes everything."""
        files.remove_tree(self.path)

    def _open(self, name: str, size_bytes: int) -> tuple[str, int]:
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        disk = os.statvfs(self.path)
        total, free = disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize
        if total - free + size_bytes > total * self._full_from:
            raise OSError(
                errno.ENOSPC,
                f"{size_bytes} more bytes would fill the disk to more than {self._full_from:.0%}",
                self.path,
            )
        path = os.path.join(self.path, f"{name}-{next(self._numbers)}")
        return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
