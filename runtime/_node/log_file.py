"""Reading and rotating the output files of workers. Everything here may block, and runs in threads.

A worker's stream (`X.out` or `X.err`) is rotated by size: `X.out` becomes `X.out.1`, that becomes `X.out.2`, and the
oldest is deleted. The worker writes to the renamed file until it is asked to open a new one, and programs it started
may do so for longer, so renamed files are followed, too.

A line that starts with `NAME_MARK` is not output: it names the task or actor whose lines follow.
"""

from __future__ import annotations

import contextlib
import logging
import os

import msgspec

from runtime._system import files as _files
from runtime._system import settings

log = logging.getLogger(__name__)
NAME_MARK = "\x01name:"
MAX_LINES = 500
MAX_LINE_CHARS = 64 << 10
_READ_BYTES = 256 << 10
PARTIAL_READS = 5
"""Reads without news after which an unfinished line is handed on as it is: about half a second."""

Groups = list[tuple[str, list[str]]]
"""Who wrote, and the lines."""


class Rotation(msgspec.Struct, frozen=True):
    """A file is rotated when it exceeds `max_bytes`; `backups` older ones are kept. 0 of either: no rotation."""

    max_bytes: int = settings.ROTATION_BYTES.default
    backups: int = settings.ROTATION_BACKUPS.default

    @classmethod
    def of_environment(cls) -> Rotation:
        """As RAY_ROTATION_MAX_BYTES and RAY_ROTATION_BACKUP_COUNT say."""
        return cls(settings.ROTATION_BYTES.get_or_default(), settings.ROTATION_BACKUPS.get_or_default())


class LogFile(msgspec.Struct, eq=False):
    """One file.

    `rest`: the unfinished line at its end. `reads_without_news`: how often it was read since it last grew.
    `handed_on_part`: the beginning of the current line has been handed on already.
    """

    path: str
    offset: int = 0
    rest: bytes = b""
    name: str = ""
    reads_without_news: int = 0
    handed_on_part: bool = False

    @property
    def size(self) -> int:
        """0 when it is not there, or cannot be asked."""
        try:
            return os.stat(self.path).st_size
        except OSError:
            return 0

    def read(self) -> tuple[bool, Groups]:
        """Reads a bounded part of what is new.

        Returns:
            Whether there may be more, and `(name, lines)` in order.
        """
        try:
            new_bytes = self.size - self.offset
            if new_bytes <= 0:
                return False, self._unfinished()
            with open(self.path, "rb", buffering=0) as file:
                file.seek(self.offset)
                data = file.read(min(new_bytes, _READ_BYTES))
        except OSError as error:
            log.warning("cannot read %s: %s", self.path, error)
            return False, []
        self.offset += len(data)
        self.reads_without_news = 0
        *whole, self.rest = (self.rest + data).split(b"\n")
        if whole and self.handed_on_part:
            self.handed_on_part = False
            if not whole[0].strip():
                del whole[0]  # only the end of a line whose text is known
        if len(self.rest) > MAX_LINE_CHARS:
            whole.append(self.rest)
            self.rest = b""
        return len(data) == _READ_BYTES, self._group(whole)

    def read_end(self) -> Groups:
        """Everything that is left, the unfinished last line included: the writer is dead, or the
        reader leaves."""
        groups: Groups = []
        more = True
        while more:
            more, found = self.read()
            groups += found
        if self.rest:
            rest, self.rest = self.rest, b""
            for name, lines in self._group([rest]):
                if groups and groups[-1][0] == name:
                    groups[-1][1].extend(lines)
                else:
                    groups.append((name, lines))
        return groups

    def _unfinished(self) -> Groups:
        """The unfinished line, once nothing has followed it for a moment: a prompt, or a progress report."""
        self.reads_without_news += 1
        if self.reads_without_news < PARTIAL_READS or not _is_text(self.rest):
            return []
        part, self.rest = self.rest, b""
        self.handed_on_part = True
        return self._group([part])

    def _group(self, raw: list[bytes]) -> Groups:
        groups: Groups = []
        for line in raw:
            text = line.decode("utf-8", "replace").rstrip("\r")
            if text.startswith(NAME_MARK):
                self.name = text[len(NAME_MARK) :]
                continue
            if not groups or groups[-1][0] != self.name or len(groups[-1][1]) >= MAX_LINES:
                groups.append((self.name, []))
            groups[-1][1].append(text[:MAX_LINE_CHARS])
        return groups


class Stream(msgspec.Struct, eq=False):
    """The standard output or error of one worker: the file that it writes to, and older ones.

    `files`: the oldest first. `wants_reopening`: the worker should open `path` and write there.
    """

    path: str
    job_id: bytes
    pid: int
    is_error_stream: bool
    rotation: Rotation
    files: list[LogFile] = msgspec.field(default_factory=list)
    wants_reopening: bool = False

    def __post_init__(self) -> None:
        self.files.append(LogFile(self.path))

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever written."""
        return not any(file.offset for file in self.files)

    def read(self) -> tuple[bool, Groups]:
        """Reads a bounded part of what is new, and rotates the file when it is due. See `LogFile.read`."""
        groups: Groups = []
        is_behind = False
        self.wants_reopening = False
        for index, file in enumerate(self.files):
            self._continue(index)
            before = file.offset
            is_behind, found = file.read()
            groups += found
            is_last = index == len(self.files) - 1
            self.wants_reopening |= not is_last and file.offset > before and file.path == f"{self.path}.1"
            if is_behind:
                break
        limit = self.rotation.max_bytes
        if limit and self.rotation.backups and self.files[-1].size > limit:
            groups += self._rotate()
        return is_behind, groups

    def read_end(self) -> Groups:
        """See `LogFile.read_end`."""
        groups: Groups = []
        for index, file in enumerate(self.files):
            self._continue(index)
            groups += file.read_end()
        return groups

    def remove_if_empty(self) -> None:
        """Deletes the file if nothing was ever written."""
        if self.is_empty:
            _files.remove(self.path)

    def _continue(self, index: int) -> None:
        """Lets a file go on with the name and the unfinished line that the one before it ended with."""
        file = self.files[index]
        if index and not file.offset and file.size:
            before = self.files[index - 1]
            file.name = before.name
            file.rest, before.rest = before.rest, b""

    def _rotate(self) -> Groups:
        """Renames the files. Says so if the one that goes was not read to its end."""
        unread = 0
        kept = []
        for file in self.files:
            number = int(file.path.removeprefix(f"{self.path}.")) if file.path != self.path else 0
            if number == self.rotation.backups:
                unread += file.size - file.offset
            else:
                kept.append(file)
        for number in range(self.rotation.backups, 0, -1):
            newer = f"{self.path}.{number - 1}" if number > 1 else self.path
            with contextlib.suppress(FileNotFoundError):
                os.rename(newer, f"{self.path}.{number}")
            for file in kept:
                if file.path == newer:
                    file.path = f"{self.path}.{number}"
        kept.append(LogFile(self.path))
        self.files = kept
        self.wants_reopening = True
        if not unread:
            return []
        return [
            ("", [f"[{unread} bytes of output were written faster than they could be shown, and are lost]"])
        ]


def _is_text(part: bytes) -> bool:
    """Whether an unfinished line can be shown: no part of a name, and no character that was cut in two."""
    mark = NAME_MARK.encode()
    if not part or part.startswith(mark) or mark.startswith(part):
        return False
    try:
        part.decode()
    except UnicodeDecodeError as error:
        return error.end < len(part)  # invalid in the middle: more bytes would not repair it
    return True
