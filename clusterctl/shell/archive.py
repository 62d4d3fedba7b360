"""Files as one stream, so that a copy costs one round trip however many there are."""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO

_BLOCK = 256 * 1024
_END = bytes(2 * tarfile.BLOCKSIZE)


@dataclass(frozen=True, slots=True)
class File:
    """A file as `name`. `path`: where it is here."""

    name: str
    path: str


def packed(items: Iterable[File]) -> Iterator[bytes]:
    """An archive of single files, in portions.

    Raises:
        OSError: one cannot be read, or becomes shorter meanwhile.
    """
    for item in items:
        with open(item.path, "rb") as file:
            status = os.fstat(file.fileno())
            member = tarfile.TarInfo(item.name)
            member.size, member.mode = status.st_size, stat.S_IMODE(status.st_mode)
            yield member.tobuf(tarfile.GNU_FORMAT)  # every tar knows how it writes long names
            yield from _read(file, member.size)
            yield bytes(-member.size % tarfile.BLOCKSIZE)
    yield _END


def _read(file: IO[bytes], left: int) -> Iterator[bytes]:
    while left:
        block = file.read(min(left, _BLOCK))
        if not block:
            raise OSError(f"{file.name} became shorter while it was read")
        left -= len(block)
        yield block


def unpacking(folder: str) -> str:
    """Command: unpacks its input in a folder, as a shell reads it, which is made where it is missing. Says so where
    it fails for a full disk, for which tar has many words."""
    free = f"df -Pk {folder} 2>/dev/null | {{ read -r line; read -r disk size used free rest; echo ${{free:-1024}}; }}"
    full = f'{{ [ "$({free})" -ge 1024 ] || echo "the disk of {folder} is full"; false; }}'
    return f"{{ [ -d {folder} ] || mkdir -p {folder}; }} && {{ tar -xpof - -C {folder} || {full}; }}"
