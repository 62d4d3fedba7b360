"""Files and folders as one stream, so that a copy costs one round trip however many files there are."""

from __future__ import annotations

import os
import shlex
import stat
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO

from runtime._packages.tar import extract

_BLOCK = 256 * 1024
_END = bytes(2 * tarfile.BLOCKSIZE)


def pack(local: str, name: str, stream: IO[bytes]) -> None:
    """Writes a file as `name`, or what is in a folder below "."; sockets and the like are left out."""
    with tarfile.open(fileobj=stream, mode="w|", bufsize=_BLOCK) as archive:
        if not os.path.isdir(local):
            archive.add(os.path.realpath(local), name)
            return
        for entry in sorted(os.listdir(local)):
            archive.add(os.path.join(local, entry), f"./{entry}", filter=_plain)


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
            size = os.fstat(file.fileno()).st_size
            member = tarfile.TarInfo(item.name)
            member.size, member.mode = size, mode_of(item.path)
            yield _header(member)
            yield from _read(file, size)
            yield bytes(-size % tarfile.BLOCKSIZE)
    yield _END


def _header(member: tarfile.TarInfo) -> bytes:
    return member.tobuf(tarfile.GNU_FORMAT)  # every tar knows how it writes long names


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


def receiving(local: str, target: str) -> str:
    """Command: unpacks its input, which is what `pack` makes of `local`, as `target` (see `place`)."""
    parent = shlex.quote(os.path.dirname(target))
    if not os.path.isdir(local):
        return unpacking(parent)
    quoted = shlex.quote(target)
    make = f"mkdir -p {parent} && {{ [ -d {quoted} ] || mkdir -m {mode_of(local):o} {quoted}; }}"
    return f"{make} && {unpacking(quoted)}"


def sending(target: str) -> str:
    """Command: packs a file or folder for `unpack`."""
    parent, name = map(shlex.quote, os.path.split(target))
    quoted = shlex.quote(target)
    return f"if [ -d {quoted} ]; then tar -cf - -C {quoted} .; else tar -chf - -C {parent} -- {name}; fi"


def place(remote: str) -> str:
    """A machine's path as commands there take it, whatever it begins with; relative ones begin in the home folder."""
    path = remote.rstrip("/") or "/"
    path = "." if path == "~" else path.removeprefix("~/")
    return path if path.startswith("/") else f"./{path}"


def unpack(stream: IO[bytes], local: str) -> None:
    """Reads what a machine packed: its one file becomes `local`, or its folder's content goes into `local`.

    Nothing is written outside of `local`, whatever the stream says.
    """
    with tarfile.open(fileobj=stream, mode="r|", bufsize=_BLOCK) as archive:
        for member in archive:
            if member.name == ".":
                os.makedirs(local, exist_ok=True)
            elif member.name.startswith("./"):
                extract(archive, member, local)
            else:
                source = archive.extractfile(member)
                if source is None:
                    raise OSError(f"{member.name} is no file")
                with open(local, "wb") as file:
                    while block := source.read(_BLOCK):
                        file.write(block)
                    os.fchmod(file.fileno(), member.mode & 0o777)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return member if member.isreg() or member.isdir() or member.issym() or member.islnk() else None


def mode_of(local: str) -> int:
    """The permissions of a file or folder."""
    return stat.S_IMODE(os.stat(local).st_mode)
