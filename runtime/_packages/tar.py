"""Extracting tar archives that others made: nothing is written outside of the target folder.

Python can check members itself since 3.11.4. Debian 12 ships 3.11.2, so the same checks are here, too.
"""

from __future__ import annotations

import copy
import os
import tarfile
from typing import Any

_HAS_FILTERS = hasattr(tarfile, "data_filter")


class UnsafeMember(tarfile.TarError):
    """A member would be written outside of the folder, leads out of it, or is a device."""


def extract_all(archive: tarfile.TarFile, folder: str) -> None:
    """Extracts files, folders and links; owners and special permissions are dropped.

    Raises:
        tarfile.TarError: the archive is broken, or a member is unsafe (`UnsafeMember`, or Python's own error).
    """
    if _HAS_FILTERS:
        archive.extractall(folder, filter="data")
        return
    for member in archive:
        archive.extract(data_member(member, folder), folder)


def extract(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: str) -> None:
    """Extracts a member with its permissions. Its owner becomes the caller. A link may lead anywhere, but nothing is
    written through it to the outside.

    Raises:
        UnsafeMember: it would be written outside of `folder`, or is a hard link to a file outside.
    """
    mode = member.mode & 0o777
    checked = changed(inside(member, folder), mode=mode, uid=os.getuid(), gid=os.getgid(), uname="", gname="")
    if _HAS_FILTERS:
        archive.extract(checked, folder, filter="fully_trusted")
    else:
        archive.extract(checked, folder)


def changed(member: tarfile.TarInfo, **fields: Any) -> tarfile.TarInfo:
    """A copy with other values; `TarInfo.replace` came with Python 3.11.4."""
    new = copy.copy(member)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def inside(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo:
    """The member, whose name is relative now.

    Raises:
        UnsafeMember: it would be written outside of `folder`, perhaps through a symbolic link that is there already, or
            shares its content with a file outside.
    """
    name = member.name.lstrip("/")
    if not _is_below(os.path.join(folder, name), folder):
        raise UnsafeMember(f"{member.name} would be written outside of the folder")
    if member.islnk() and not _is_below(os.path.join(folder, member.linkname), folder):
        raise UnsafeMember(f"{member.name} is a link to {member.linkname}, outside of the folder")
    return changed(member, name=name)


def data_member(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo:
    """The member without its owner and special permissions.

    Raises:
        UnsafeMember: it would be written outside of `folder`, is a link that leads out of it, or is a device.
    """
    checked = inside(member, folder)
    mode = checked.mode & 0o755
    if checked.issym():
        target = os.path.join(folder, os.path.dirname(checked.name), checked.linkname)
        if os.path.isabs(checked.linkname) or not _is_below(target, folder):
            raise UnsafeMember(f"{member.name} is a link to {member.linkname}, outside of the folder")
    elif checked.isdir():
        mode = 0o755
    elif checked.isreg():
        mode = (mode if mode & 0o100 else mode & ~0o111) | 0o600
    elif not checked.islnk():
        raise UnsafeMember(f"{member.name} is a special file")
    return changed(checked, mode=mode, uid=os.getuid(), gid=os.getgid(), uname="", gname="")


def _is_below(path: str, folder: str) -> bool:
    root = os.path.realpath(folder)
    return os.path.commonpath([os.path.realpath(path), root]) == root
