"""File systems as checkpoints need them: local ones by the operating system, all others by fsspec, which also wraps
those of pyarrow. Local paths import neither library."""

from __future__ import annotations

import functools
import importlib.util
import io
import os
import re
import stat
import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, Protocol, cast

from runtime.train._core.manifest import FileRecord

BLOCK_BYTES = 1 << 20
"""Read, hashed and written at once while it is in the processor's cache."""
SMALL_BYTES = 4 << 20
"""Files up to this size go to a remote file system in one request."""

_ARROW_SCHEMES = ("s3", "gs", "gcs", "hdfs", "viewfs")
_OBJECT_STORES = frozenset(
    {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "cos", "memory", "hf"}
)
"""File systems in which a file appears when it is complete, and folders need not be made."""


class Files(Protocol):
    """A file system. Paths are its own, with "/" between folders."""

    is_local: bool

    def walk(self, folder: str) -> dict[str, int]:
        """The files below a folder: sizes in bytes by path within it. Follows symbolic links.

        Raises:
            FileNotFoundError: there is no such folder.
        """

    def names(self, folder: str) -> list[str]:
        """What is directly in a folder; nothing if it does not exist."""

    def size(self, path: str) -> int | None:
        """The size of a file in bytes; None: there is none."""

    def open(self, path: str) -> BinaryIO:
        """Opens a file for reading."""

    def read(self, path: str) -> bytes:
        """A file's content."""

    def write(self, path: str, data: bytes, draft: str) -> None:
        """Replaces a file atomically and durably, and makes the folders above it. `draft`: see `create`."""

    def create(self, path: str, size_bytes: int, draft: str) -> Any:
        """A context with a file to write; the file appears at `path` when the context ends without an error.

        Args:
            path: of the file.
            size_bytes: of what will be written.
            draft: where it may be written before, on the same file system.
        """

    def settle(self, file: Any) -> None:
        """What was written to a file of `create` survives a power failure when this returns."""

    def settle_names(self, folder: str) -> None:
        """The names in a folder survive a power failure when this returns."""

    def remove(self, path: str) -> None:
        """Removes a file or a folder with all that is in it, if it exists."""

    def make_folder(self, path: str) -> None:
        """Makes a folder and those above it, where the file system has folders."""


class LocalFiles:
    """The file system of this machine."""

    is_local = True

    def walk(self, folder: str) -> dict[str, int]:
        found: dict[str, int] = {}
        self._walk(folder, "", found, ())
        return found

    def _walk(
        self, folder: str, prefix: str, found: dict[str, int], above: tuple[tuple[int, int], ...]
    ) -> None:
        own = os.stat(folder)
        if (own.st_dev, own.st_ino) in above:  # a symbolic link to a folder above
            return
        for entry in os.scandir(folder):
            facts = entry.stat()
            if stat.S_ISDIR(facts.st_mode):
                self._walk(entry.path, f"{prefix}{entry.name}/", found, (*above, (own.st_dev, own.st_ino)))
            elif stat.S_ISREG(facts.st_mode):
                found[prefix + entry.name] = facts.st_size

    def names(self, folder: str) -> list[str]:
        try:
            return os.listdir(folder)
        except FileNotFoundError:
            return []

    def size(self, path: str) -> int | None:
        try:
            return os.stat(path).st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def open(self, path: str) -> BinaryIO:
        return cast(BinaryIO, open(path, "rb", buffering=0))

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def write(self, path: str, data: bytes, draft: str) -> None:
        with self.create(path, len(data), draft) as file:
            file.write(data)
            self.settle(file)
        self.settle_names(os.path.dirname(path))

    @contextmanager
    def create(self, path: str, size_bytes: int, draft: str) -> Iterator[BinaryIO]:
        for folder in (os.path.dirname(path), os.path.dirname(draft)):
            os.makedirs(folder, exist_ok=True)
        try:
            with open(draft, "wb", buffering=0) as file:
                yield cast(BinaryIO, _Whole(file))
            os.replace(draft, path)
        except BaseException:
            with suppress(OSError):
                os.remove(draft)
            raise

    def settle(self, file: Any) -> None:
        os.fsync(file.fileno())

    def settle_names(self, folder: str) -> None:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def remove(self, path: str) -> None:
        import shutil

        try:
            if stat.S_ISDIR(os.lstat(path).st_mode):
                shutil.rmtree(path)
            else:
                os.remove(path)
        except FileNotFoundError:
            pass

    def make_folder(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)


