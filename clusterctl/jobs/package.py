"""A folder as one reproducible zip: the same files give the same bytes, so its digest decides whether it
travels."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from clusterctl.errors import CliError, UsageProblem
from clusterctl.output import size

from . import ignore

DEFAULT_EXCLUDES = (
    ".git/",
    ".venv/",
    "venv/",
    "__pycache__/",
    ".mypy_cache/",
    ".pytest_cache/",
    ".ruff_cache/",
)
LIMIT_BYTES = 512 * 2**20
LIMIT_FILES = 50_000
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a manifest. `path` is relative to the root, with `/`."""

    path: str
    size_bytes: int
    executable: bool


@dataclass(frozen=True, slots=True)
class Package:
    """`data` is the zip, `digest` its SHA-256 in hex."""

    digest: str
    data: bytes
    files: int


def manifest(root: str, excludes: Sequence[str] = (), use_gitignore: bool = True) -> list[Entry]:
    """The files of a folder that travel, sorted by path. .gitignore files are honoured; symbolic links are
    followed when they lead to files, and left out when they lead to folders (they could lead in circles).

    Args:
        excludes: further patterns in .gitignore's language.

    Raises:
        UsageProblem: there are more than `LIMIT_FILES`.
    """
    fixed = ignore.parse("\n".join([*DEFAULT_EXCLUDES, *excludes]))
    entries: list[Entry] = []

    def visit(folder: str, inherited: list[ignore.Rule]) -> None:
        try:
            with os.scandir(os.path.join(root, folder)) as items:
                children = sorted(items, key=lambda item: item.name)
        except OSError as error:
            raise _unreadable(error) from error
        rules = inherited
        if use_gitignore:
            try:
                text = Path(root, folder, ".gitignore").read_text(encoding="utf-8", errors="replace")
                rules = [*inherited, *ignore.parse(text, folder)]
            except (FileNotFoundError, IsADirectoryError):
                pass
            except OSError as error:
                raise _unreadable(error) from error
        for item in children:
            path = f"{folder}/{item.name}" if folder else item.name
            is_folder = item.is_dir(follow_symlinks=False)
            if ignore.ignored(path, is_folder, fixed) or ignore.ignored(path, is_folder, rules):
                continue
            if is_folder:
                visit(path, rules)
            elif (status := _regular_file(item)) is not None:
                if len(entries) >= LIMIT_FILES:
                    raise UsageProblem(
                        f"the folder {root} has more than {LIMIT_FILES} files",
                        "Leave files out with a .gitignore, or put the script into a folder of its own.",
                    )
                entries.append(Entry(path, status.st_size, bool(status.st_mode & stat.S_IXUSR)))

    visit("", [])
    return sorted(entries, key=lambda entry: entry.path)


def _regular_file(item: os.DirEntry[str]) -> os.stat_result | None:
    """The file that an entry is or leads to; None for what is no file: pipes, links to nowhere or in circles."""
    try:
        status = item.stat()
    except OSError as error:
        if item.is_symlink():
            return None
        raise _unreadable(error) from error
    return status if stat.S_ISREG(status.st_mode) else None


def _unreadable(error: OSError) -> CliError:
    return CliError(
        f"{error.filename} cannot be read: {error.strerror}",
        "Allow it to be read, or leave it out with a .gitignore.",
    )


def pack(root: str, entries: Sequence[Entry], limit_bytes: int = LIMIT_BYTES) -> Package:
    """Packs a manifest.

    Raises:
        UsageProblem: the files are more than `limit_bytes` together; the message names the biggest.
        CliError: a file cannot be read.
    """
    total = sum(entry.size_bytes for entry in entries)
    if total > limit_bytes:
        biggest = sorted(entries, key=lambda entry: -entry.size_bytes)[:5]
        names = "\n".join(f"  {size(entry.size_bytes):>10}  {entry.path}" for entry in biggest)
        raise UsageProblem(
            f"the folder {root} is {size(total)}, more than the {size(limit_bytes)} that a job may bring; "
            f"its biggest files are\n{names}",
            "Leave files out with a .gitignore, or put the script into a folder of its own.",
        )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for entry in entries:
            info = zipfile.ZipInfo(entry.path, _EPOCH)
            info.external_attr = (stat.S_IFREG | (0o755 if entry.executable else 0o644)) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            try:
                data = Path(root, entry.path).read_bytes()
            except OSError as error:
                raise _unreadable(error) from error
            archive.writestr(info, data)
    data = buffer.getvalue()
    return Package(hashlib.sha256(data).hexdigest(), data, len(entries))


def unpack(data: bytes, folder: str) -> None:
    """Extracts a package into a new folder, modes included.

    Raises:
        ValueError: it is no zip, or a path leads out of the folder.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for info in archive.infolist():
                if os.path.isabs(info.filename) or ".." in Path(info.filename).parts:
                    raise ValueError(f"the package holds a path that leads out of it: {info.filename}")
                target = archive.extract(info, folder)
                mode = (info.external_attr >> 16) & 0o777
                if mode and not info.is_dir():
                    os.chmod(target, mode)
    except zipfile.BadZipFile as error:
        raise ValueError(f"the package is no zip: {error}") from error
