"""The side that has files: what of a manifest the other one lacks (pure), and the stream that brings it there."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from clusterctl.sync.manifest import DIGEST_BYTES, FILE, FOLDER, LINK, Entry, Manifest

_BLOCK = 256 * 1024
_WORD_BYTES = 64 << 20
"""Whoever reads this much without sending it says so, or the receiver takes it for gone."""


@dataclass(frozen=True, slots=True)
class There:
    """What the receiver has, by path: (kind, value, mode). `parts`: of broken transfers, (size, digest)."""

    entries: Mapping[str, tuple[str, str, int]] = field(default_factory=dict)
    parts: Mapping[str, tuple[int, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Changes:
    """What has to happen, in this order."""

    delete: tuple[str, ...] = ()
    folders: tuple[Entry, ...] = ()
    links: tuple[Entry, ...] = ()
    files: tuple[Entry, ...] = ()
    modes: tuple[Entry, ...] = ()

    @property
    def size_bytes(self) -> int:
        return sum(entry.size for entry in self.files)

    def describe(self) -> str:
        """In words."""
        parts = [
            f"{len(self.files) + len(self.links)} sent ({size_text(self.size_bytes)})",
            f"{len(self.delete)} deleted",
        ]
        return ", ".join(parts)


def changes(wanted: Mapping[str, Entry], there: There, delete: bool) -> Changes:
    """What the receiver lacks. Pure.

    Args:
        delete: what the receiver was sent once and is no longer wanted goes.
    """
    out: dict[str, list[Entry]] = {FOLDER: [], LINK: [], FILE: []}
    modes: list[Entry] = []
    for path in sorted(wanted):
        entry = wanted[path]
        kind, value, mode = there.entries.get(path, ("", "", -1))
        if kind != entry.kind or value != entry.value:
            out[entry.kind].append(entry)
            if entry.kind == FOLDER:
                modes.append(entry)
        elif entry.kind != LINK and mode != entry.mode:
            modes.append(entry)
    gone = [path for path in there.entries if path not in wanted] if delete else []
    # What was a folder and is none any more goes first, with what was in it.
    replaced = [p for p, e in wanted.items() if e.kind != FOLDER and there.entries.get(p, ("",))[0] == FOLDER]
    return Changes(
        delete=tuple(sorted([*gone, *replaced], reverse=True)),  # what is in a folder before the folder
        folders=tuple(out[FOLDER]),
        links=tuple(out[LINK]),
        files=tuple(out[FILE]),
        modes=tuple(sorted(modes, key=lambda entry: entry.path, reverse=True)),
    )


def stream(manifest: Manifest, wanted: Changes, there: There) -> Iterator[bytes]:
    """What a `receiver.Receiver` reads. Behind an empty part nothing comes for a while: what came before it must go.

    Raises:
        OSError: a file cannot be read.
    """
    for path in wanted.delete:
        yield _line({"do": "delete", "path": path})
    for entry in wanted.folders:
        yield _line({"do": "folder", "path": entry.path})
    for entry in wanted.links:
        yield _line({"do": "link", "path": entry.path, "value": entry.value})
    for entry in wanted.files:
        yield from _file(manifest, entry, there.parts.get(entry.path, (0, "")))
    for entry in wanted.modes:
        yield _line(
            {
                "do": "mode",
                "path": entry.path,
                "kind": entry.kind,
                "mode": entry.mode,
                "value": entry.value,
            }
        )
    yield _line({"do": "end", "digest": manifest.digest})


def _file(manifest: Manifest, entry: Entry, part: tuple[int, str]) -> Iterator[bytes]:
    """One file. It is sent as it is now; that its digest is another by then, the next look will tell."""
    total = hashlib.blake2b(digest_size=DIGEST_BYTES)
    with open(manifest.file(entry), "rb") as file:
        offset = part[0]
        left = offset
        while left and (block := file.read(min(_BLOCK, left))):
            total.update(block)
            left -= len(block)
            if (offset - left) // _WORD_BYTES > (offset - left - len(block)) // _WORD_BYTES:
                yield _line({"do": "wait"})
                yield b""
        if left or (offset and total.hexdigest() != part[1]):
            total = hashlib.blake2b(digest_size=DIGEST_BYTES)
            file.seek(0)
            offset = 0
        yield _line(
            {
                "do": "file",
                "path": entry.path,
                "value": entry.value,
                "mode": entry.mode,
                "size": entry.size,
                "offset": offset,
                "mtime_ns": os.fstat(file.fileno()).st_mtime_ns,
            }
        )
        while block := file.read(_BLOCK):
            total.update(block)
            yield len(block).to_bytes(4, "big") + block
        yield bytes(4) + _line({"digest": total.hexdigest()})


def _line(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record).encode() + b"\n"


def size_text(amount: float) -> str:
    """A size for people."""
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"
