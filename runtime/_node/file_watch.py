"""Notifies when files grow, instead of polling them. Source: inotify(7)."""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import Callable
from typing import Any

_IN_MODIFY = 0x2
_IN_ONESHOT = 0x80000000
_EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the name that follows
_READ_BYTES = 1 << 16


class FileWatch:
    """Watches files until each has changed once. Where the kernel has no room for that, it watches nothing.

    Args:
        changed: called when a watched file was written to; that file is not watched any more.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._libc: Any = None
        self._fd = -1
        self._watches: dict[str, int] = {}
        self._paths: dict[int, str] = {}

    def add(self, path: str) -> bool:
        """Watches a file, if it does not already. False when it cannot."""
        if path in self._watches:
            return True
        if self._fd < 0 and not self._open():
            return False
        watch = self._libc.inotify_add_watch(self._fd, os.fsencode(path), _IN_MODIFY | _IN_ONESHOT)
        if watch < 0:
            return False
        self._watches[path] = watch
        self._paths[watch] = path
        return True

    def remove(self, path: str) -> None:
        """Forgets a file."""
        watch = self._watches.pop(path, None)
        if watch is not None:
            del self._paths[watch]
            self._libc.inotify_rm_watch(self._fd, watch)  # fails when the file is gone, and the watch with it

    def close(self) -> None:
        """Watches nothing any more."""
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
        self._watches.clear()
        self._paths.clear()

    def _open(self) -> bool:
        import ctypes  # a node that watches nothing yet comes up faster without it

        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            return False
        asyncio.get_running_loop().add_reader(self._fd, self._read)
        return True

    def _read(self) -> None:
        try:
            events = os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return
        offset, changed = 0, False
        while offset < len(events):
            watch, mask, _, length = _EVENT.unpack_from(events, offset)
            offset += _EVENT.size + length
            path = self._paths.pop(watch, None)
            if path is not None:
                del self._watches[path]
                changed |= bool(mask & _IN_MODIFY)
        if changed:
            self._changed()
