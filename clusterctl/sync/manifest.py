"""What a file or a folder holds: a line for each entry, and one digest over all of them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from clusterctl.sync.rules import Rules
from runtime._packages.walk import walk

FILE, FOLDER, LINK = "f", "d", "l"
DIGEST_BYTES = 20
_BLOCK = 1 << 20
_RACY_NS = 2_000_000_000
"""A file that was changed less than this ago may change again without a change of its time."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry.

    Attributes:
        path: relative to the root, with `/`; "" for the root itself.
        value: of a file the digest of its content, of a link where it leads.
        mode: its permissions; 0 for links.
        size: of a file.
    """

    path: str
    kind: str
    value: str = ""
    mode: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class Manifest:
    """`root` is a real path. The root itself is an entry, too."""

    root: str
    entries: Mapping[str, Entry] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Of all that travels: paths, kinds, permissions, contents."""
        total = hashlib.blake2b(digest_size=DIGEST_BYTES)
        for path in sorted(self.entries):
            entry = self.entries[path]
            line = json.dumps([entry.path, entry.kind, entry.value, entry.mode])
            total.update(line.encode(errors="surrogatepass") + b"\n")
        return total.hexdigest()

    def file(self, entry: Entry) -> str:
        """Where the entry lies."""
        return os.path.join(self.root, entry.path) if entry.path else self.root


class DigestCache:
    """Digests of files that did not change since they were last read: same size, time, inode. A context manager
    that keeps what it learned in `file` ("": nowhere); what was not asked for is forgotten.

    Args:
        goes_on: called whenever something has been read.
    """

    def __init__(self, file: str = "", goes_on: Callable[[], None] = lambda: None) -> None:
        self._file = file
        self._goes_on = goes_on
        self._known: dict[str, list[object]] = {}
        self._used: dict[str, list[object]] = {}

    def __enter__(self) -> DigestCache:
        with contextlib.suppress(OSError, ValueError), open(self._file, encoding="utf-8") as file:
            self._known = dict(json.load(file))
        return self

    def __exit__(self, *_: object) -> None:
        if not self._file or self._used == self._known:
            return
        draft = f"{self._file}.{os.getpid()}.{threading.get_ident()}"
        with contextlib.suppress(OSError):  # it is only slower without
            os.makedirs(os.path.dirname(self._file), mode=0o700, exist_ok=True)
            with open(draft, "w", encoding="utf-8") as file:
                json.dump(self._used, file)
            os.replace(draft, self._file)

    def digest(self, path: str, status: os.stat_result) -> str:
        """Of the file's content."""
        key = [status.st_size, status.st_mtime_ns, status.st_ino, status.st_dev]
        known = self._known.get(path)
        if known is not None and known[:-1] == key:
            self._used[path] = known
            return str(known[-1])
        found = digest_of(path, goes_on=self._goes_on)
        if time.time_ns() - status.st_mtime_ns > _RACY_NS:
            self._used[path] = [*key, found]
        return found


def digest_of(path: str, size: int = -1, goes_on: Callable[[], None] = lambda: None) -> str:
    """Of a file's content, or of its first `size` bytes."""
    total = hashlib.blake2b(digest_size=DIGEST_BYTES)
    with open(path, "rb") as file:
        left = size
        while block := file.read(_BLOCK if left < 0 else min(_BLOCK, left)):
            total.update(block)
            goes_on()
            left -= len(block) if left >= 0 else 0
    return total.hexdigest()


def read(source: str, rules: Rules, cache: DigestCache) -> Manifest:
    """The manifest of a file or folder. A link at the root is followed, links below it travel as links; pipes,
    sockets and devices are left out.

    Raises:
        OSError: something cannot be read.
    """
    root = os.path.realpath(source)
    return Manifest(root, {entry.path: entry for entry in _entries(root, rules, cache)})


def present(root: str, wanted: Mapping[str, Entry]) -> dict[str, Entry]:
    """What there is at `root` under the paths of `wanted`, links below the root not followed. Nothing else is looked
    at, and a file is read only where it may be the same: its value is "" when its size is another, or it cannot be
    read.

    Raises:
        OSError: a folder cannot be looked into.
    """
    found: dict[str, Entry] = {}
    for path in sorted(wanted):  # a folder before what is in it
        if path and ((parent := found.get(path.rpartition("/")[0])) is None or parent.kind != FOLDER):
            continue
        full = os.path.join(root, path) if path else os.path.realpath(root)
        try:
            status = os.lstat(full)
        except (FileNotFoundError, NotADirectoryError):
            continue
        mode = stat.S_IMODE(status.st_mode) & 0o777
        if stat.S_ISLNK(status.st_mode):
            found[path] = Entry(path, LINK, os.readlink(full))
        elif stat.S_ISDIR(status.st_mode):
            found[path] = Entry(path, FOLDER, mode=mode)
        elif stat.S_ISREG(status.st_mode):
            value = ""
            if wanted[path].kind == FILE and wanted[path].size == status.st_size:
                with contextlib.suppress(PermissionError):
                    value = digest_of(full)
            found[path] = Entry(path, FILE, value, mode, status.st_size)
    return found


def _entries(root: str, rules: Rules, cache: DigestCache) -> Iterator[Entry]:
    status = os.stat(root)
    if not stat.S_ISDIR(status.st_mode):
        yield _file(root, "", status, cache)
        return
    yield Entry("", FOLDER, mode=stat.S_IMODE(status.st_mode) & 0o777)
    for path, item in walk(root, rules.ignore_files, rules.leaves_out, rules.lets_in):
        try:
            status = item.stat(follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                yield Entry(path, LINK, os.readlink(item.path))
            elif stat.S_ISDIR(status.st_mode):
                yield Entry(path, FOLDER, mode=stat.S_IMODE(status.st_mode) & 0o777)
            elif stat.S_ISREG(status.st_mode):
                yield _file(item.path, path, status, cache)
        except FileNotFoundError:
            continue  # removed while we looked


def _file(file: str, path: str, status: os.stat_result, cache: DigestCache) -> Entry:
    mode = stat.S_IMODE(status.st_mode) & 0o777
    return Entry(path, FILE, cache.digest(file, status), mode, status.st_size)
