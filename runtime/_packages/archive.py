"""A folder as one reproducible zip, so that its digest decides whether it travels; and archives back into folders."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from runtime._system import settings

from . import ignore
from .tar import extract_all
from .walk import walk

DEFAULT_EXCLUDES = (".git", ".venv", "venv", "__pycache__")
CACHE_EXCLUDES = (".mypy_cache", ".pytest_cache", ".ruff_cache")
LIMIT_BYTES = 512 * 2**20
LIMIT_FILES = 50_000
_EPOCH = (1980, 1, 1, 0, 0, 0)


class PackageError(Exception):
    """A folder cannot be packed. `hint` says what to do."""

    def __init__(self, message: str, hint: str, too_large: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.too_large = too_large


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a manifest. `path` is relative to the root, with `/`."""

    path: str
    size_bytes: int
    executable: bool


@dataclass(frozen=True, slots=True)
class Package:
    """`data` is the archive, `digest` its SHA-256 in hex, `files` how many files are in it."""

    digest: str
    data: bytes
    files: int


def default_excludes() -> tuple[str, ...]:
    """The patterns that are left out unasked: RAY_OVERRIDE_RUNTIME_ENV_DEFAULT_EXCLUDES (by commas) replaces them."""
    chosen = settings.DEFAULT_EXCLUDES.get()
    if chosen is None:
        return (*DEFAULT_EXCLUDES, *CACHE_EXCLUDES)
    return tuple(name.strip() for name in chosen.split(",") if name.strip())


def manifest(root: str, excludes: Sequence[str] = (), use_gitignore: bool | None = None) -> list[Entry]:
    """The files of a folder that travel, sorted by path. .gitignore and .rayignore files are honoured; symbolic links
    are followed when they lead to files, and left out when they lead to folders (they could lead in circles).

    Args:
        excludes: further patterns in .gitignore's language.
        use_gitignore: default: yes, unless RAY_RUNTIME_ENV_IGNORE_GITIGNORE is 1. .rayignore always counts.

    Raises:
        PackageError: there are more than `LIMIT_FILES`, or something cannot be read.
    """
    if use_gitignore is None:
        use_gitignore = not settings.IGNORE_GITIGNORE.get()
    rule_files = (".gitignore", ".rayignore") if use_gitignore else (".rayignore",)
    fixed = ignore.parse("\n".join([*default_excludes(), *excludes]))
    entries: list[Entry] = []
    try:
        for path, item in walk(
            root, rule_files, lambda path, is_folder: ignore.ignored(path, is_folder, fixed)
        ):
            if item.is_dir(follow_symlinks=False) or (status := _regular_file(item)) is None:
                continue
            if len(entries) >= LIMIT_FILES:
                raise PackageError(
                    f"the folder {root} has more than {LIMIT_FILES} files",
                    "Leave files out with a .gitignore, or put the program into a folder of its own.",
                    too_large=True,
                )
            entries.append(Entry(path, status.st_size, bool(status.st_mode & stat.S_IXUSR)))
    except OSError as error:
        raise _unreadable(error) from error
    return sorted(entries, key=lambda entry: entry.path)


def _regular_file(item: os.DirEntry[str]) -> os.stat_result | None:
    """The file that an entry is or leads to; None for what is no file: pipes, links to nowhere or in circles."""
    try:
        status = item.stat()
    except OSError:
        if item.is_symlink():
            return None
        raise
    return status if stat.S_ISREG(status.st_mode) else None


def _unreadable(error: OSError) -> PackageError:
    return PackageError(
        f"{error.filename} cannot be read: {error.strerror}",
        "Allow it to be read, or leave it out with a .gitignore.",
    )


