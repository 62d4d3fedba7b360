"""The journal of an experiment, in its folder.

Where the folder is local, a record is in the file when `write` returns, so the sudden end of this process loses
nothing; `flush` has it survive a power cut. In a remote storage `flush` writes what has come since as one more file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from runtime.train._run.storage import RunStorage
from runtime.tune._core import records


class Journal:
    """Appends to an experiment's journal. Belongs to one thread.

    Args:
        storage: of the experiment's folder.
        stamp: of the experiment: the folder may have journals of former ones.

    Raises:
        OSError, StorageError: it cannot be written.
    """

    def __init__(self, storage: RunStorage, stamp: str) -> None:
        self._storage = storage
        self._stamp = stamp
        self._buffer = bytearray()
        self._is_dirty = False
        self._segments = 0
        self._fd = -1
        if storage.is_local:
            path = os.path.join(storage.folder, name_of(stamp))
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            end = records.whole(_all_of(self._fd))
            os.ftruncate(self._fd, end)  # what a power cut has left half written
        else:
            self._segments = len(list(_segments(storage, stamp)))

    def write(self, record: records.Record) -> None:
        """Appends a record."""
        frame = records.encode(record)
        self._is_dirty = True
        if self._fd >= 0:
            view = memoryview(frame)
            while view:
                view = view[os.write(self._fd, view) :]
        else:
            self._buffer += frame

    def flush(self) -> None:
        """Has the records survive."""
        if not self._is_dirty:
            return
        self._is_dirty = False
        if self._fd >= 0:
            os.fdatasync(self._fd)
        else:
            self._storage.write(_segment(self._stamp, self._segments), bytes(self._buffer))
            self._segments += 1
            self._buffer.clear()

    def close(self) -> None:
        """Flushes, and writes no more."""
        self.flush()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def name_of(stamp: str) -> str:
    """The name of an experiment's journal in a local folder."""
    return f"journal-{stamp}.bin"


def read(storage: RunStorage, stamp: str) -> list[records.Record]:
    """The records of an experiment's journal; empty: there is none.

    Raises:
        StorageError: it cannot be read.
    """
    data = storage.read(name_of(stamp)) if storage.is_local else b"".join(_segments(storage, stamp))
    return list(records.decode(data))


def _all_of(fd: int) -> bytes:
    with os.fdopen(os.dup(fd), "rb") as file:
        file.seek(0)
        return file.read()


def _segments(storage: RunStorage, stamp: str) -> Iterator[bytes]:
    number = 0
    while data := storage.read(_segment(stamp, number)):
        yield data
        number += 1


def _segment(stamp: str, number: int) -> str:
    return f"journal-{stamp}/{number:06d}.bin"
