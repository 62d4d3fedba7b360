"""Brings files to a machine, or from one, through its shell. One round trip when nothing changed."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from queue import Full, Queue
from typing import IO, Any, cast

from autoscaler.provider import Shell

from . import remote
from .manifest import FILE, FOLDER, DigestCache, Entry, Manifest, present, read
from .receiver import MOUNT, RESUMED_BYTES, Receiver, boot_id
from .rules import Rules
from .sender import Changes, There, changes, stream

_LOOK_S = 120.0
_READ_BYTES_PER_S = 20e6
"""A disk slower than this has no time to read what it has of large files."""
_ALARM = (128 + signal.SIGALRM, -signal.SIGALRM)
"""How what ended itself does, by way of a shell and without."""
_SLOWEST_BYTES_PER_S = 100_000
"""A transfer slower than this has failed; the next one goes on where it broke off."""
_AT_LEAST_S = 300.0
_PACKET_BYTES = 64 * 1024


class SyncError(Exception):
    """Files could not be brought over. The message names the file and the reason."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or folder here (`source`) and where it belongs there."""

    target: str
    source: str
    rules: Rules = field(default_factory=Rules)


@dataclass(frozen=True, slots=True)
class Done:
    """What became of one mount."""

    target: str
    entries: int
    changes: Changes


def manifests(mounts: Sequence[Mount], cache_file: str = "") -> list[Manifest]:
    """What the mounts hold.

    Raises:
        SyncError: something is not there, or cannot be read.
    """
    found = []
    with DigestCache(cache_file) as cache:
        for mount in mounts:
            try:
                found.append(read(mount.source, mount.rules, cache))
            except FileNotFoundError as error:
                raise SyncError(f"there is no {error.filename}") from error
            except OSError as error:
                raise SyncError(f"{error.filename} cannot be read: {error.strerror}") from error
    return found


def contents_digest(mounts: Sequence[Mount], found: Sequence[Manifest]) -> str:
    """Changes when anything that travels does, or where it goes to."""
    lines = [f"{mount.target}\0{manifest.digest}" for mount, manifest in zip(mounts, found, strict=True)]
    return hashlib.blake2b("\n".join(sorted(lines)).encode(), digest_size=16).hexdigest()


def push(
    shell: Shell,
    mounts: Sequence[Mount],
    found: Sequence[Manifest],
    delete: bool = True,
    purpose: str = MOUNT,
) -> list[Done]:
    """Makes the targets on the machine as the sources are.

    Args:
        found: `manifests(mounts)`.
        delete: also removes there what came this way once and is gone here. What the machine wrote itself stays.
        purpose: targets of different purposes know nothing of each other. What was brought as `receiver.MOUNT` is
            taken back with the machine.

    Raises:
        SyncError: a file cannot be read here or written there.
        ShellError: the machine cannot be reached.
    """
    targets = [_target(mount, manifest) for mount, manifest in zip(mounts, found, strict=True)]
    try:
        identities = [_identity(manifest) for manifest in found]
    except OSError as error:  # it is gone since it was read
        raise SyncError(_words(error)) from error
    asked = [
        {
            "target": target,
            "key": f"{purpose}-{hashlib.sha256(target.encode()).hexdigest()[:24]}",
            "digest": manifest.digest,
            "identity": identity,
            "large": [
                [entry.path, entry.value]
                for entry in manifest.entries.values()
                if entry.kind == FILE and entry.size >= RESUMED_BYTES
            ],
        }
        for target, manifest, identity in zip(targets, found, identities, strict=True)
    ]
    large = sum(
        entry.size for manifest in found for entry in manifest.entries.values() if entry.size >= RESUMED_BYTES
    )
    there = _look(shell, asked, _LOOK_S + large / _READ_BYTES_PER_S) if asked else []
    wanted = [
        Changes() if known is None else changes(manifest.entries, known, delete)
        for manifest, known in zip(found, there, strict=True)
    ]
    work = [
        (ask, manifest, change, known)
        for ask, manifest, change, known in zip(asked, found, wanted, there, strict=True)
        if known is not None
    ]
    if work:
        names = _line([{"target": ask["target"], "key": ask["key"]} for ask, *_ in work])
        size = sum(change.size_bytes for _, _, change, _ in work)
        blocks = (stream(manifest, change, known) for _, manifest, change, known in work)
        _run(shell, "apply", _packets(itertools.chain([names], *blocks)), _limit_s(size))
    return [
        Done(target, len(manifest.entries), change)
        for target, manifest, change in zip(targets, found, wanted, strict=True)
    ]


def pull(
    shell: Shell, source: str, target: str, excludes: Sequence[str] = (), ignore_files: Sequence[str] = ()
) -> Done:
    """Brings a file or folder of the machine here. Deletes nothing.

    Raises:
        SyncError: a file cannot be read there or written here.
        ShellError: the machine cannot be reached.
    """
    request = {"source": source, "excludes": list(excludes), "ignore_files": list(ignore_files)}
    told = [record["entry"] for record in _run(shell, "tell", [_line(request)], None) if "entry" in record]
    wanted = {entry["path"]: Entry(**entry) for entry in told}
    if wanted[""].kind == FILE and (target.endswith("/") or os.path.isdir(target)):
        target = os.path.join(target, os.path.basename(source))
    try:
        here = present(target, wanted)
    except OSError as error:
        raise SyncError(_words(error)) from error
    if wanted[""].kind == FOLDER and "" in here and here[""].kind != FOLDER:
        raise SyncError(f"{target} is a file, and {source} is a folder there: name a folder, or a new name")
    have = There({path: (entry.kind, entry.value, entry.mode) for path, entry in here.items()})
    change = changes(wanted, have, delete=False)
    lacking = {
        entry.path: asdict(entry) for entry in (*change.folders, *change.links, *change.files, *change.modes)
    }
    if lacking:
        _receive(shell, _line(source) + _line(list(lacking.values())), target, _limit_s(change.size_bytes))
    return Done(target, len(wanted), change)


