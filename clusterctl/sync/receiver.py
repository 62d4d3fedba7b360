"""The side that gets files. It keeps a journal of what it was given, so that it knows what it has without reading it
again, deletes only what came this way, and goes on where a transfer broke off.

Needs the standard library alone: its text is sent to machines that have nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator
from typing import IO, Any

_DIGEST_BYTES = 20
_BLOCK = 1 << 20
MOUNT = "mount"
"""The first word in the names of journals of what is taken back."""
RESUMED_BYTES = 32 << 20
"""Of a file at least this large, what has arrived is kept when a transfer breaks."""


class Damaged(Exception):
    """What arrived is not what was sent, or ends too early."""


class Journal:
    """What a target holds of what was sent to it: {path: [kind, value, mode, size, mtime_ns, inode]}, and `digest`,
    that of the manifest if the last transfer came to its end. Each change is on the disk when it has happened.

    Attributes:
        target: a whole path.
        made: what was not there before it was sent, by path.
        above: folders above the target that were not there, whole paths.
    """

    def __init__(self, file: str) -> None:
        self._path = file
        self.entries: dict[str, list[Any]] = {}
        self.parts: set[str] = set()
        self.made: set[str] = set()
        self.above: set[str] = set()
        self.target = ""
        self.digest = ""
        with contextlib.suppress(FileNotFoundError), open(file, encoding="utf-8") as lines:
            for line in lines:
                try:
                    self._replay(json.loads(line))
                except (ValueError, IndexError, TypeError):
                    break  # cut off in the middle of a line
        self._out: IO[str] | None = None

    def _replay(self, record: list[Any]) -> None:
        kind = record[0]
        if kind == "=":
            self.digest = record[1]
        elif kind == "part":
            self.parts.add(record[1])
        elif kind == "no part":
            self.parts.discard(record[1])
        elif kind == "at":
            self.target = record[1]
        elif kind == "made":
            self.made.add(record[1])
        elif kind == "above":
            self.above.add(record[1])
        elif kind == "gone":
            self.entries.pop(record[1], None)
            self.made.discard(record[1])
        else:
            self.entries[record[1]] = [kind, *record[2:]]

    def begin(self, target: str) -> None:
        """Rewrites it without what is past, and goes on from there."""
        os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        draft = f"{self._path}.{os.getpid()}"
        self.target, self.digest = target, ""
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self._out = os.fdopen(descriptor, "w", encoding="utf-8")
        for path, (kind, *rest) in self.entries.items():
            self._out.write(json.dumps([kind, path, *rest]) + "\n")
        lists = (("at", [target]), ("part", self.parts), ("made", self.made), ("above", self.above))
        for kind, paths in lists:
            for path in paths:
                self._out.write(json.dumps([kind, path]) + "\n")
        self._out.flush()
        os.replace(draft, self._path)

    def note(self, *record: Any) -> None:
        """Something has happened."""
        assert self._out is not None
        self._replay(list(record))
        self._out.write(json.dumps(record) + "\n")
        self._out.flush()

    def close(self) -> None:
        if self._out is not None:
            self._out.close()


def where(target: str) -> str:
    """A target as a path of this machine. Commands begin in the home directory, so relative paths do, and `~`."""
    path = "." if target == "~" else target.removeprefix("~/")
    return os.path.normpath(os.path.join(os.getcwd(), path))


def same_place(path: str, identity: list[Any]) -> bool:
    """Whether `path` is the very file or folder that the sender reads."""
    try:
        found = os.stat(path)
    except OSError:
        return False
    return [boot_id(), found.st_dev, found.st_ino] == identity


def boot_id() -> str:
    """Tells machines apart."""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
    return ""


def _below(target: str, path: str) -> str:
    if path.startswith("/") or ".." in path.split("/"):
        raise Damaged(f"{path} leads out of {target}")
    return os.path.join(target, path) if path else target


def _part(target: str, path: str, digest: str) -> str:
    folder, name = os.path.split(_below(target, path))
    return os.path.join(folder, f".{name[:200]}.{digest[:12]}.part")


def look(mounts: list[dict[str, Any]], folder: str) -> Iterator[dict[str, Any]]:
    """What is there of each mount, line by line.

    Args:
        mounts: target, key, digest of the manifest, identity of the source, large files as [path, digest].
        folder: where the journals are.
    """
    for number, mount in enumerate(mounts):
        target = where(mount["target"])
        if same_place(target, mount["identity"]):
            yield {"i": number, "same": True}
            continue
        journal = Journal(os.path.join(folder, mount["key"]))
        known = {path: entry for path, entry in journal.entries.items() if _verified(target, path, entry)}
        if journal.digest == mount["digest"] and len(known) == len(journal.entries):
            yield {"i": number, "same": True}
            continue
        for path, entry in known.items():
            yield {"i": number, "entry": [path, *entry[:3]]}
        for path, digest in mount["large"]:
            part = _part(target, path, digest)
            if part in journal.parts and os.path.isfile(part):
                size = os.path.getsize(part)
                yield {"i": number, "part": [path, size, _digest_of(part)]}


def _verified(target: str, path: str, entry: list[Any]) -> bool:
    """Whether it is as it was left; takes its permissions of now."""
    full = _below(target, path)
    try:
        status = os.lstat(full)
        if entry[0] == "l":
            return stat.S_ISLNK(status.st_mode) and os.readlink(full) == entry[1]
    except OSError:
        return False
    entry[2] = stat.S_IMODE(status.st_mode)
    if entry[0] == "d":
        return stat.S_ISDIR(status.st_mode)
    found = [status.st_size, status.st_mtime_ns, status.st_ino]
    return stat.S_ISREG(status.st_mode) and found == entry[3:]


def _digest_of(path: str) -> str:
    total = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            total.update(block)
    return total.hexdigest()


def take_back(folder: str) -> None:
    """Removes the mounts that were sent to this machine, as far as they are as they were left; what was there before
    stays, and what others wrote.

    Args:
        folder: where the journals are; they stay.
    """
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(folder):
            if name.startswith(f"{MOUNT}-") and not name.endswith(".lock"):
                _take_back(Journal(os.path.join(folder, name)))


def _take_back(journal: Journal) -> None:
    for path in sorted(journal.made, reverse=True):  # what is in a folder before the folder
        entry = journal.entries.get(path)
        with contextlib.suppress(OSError):
            if entry is not None and entry[0] == "d":
                os.rmdir(_below(journal.target, path))  # fails where something else is in it
            elif entry is not None and _verified(journal.target, path, entry):
                os.unlink(_below(journal.target, path))
    for part in journal.parts:
        with contextlib.suppress(OSError):
            os.unlink(part)
    for folder in sorted(journal.above, reverse=True):
        with contextlib.suppress(OSError):
            os.rmdir(folder)


class Receiver:
    """Applies what a sender writes: lines of JSON, the content of a file behind its line.

    Args:
        journal: None: nothing is remembered, and nothing kept of what broke off.
        goes_on: called often while this side works without reading from the stream.
    """

    def __init__(
        self,
        target: str,
        stream: IO[bytes],
        journal: Journal | None,
        goes_on: Callable[[], None] = lambda: None,
    ) -> None:
        self._target = target
        self._stream = stream
        self._journal = journal
        self._goes_on = goes_on
        self._real: set[str] = set()  # folders below the target that are no links
        self._opened: dict[str, int] = {}  # folders that were made writable, and what they were

    def run(self) -> None:
        """Until the sender's last line.

        Raises:
            Damaged: the stream broke off, or brought something else than was sent.
            OSError: this machine refuses.
        """
        if self._journal is not None:
            self._journal.begin(self._target)
        try:
            while True:
                order = self._line()
                what = order["do"]
                if what == "end":
                    break
                getattr(self, f"_do_{what}")(order)
            self._drop_parts()
            self._note("=", order["digest"])
        finally:
            for folder, mode in self._opened.items():
                with contextlib.suppress(OSError):
                    os.chmod(folder, mode)
            if self._journal is not None:
                self._journal.close()

    # -- one method per order

    def _do_delete(self, order: dict[str, Any]) -> None:
        full = self._full(order["path"])
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if os.path.isdir(full) and not os.path.islink(full):
                with contextlib.suppress(OSError):  # something else is in it
                    os.rmdir(full)
            else:
                self._in_parent(full, os.unlink)
        self._note("gone", order["path"])

    def _do_folder(self, order: dict[str, Any]) -> None:
        full = self._full(order["path"])
        is_link = os.path.islink(full) and order["path"]  # where the target itself is a link, it is followed
        if is_link or (os.path.lexists(full) and not os.path.isdir(full)):
            self._in_parent(full, os.unlink)
        if not os.path.isdir(full):
            self._in_parent(full, self._make_folders)
        self._note("d", order["path"], "", 0)

    def _do_link(self, order: dict[str, Any]) -> None:
        full = self._full(order["path"])
        self._make_room(full)
        self._real.clear()

        self._note_made(full)

        def make(path: str) -> None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            os.symlink(order["value"], path)

        self._in_parent(full, make)
        self._note("l", order["path"], order["value"], 0)

    def _do_mode(self, order: dict[str, Any]) -> None:
        full = self._full(order["path"])
        os.chmod(full, order["mode"])
        self._opened.pop(full, None)
        if order["kind"] == "d":
            self._note("d", order["path"], "", order["mode"])
        else:
            self._note_file(order["path"], order["value"], full)

    def _do_file(self, order: dict[str, Any]) -> None:
        path = order["path"]
        full, part = self._full(path), _part(self._target, path, order["value"])
        self._make_folders(os.path.dirname(full))
        self._make_room(full)
        self._note_made(full)
        is_kept = order["size"] >= RESUMED_BYTES and self._journal is not None
        if is_kept:
            self._note("part", part)
        try:
            digest = self._in_parent(part, lambda draft: self._receive(draft, order["offset"]))
        except BaseException:
            if not is_kept:
                with contextlib.suppress(OSError):
                    os.unlink(part)
            raise
        os.chmod(part, order["mode"])
        os.utime(part, ns=(order["mtime_ns"], order["mtime_ns"]))
        os.replace(part, full)
        if is_kept:
            self._note("no part", part)
        self._note_file(path, digest, full)

    def _do_wait(self, order: dict[str, Any]) -> None:
        """The sender is busy with what it does not send."""

    # -- inside

    def _full(self, path: str) -> str:
        """Where a path is; not through a link, which may lead out of the target."""
        full = _below(self._target, path)
        parent = path.rpartition("/")[0]
        while parent and parent not in self._real:
            if os.path.islink(_below(self._target, parent)):
                raise Damaged(f"{full} would be written through a link")
            self._real.add(parent)
            parent = parent.rpartition("/")[0]
        return full

    def _receive(self, part: str, offset: int) -> str:
        """Writes what comes; returns the digest of the whole file."""
        total = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | (0 if offset else os.O_TRUNC)
        with open(os.open(part, flags, 0o600), "r+b") as file:
            left = offset
            while left and (block := file.read(min(_BLOCK, left))):
                total.update(block)
                left -= len(block)
                self._goes_on()
            file.seek(offset)
            file.truncate()
            while size := int.from_bytes(self._exactly(4), "big"):
                block = self._exactly(size)
                total.update(block)
                file.write(block)
        sent = self._line()["digest"]
        if left or sent != total.hexdigest():
            os.unlink(part)
            raise Damaged(f"{part} did not arrive as it was sent; run it again")
        return total.hexdigest()

    def _note_made(self, full: str) -> None:
        if os.path.lexists(full):
            return
        if full == self._target:
            self._note("made", "")
        elif full.startswith(f"{self._target.rstrip('/')}/"):
            self._note("made", os.path.relpath(full, self._target))
        else:
            self._note("above", full)

    def _make_folders(self, path: str) -> None:
        if os.path.isdir(path):
            return
        self._make_folders(os.path.dirname(path))
        self._note_made(path)
        os.mkdir(path)

    def _make_room(self, full: str) -> None:
        if os.path.isdir(full) and not os.path.islink(full):
            os.rmdir(full)  # fails, with its name, where something else is in it

    def _in_parent(self, path: str, act: Callable[[str], Any]) -> Any:
        """Also in a folder that its own permissions protect; they are put back in the end."""
        try:
            return act(path)
        except PermissionError:
            parent = os.path.dirname(path)
            mode = stat.S_IMODE(os.stat(parent).st_mode)
            if mode & 0o300 == 0o300:
                raise
            os.chmod(parent, mode | 0o700)
            self._opened[parent] = mode
            return act(path)

    def _drop_parts(self) -> None:
        """What is left of transfers that broke off and were of something else."""
        for part in list(self._journal.parts) if self._journal is not None else ():
            with contextlib.suppress(OSError):
                os.unlink(part)
            self._note("no part", part)

    def _note_file(self, path: str, digest: str, full: str) -> None:
        status = os.lstat(full)
        mode = stat.S_IMODE(status.st_mode)
        self._note("f", path, digest, mode, status.st_size, status.st_mtime_ns, status.st_ino)

    def _note(self, *record: Any) -> None:
        if self._journal is not None:
            self._journal.note(*record)

    def _line(self) -> dict[str, Any]:
        line = self._stream.readline()
        if not line.endswith(b"\n"):
            raise Damaged("the transfer broke off")
        return dict(json.loads(line))

    def _exactly(self, size: int) -> bytes:
        data = self._stream.read(size)
        if len(data) < size:
            raise Damaged("the transfer broke off")
        return data
