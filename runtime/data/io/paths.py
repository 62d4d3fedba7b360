"""From what the user names to files with sizes: folders, globs, lists, file extensions."""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from runtime.data.io.filesystems import is_local

if TYPE_CHECKING:
    import pyarrow.fs as pafs

_WILDCARD = re.compile(r"[*?\[]")
STAGING = ".staging-"
"""How the names of folders begin in which writes that have not ended keep their files."""
_LOOKUPS = 16  # files looked up at once on a remote file system


class File(NamedTuple):
    """A file to read, or a part of one: the rows that begin in its bytes.

    `size_bytes` is 0 where the file system does not tell it. `start`: the first byte of a part.
    """

    path: str
    size_bytes: int
    start: int = 0
    is_whole: bool = True


def expand(
    filesystem: pafs.FileSystem,
    paths: Sequence[str],
    extensions: Sequence[str] | None = None,
    ignore_missing: bool = False,
    keep: Callable[[str], bool] | None = None,
) -> list[File]:
    """The files that paths stand for, in the order of `paths`, those of a folder or pattern by name.

    Folders are walked; what lies directly in them and starts with "." or "_" is skipped, as are unfinished writes at
    any depth. Patterns have `*`, `?`, `[...]` and `**` for any number of folders; the same holds for the folder before
    the first of these.

    Args:
        filesystem: Where the paths are.
        paths: Files, folders, or patterns.
        extensions: Endings ("csv", "json.gz") that the files must have, in any case.
        ignore_missing: Whether to skip paths that do not exist.
        keep: Which files to keep.

    Raises:
        FileNotFoundError: A path does not exist, or no file matches a pattern.
        ValueError: No file is left.
    """
    found = [file for files in _look_up(filesystem, paths, ignore_missing) for file in files]
    if extensions is not None:
        endings = tuple("." + extension.lower().lstrip(".") for extension in extensions)
        matching = [file for file in found if file.path.partition("?")[0].lower().endswith(endings)]
        if found and not matching:
            raise ValueError(
                f"No input file has one of the file extensions {list(extensions)}; found for example {found[0].path}."
                " Set file_extensions to read other files, or to None for all."
            )
        found = matching
    if keep is not None:
        found = [file for file in found if keep(file.path)]
    if not found and not ignore_missing:
        raise ValueError(
            f"There is no file to read in {list(paths)[:5]}. Names in a folder that start with '.' or '_' are skipped; "
            "name such a file or folder itself to read it."
        )
    return found


def _look_up(filesystem: pafs.FileSystem, paths: Sequence[str], ignore_missing: bool) -> Iterable[list[File]]:
    import pyarrow.fs as pafs

    infos = iter(_infos(filesystem, paths))
    for path in paths:
        info = next(infos)
        if info.type == pafs.FileType.Directory:
            yield _walk(filesystem, path)
        elif info.type != pafs.FileType.NotFound:
            yield [File(path, info.size or 0)]
        elif _WILDCARD.search(path) and "://" not in path:
            matching = _glob(filesystem, path)
            if not matching and not ignore_missing:
                raise FileNotFoundError(f"No file matches {path}")
            yield matching
        elif not ignore_missing:
            raise FileNotFoundError(path)


def _infos(filesystem: pafs.FileSystem, paths: Sequence[str]) -> list[pafs.FileInfo]:
    if is_local(filesystem) or len(paths) == 1:
        return list(filesystem.get_file_info(list(paths)))
    with ThreadPoolExecutor(min(_LOOKUPS, len(paths))) as pool:
        return list(pool.map(filesystem.get_file_info, paths))


def _walk(filesystem: pafs.FileSystem, folder: str) -> list[File]:
    import pyarrow.fs as pafs

    base = folder.rstrip("/") + "/"
    infos = filesystem.get_file_info(pafs.FileSelector(folder, recursive=True))
    files = [
        File(info.path, info.size or 0)
        for info in infos
        if info.type == pafs.FileType.File and not _is_hidden(info.path.removeprefix(base))
    ]
    return sorted(files)


def _is_hidden(relative: str) -> bool:
    return relative.startswith((".", "_")) or f"/{STAGING}" in relative


def _glob(filesystem: pafs.FileSystem, pattern: str) -> list[File]:
    """The files that match, and those in folders that match."""
    parts = pattern.split("/")
    first = next(index for index, part in enumerate(parts) if _WILDCARD.search(part))
    base = "/".join(parts[:first]) or ("/" if pattern.startswith("/") else ".")
    wanted = parts[first:]
    return [
        file for file in _below(filesystem, base) if _matches(_relative(file.path, base).split("/"), wanted)
    ]


def _below(filesystem: pafs.FileSystem, base: str) -> list[File]:
    import pyarrow.fs as pafs

    if filesystem.get_file_info(base).type == pafs.FileType.NotFound:
        return []
    return _walk(filesystem, base)


def _relative(path: str, base: str) -> str:
    return path.removeprefix(base.rstrip("/") + "/") if base != "." else posixpath.normpath(path)


def _matches(parts: list[str], wanted: list[str]) -> bool:
    """Whether a path, or a folder that it lies in, matches the pattern."""
    if not wanted:
        return True
    if wanted[0] == "**":
        return any(_matches(parts[skipped:], wanted[1:]) for skipped in range(len(parts)))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], wanted[0]) and _matches(parts[1:], wanted[1:])