# -- inside


def _line(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _packets(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The same in few portions: each costs a packet. An empty part sends off what waits."""
    waiting: list[bytes] = []
    size = 0
    for part in parts:
        waiting.append(part)
        size += len(part)
        if size >= _PACKET_BYTES or not part:
            yield b"".join(waiting)
            waiting, size = [], 0
    yield b"".join(waiting)


def _receive(shell: Shell, request: bytes, target: str, limit_s: float) -> None:
    """What the machine says is applied by a thread, as it comes."""
    blocks: Queue[bytes | None] = Queue(16)
    failed: list[Exception] = []

    def apply() -> None:
        try:
            Receiver(os.path.abspath(target), cast(IO[bytes], _Stream(blocks)), None).run()
        except Exception as error:  # whoever sends must hear of it, whatever it is
            failed.append(error)

    def take(record: Mapping[str, Any]) -> None:
        block = base64.b64decode(record["data"]) if "data" in record else None
        while block and not failed:
            try:
                blocks.put(block, timeout=0.2)
                break
            except Full:
                continue  # whoever writes is slow, or has failed
        if failed:
            raise SyncError(_words(failed[0]))

    writer = threading.Thread(target=apply, name="receives files")
    writer.start()
    try:
        _run(shell, "send", [request], limit_s, take)
    finally:
        while writer.is_alive():
            try:
                blocks.put(None, timeout=0.2)
                break
            except Full:
                continue
        writer.join()
    if failed:
        raise SyncError(_words(failed[0]))


class _Stream:
    """What a receiver reads, out of a queue; None ends it."""

    def __init__(self, blocks: Queue[bytes | None]) -> None:
        self._blocks = blocks
        self._buffer = b""
        self._ended = False

    def read(self, size: int) -> bytes:
        while len(self._buffer) < size and self._more():
            pass
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data

    def readline(self) -> bytes:
        while b"\n" not in self._buffer and self._more():
            pass
        end = self._buffer.find(b"\n") + 1 or len(self._buffer)
        data, self._buffer = self._buffer[:end], self._buffer[end:]
        return data

    def _more(self) -> bool:
        if self._ended:
            return False
        block = self._blocks.get()
        self._ended = block is None
        self._buffer += block or b""
        return not self._ended


def _look(shell: Shell, asked: Sequence[Mapping[str, Any]], limit_s: float) -> list[There | None]:
    """What is there of each mount; None: just what is wanted."""
    entries: list[dict[str, tuple[str, str, int]]] = [{} for _ in asked]
    parts: list[dict[str, tuple[int, str]]] = [{} for _ in asked]
    same = set()
    for record in _run(shell, "look", [_line(asked)], limit_s):
        number = record["i"]
        if "same" in record:
            same.add(number)
        elif "entry" in record:
            path, kind, value, mode = record["entry"]
            entries[number][path] = (kind, value, mode)
        else:
            path, size, digest = record["part"]
            parts[number][path] = (size, digest)
    return [None if i in same else There(entries[i], parts[i]) for i in range(len(asked))]


def _run(
    shell: Shell,
    action: str,
    data: Iterable[bytes],
    limit_s: float | None,
    take: Callable[[Mapping[str, Any]], None] | None = None,
) -> list[Mapping[str, Any]]:
    """Runs one of `remote`'s actions there; returns what it said, unless `take` gets it at once.

    Args:
        limit_s: None for one that ends itself when it does not go on.
    """
    said: list[Mapping[str, Any]] = []
    other: list[str] = []
    errors: list[str] = []

    def on_output(line: str) -> None:
        if not line.startswith(remote.MARK):
            other.append(line)
            del other[:-20]
            return
        try:
            record = json.loads(line[1:])
        except ValueError:  # what Python says of an accident there, in the middle of a line
            other.append(line)
            return
        if "error" in record:
            errors.append(record["error"])
        elif take is not None:
            take(record)
        else:
            said.append(record)

    command, env = remote.command(action)
    try:
        result = shell.run(command, env=env, timeout_s=limit_s, on_output=on_output, stdin=data)
    except OSError as error:
        raise SyncError(_words(error)) from error
    if errors or result.exit_status:
        if result.exit_status in _ALARM:
            other.append(f"nothing could be read or written for {remote.SILENCE_S} s: does its disk answer?")
        words = errors or ["\n".join(other) or f"exit status {result.exit_status}"]
        raise SyncError(f"on the machine: {words[0]}")
    return said


def _target(mount: Mount, manifest: Manifest) -> str:
    """A file that is to go into a folder keeps its name."""
    if manifest.entries[""].kind == FILE and mount.target.endswith("/"):
        return mount.target + os.path.basename(mount.source.rstrip("/"))
    return mount.target.rstrip("/") or "/"


def _identity(manifest: Manifest) -> list[Any]:
    status = os.stat(manifest.root)
    return [boot_id(), status.st_dev, status.st_ino]


def _limit_s(size_bytes: int) -> float:
    return _AT_LEAST_S + size_bytes / _SLOWEST_BYTES_PER_S


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)
