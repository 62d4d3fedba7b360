"""Files mapped into memory without a descriptor that stays open: a program may read thousands of objects in place."""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from typing import Any

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FAILED = ctypes.c_void_p(-1).value


def map_private(path: str, offset: int, size_bytes: int, keeps: object) -> ctypes.Array[ctypes.c_ubyte]:
    """A part of a file as memory of one's own: pages are shared until they are written to. `keeps` lives as long.

    Raises:
        OSError: it cannot be opened or mapped.
    """
    start = offset - offset % mmap.PAGESIZE
    length = offset + size_bytes - start
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        address = _libc.mmap(None, length, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE, fd, start)
        if address == _FAILED:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        os.close(fd)
    block: Any = (ctypes.c_ubyte * size_bytes).from_address(address + offset - start)
    weakref.finalize(block, _unmap, address, length, keeps).atexit = False
    return block  # type: ignore[no-any-return]


def _unmap(address: int, length: int, _keeps: object) -> None:
    _libc.munmap(address, length)


def map(path: str, size_bytes: int) -> ctypes.Array[ctypes.c_ubyte]:
    """The first `size_bytes` of a file, shared and writable, until the array and everything over it is gone.

    Raises:
        OSError: it cannot be opened or mapped.
    """
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        address = _libc.mmap(None, size_bytes, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
        if address == _FAILED:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        os.close(fd)
    block: Any = (ctypes.c_ubyte * size_bytes).from_address(address)
    weakref.finalize(block, _libc.munmap, address, size_bytes).atexit = False
    return block  # type: ignore[no-any-return]