class RemoteFiles:
    """A file system of fsspec."""

    is_local = False

    def __init__(self, filesystem: Any) -> None:
        self.filesystem = filesystem
        self._folders: set[str] = set()
        own = getattr(filesystem, "fs", None)  # of pyarrow, if it is wrapped
        names = filesystem.protocol if not isinstance(filesystem.protocol, str) else (filesystem.protocol,)
        self._is_object_store = bool(
            _OBJECT_STORES.intersection({*names, str(getattr(own, "type_name", ""))})
        )

    def walk(self, folder: str) -> dict[str, int]:
        self.filesystem.invalidate_cache(folder)
        if not self.filesystem.isdir(folder):
            raise FileNotFoundError(2, "There is no such folder", folder)
        start = folder.strip("/")
        found = {}
        for path, facts in self.filesystem.find(folder, detail=True).items():
            inner = path.strip("/").removeprefix(start).strip("/")
            if inner and facts["type"] == "file":
                found[inner] = int(facts["size"])
        return found

    def names(self, folder: str) -> list[str]:
        self.filesystem.invalidate_cache(folder)
        try:
            paths = self.filesystem.ls(folder, detail=False)
        except FileNotFoundError:
            return []
        found = {
            path.rstrip("/").rpartition("/")[2] for path in paths if path.strip("/") != folder.strip("/")
        }
        return sorted(found)

    def size(self, path: str) -> int | None:
        self.filesystem.invalidate_cache(path.rpartition("/")[0])
        try:
            return int(self.filesystem.info(path)["size"])
        except (FileNotFoundError, NotADirectoryError):
            return None

    def open(self, path: str) -> BinaryIO:
        return cast(BinaryIO, self.filesystem.open(path, "rb"))

    def read(self, path: str) -> bytes:
        return bytes(self.filesystem.cat_file(path))

    def write(self, path: str, data: bytes, draft: str) -> None:
        with self.create(path, len(data), draft) as file:
            file.write(data)

    @contextmanager
    def create(self, path: str, size_bytes: int, draft: str) -> Iterator[BinaryIO]:
        target = path if self._is_object_store else draft
        for each in {path, target}:
            self.make_folder(each.rpartition("/")[0])
        if size_bytes <= SMALL_BYTES:
            buffer = io.BytesIO()
            yield buffer
            self.filesystem.pipe_file(target, buffer.getvalue())
        else:
            # Closed after an error it may leave a part of the file, which no manifest names.
            with self.filesystem.open(target, "wb") as file:
                yield file
        if target != path:
            self.filesystem.mv(target, path)

    def settle(self, file: Any) -> None:
        pass  # a storage takes care of that

    def settle_names(self, folder: str) -> None:
        pass

    def remove(self, path: str) -> None:
        self.filesystem.invalidate_cache(path)
        try:
            self.filesystem.rm(path, recursive=True)
        except FileNotFoundError:
            pass
        self._folders.clear()

    def make_folder(self, path: str) -> None:
        if not self._is_object_store and path not in self._folders:
            self.filesystem.makedirs(path, exist_ok=True)
            self._folders.add(path)


def copy(
    source: Files,
    path: str,
    target: Files,
    new_path: str,
    size_bytes: int,
    draft: str,
    beat: Callable[[], None],
    is_durable: bool = False,
) -> FileRecord:
    """Copies a file; it appears when it is complete. `beat` is called after each block. With `is_durable` it survives
    a power failure when it appears. After an error of that the whole copy must be repeated: the system tells the error
    once, and takes the data for written afterwards.

    The hash is CRC-32: it finds damaged, cut and mixed-up files, but does not protect from forgery. Of 128 MiB in the
    page cache it takes 0.03 s, where the copy takes 0.06 s and SHA-256, by the processor's instructions for it, 0.09 s.
    """
    crc32, size = 0, 0
    with source.open(path) as reader, target.create(new_path, size_bytes, draft) as writer:
        for block in _blocks(reader, size_bytes):
            crc32 = zlib.crc32(block, crc32)
            writer.write(block)
            size += len(block)
            beat()
        if is_durable:
            target.settle(writer)
    return FileRecord(size, crc32)


def _blocks(reader: Any, size_bytes: int) -> Iterator[memoryview | bytes]:
    if not hasattr(reader, "readinto"):
        while data := reader.read(BLOCK_BYTES):
            yield data
        return
    view = memoryview(bytearray(min(BLOCK_BYTES, max(size_bytes, 1))))
    while count := reader.readinto(view):
        yield view[:count]


def draft_in(folder: str) -> str:
    """A new path for `Files.create`."""
    return f"{folder}/{uuid.uuid4().hex}.draft"


# ------------------------------------------------------------ which file system


def is_local(path: str, filesystem: Any = None) -> bool:
    """Whether a path is in the file system of this machine. Imports nothing."""
    if filesystem is None:
        return _scheme(path) in ("", "file", "local")
    return type(filesystem).__name__ in ("LocalFileSystem", "_LocalFileSystem") and type(
        filesystem
    ).__module__.startswith(("fsspec.", "pyarrow."))