def pack(root: str, entries: Sequence[Entry], limit_bytes: int = LIMIT_BYTES, prefix: str = "") -> Package:
    """Packs a manifest.

    Args:
        prefix: a folder in the archive that all files are put into.

    Raises:
        PackageError: the files are more than `limit_bytes` together (the message names the biggest), or cannot be read.
    """
    total = sum(entry.size_bytes for entry in entries)
    if total > limit_bytes:
        biggest = sorted(entries, key=lambda entry: -entry.size_bytes)[:5]
        names = "\n".join(f"  {_size(entry.size_bytes):>10}  {entry.path}" for entry in biggest)
        raise PackageError(
            f"the folder {root} is {_size(total)}, more than the {_size(limit_bytes)} that a job may bring; "
            f"its biggest files are\n{names}",
            "Leave files out with a .gitignore, or put the program into a folder of its own.",
            too_large=True,
        )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for entry in entries:
            info = zipfile.ZipInfo(prefix + entry.path, _EPOCH)
            info.external_attr = (stat.S_IFREG | (0o755 if entry.executable else 0o644)) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            try:
                data = Path(root, entry.path).read_bytes()
            except OSError as error:
                raise _unreadable(error) from error
            archive.writestr(info, data)
    data = buffer.getvalue()
    return Package(hashlib.sha256(data).hexdigest(), data, len(entries))


def pack_file(path: str, limit_bytes: int = LIMIT_BYTES) -> Package:
    """An archive that exists already, as it is.

    Raises:
        PackageError: it is larger than `limit_bytes`, or cannot be read.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise _unreadable(error) from error
    if len(data) > limit_bytes:
        raise PackageError(
            f"{path} is {_size(len(data))}, more than the {_size(limit_bytes)} that a job may bring",
            "Put it where every node can read it, and give its URI.",
            too_large=True,
        )
    return Package(hashlib.sha256(data).hexdigest(), data, 1)


def unpack(data: bytes, folder: str) -> None:
    """Extracts a zip into a folder, modes included.

    Raises:
        ValueError: it is no zip, or a path leads out of the folder.
    """
    _unzip(io.BytesIO(data), folder)


def extract(archive: str, name: str, folder: str, strip_single_folder: bool) -> None:
    """Extracts an archive file into a folder.

    Args:
        name: its name, whose end tells its kind.
        strip_single_folder: where the archive holds one folder and nothing else, that folder's contents are extracted.

    Raises:
        ValueError: it is no such archive, or a path leads out of the folder.
        OSError: the disk refuses.
    """
    if name.endswith((".zip", ".whl")):
        _unzip(archive, folder)
    else:
        try:
            with tarfile.open(archive, "r:*") as tar:
                extract_all(tar, folder)
        except tarfile.TarError as error:
            raise ValueError(f"the package {name} cannot be unpacked: {error}") from error
    if strip_single_folder:
        shutil.rmtree(Path(folder, "__MACOSX"), ignore_errors=True)
        children = list(Path(folder).iterdir())
        if len(children) == 1 and children[0].is_dir():
            _lift(children[0], Path(folder))


def _lift(inner: Path, folder: Path) -> None:
    """Moves what is in `inner` one level up, into `folder`."""
    away = inner.rename(folder / f".{os.urandom(8).hex()}")
    for child in away.iterdir():
        child.rename(folder / child.name)
    away.rmdir()


def extract_wheel(wheel: str, folder: str) -> None:
    """Extracts a wheel so that `folder` can be put on `sys.path`.

    Raises:
        ValueError: it is no wheel.
    """
    _unzip(wheel, folder)
    for data in Path(folder).glob("*.data"):
        for kind in ("purelib", "platlib"):
            if (data / kind).is_dir():
                shutil.copytree(data / kind, folder, dirs_exist_ok=True)


def _unzip(source: str | io.BytesIO, folder: str) -> None:
    try:
        with zipfile.ZipFile(source) as archive:
            for info in archive.infolist():
                name = PurePosixPath(info.filename)
                if name.is_absolute() or ".." in name.parts:
                    raise ValueError(f"the package holds a path that leads out of it: {info.filename}")
                target = archive.extract(info, folder)
                mode = (info.external_attr >> 16) & 0o777
                if mode and not info.is_dir():
                    os.chmod(target, mode | stat.S_IRUSR | stat.S_IWUSR)
    except zipfile.BadZipFile as error:
        raise ValueError(f"the package is not a zip archive: {error}") from error


def in_place(folder: Path, build: Callable[[Path], object]) -> None:
    """Makes `folder` whole or not at all: `build` fills a draft that then gets its name."""
    draft = folder.with_name(f"{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True, mode=0o700)
    try:
        build(draft)
        if not folder.is_dir():
            draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _size(amount: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"