def local_path(path: str) -> str:
    """An absolute path of the operating system."""
    inner = path.partition("://")[2]
    return os.path.abspath(os.path.expanduser(inner if _scheme(path) in ("file", "local") else path))


def join(path: str, *names: str) -> str:
    """A path or URI of something in a folder; a query of the URI stays at its end."""
    base, query = _split_query(path)
    return "/".join([base.rstrip("/"), *(name for name in names if name)]) + query


def split(path: str) -> tuple[str, str]:
    """The path or URI of the folder of something, and its name in there."""
    base, query = _split_query(path)
    parent, _, name = base.rstrip("/").rpartition("/")
    return (parent or "/" if base.startswith("/") else parent) + query, name


def shown(path: str) -> str:
    """A path or URI for messages: without secrets that it may have."""
    base, _ = _split_query(path)
    return re.sub(r"://[^/@]*@", "://...@", base)


def _split_query(path: str) -> tuple[str, str]:
    base, separator, query = path.rpartition("?")
    return (base, separator + query) if _scheme(path) and "=" in query else (path, "")


def resolve(path: str, filesystem: Any = None) -> tuple[Files, str]:
    """The file system of a path or a URI, and the path in it.

    Args:
        path: a local path, a URI, or a path on `filesystem`.
        filesystem: of fsspec or `pyarrow.fs`.

    Raises:
        ImportError: a library for the scheme is not installed.
        TypeError: `filesystem` is something else.
    """
    if is_local(path, filesystem):
        return LocalFiles(), local_path(path)
    given = filesystem
    if given is None:
        given, path = _of_uri(path)
    elif "://" in path:
        path = path.partition("://")[2] if _is_arrow(given) else given._strip_protocol(path)
    return RemoteFiles(_wrapped(given)), path.rstrip("/")


def public(path: str, filesystem: Any = None) -> tuple[Any, str]:
    """The file system of a path or a URI as users get it, and the path in it: of pyarrow if it is installed and has the
    file system, otherwise of fsspec."""
    if filesystem is not None:
        return filesystem, path
    if not is_local(path):
        return _of_uri(path)
    if _has("pyarrow"):
        import pyarrow.fs as pafs

        return pafs.LocalFileSystem(), local_path(path)
    return _fsspec("file://").filesystem("file"), local_path(path)


def _of_uri(uri: str) -> tuple[Any, str]:
    scheme = _scheme(uri)
    if scheme in _ARROW_SCHEMES and _has("pyarrow"):
        bare, query = _split_query(uri)
        bare = bare.partition("://")[2]
        host, _, inner = bare.partition("/")  # the path needs no quoting, and may have any character
        base = f"{'gs' if scheme == 'gcs' else scheme}://{host}{query}"
        return arrow_of(base), f"/{inner}" if scheme in ("hdfs", "viewfs") else bare
    filesystem, path = _fsspec(uri).core.url_to_fs(uri)
    return filesystem, str(path)


@functools.lru_cache(maxsize=16)
def arrow_of(uri: str) -> Any:
    """The file system of pyarrow that a URI names. Kept, because it has connections."""
    import pyarrow.fs as pafs

    if uri.startswith("s3:"):
        try:
            # A small file is one request then, not three.
            delayed = f"{uri}{'&' if '?' in uri else '?'}allow_delayed_open=true"
            return pafs.FileSystem.from_uri(delayed)[0]
        except ValueError:
            pass  # a version of pyarrow that does not know it, or a URI that has it already
    return pafs.FileSystem.from_uri(uri)[0]


def _wrapped(filesystem: Any) -> Any:
    if _is_arrow(filesystem):
        handler = getattr(filesystem, "handler", None)
        if type(handler).__name__ == "FSSpecHandler":
            return cast(Any, handler).fs
        _fsspec("A file system of pyarrow")
        from fsspec.implementations.arrow import ArrowFSWrapper

        return ArrowFSWrapper(filesystem, skip_instance_cache=True)
    if hasattr(filesystem, "_strip_protocol") and hasattr(filesystem, "open"):
        return filesystem
    raise TypeError(f"A file system must be one of fsspec or pyarrow.fs, not {type(filesystem).__name__}.")


def _is_arrow(filesystem: Any) -> bool:
    return type(filesystem).__module__.startswith("pyarrow.")


def _fsspec(purpose: str) -> Any:
    if not _has("fsspec"):
        raise ImportError(
            f"{purpose} needs fsspec, which is not installed here: pip install 'clusterctl[train]'"
        )
    import fsspec.core

    return fsspec


def _has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _scheme(path: str) -> str:
    scheme, separator, _ = path.partition("://")
    return scheme.lower() if separator else ""


class _Whole:
    """A raw file whose `write` writes all of it: the system may take less at once, for example near a limit."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.fileno = file.fileno

    def write(self, data: Any) -> int:
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) :]
        return len(data)
