"""The list of a checkpoint's files, which makes it visible once it is written. Pure.

Each rank makes a `PartManifest` of the files that it has brought to the storage. When all parts are there, their union
is written into the checkpoint's folder as `manifest.json`. A folder without a valid one is no checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

NAME: Final = "manifest.json"
FORMAT: Final = 1


_NOT_JSON = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)


class InvalidManifest(ValueError):
    """The bytes are no manifest that this version can read."""


class FileRecord(msgspec.Struct, frozen=True):
    """One file of a checkpoint.

    Attributes:
        size_bytes: its size.
        crc32: of its content; None: not known, because ranks have written different files of this name.
    """

    size_bytes: int
    crc32: int | None = None


class Place(msgspec.Struct, frozen=True):
    """Where a checkpoint is that is not in the run's folder.

    Attributes:
        path: on its file system, or a URI.
        filesystem: pickled; b"": the one of the run, or the one that the URI names.
    """

    path: str
    filesystem: bytes = b""


class PartManifest(msgspec.Struct, frozen=True):
    """The files of one rank.

    Attributes:
        rank: whose.
        files: by path within the checkpoint, with "/" between folders.
        place: where they are, if not in the run's folder; their list is unknown then.
    """

    rank: int
    files: dict[str, FileRecord]
    place: Place | None = None

    @property
    def size_bytes(self) -> int:
        """Of all files."""
        return sum(record.size_bytes for record in self.files.values())


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint.

    Attributes:
        number: its place in the order in which the run's checkpoints were committed, from 1.
        created_s: when it was committed, in seconds since 1970.
        files: see `PartManifest.files`; of all ranks.
        ranks: those that have files, or a place.
        place: see `PartManifest.place`.
        metrics: those of rank 0, as far as JSON holds them.
        pickled_metrics: the metrics, if JSON does not hold them as they are.
        status: see `validations.ReportedCheckpointStatus`.
        validation: what its report says of the validation, pickled; b"": none is wanted.
        format: of this record.
    """

    number: int
    created_s: float
    files: dict[str, FileRecord]
    ranks: list[int] = []
    place: Place | None = None
    metrics: dict[str, Any] = {}
    pickled_metrics: bytes = b""
    status: str = "COMMITTED"
    validation: bytes = b""
    format: int = FORMAT


class Clash(msgspec.Struct, frozen=True):
    """Ranks have written different files of one name; which one is there now is not known."""

    path: str
    ranks: list[int]


def merge(parts: Sequence[PartManifest]) -> tuple[dict[str, FileRecord], list[Clash]]:
    """The files of all parts, and the names that clash. Equal files of one name do not clash.

    Raises:
        ValueError: a part has a path that leads out of the checkpoint's folder.
    """
    writers: dict[str, list[PartManifest]] = {}
    for part in parts:
        for path in part.files:
            if not is_inner(path):
                raise ValueError(f"Rank {part.rank}: {path!r} is no path within a checkpoint.")
            writers.setdefault(path, []).append(part)
    files, clashes = {}, []
    for path, found in sorted(writers.items()):
        records = {part.files[path] for part in found}
        files[path] = next(iter(records))
        if len(records) > 1:
            sizes = {record.size_bytes for record in records}
            files[path] = FileRecord(sizes.pop() if len(sizes) == 1 else -1, None)
            clashes.append(Clash(path, [part.rank for part in found]))
    return files, clashes


def encode(manifest: Manifest) -> bytes:
    """The file's content."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1)


def decode(data: bytes) -> Manifest:
    """The manifest in a file.

    Raises:
        InvalidManifest: it is damaged, no manifest, or of a later version.
    """
    try:
        version = msgspec.json.decode(data, type=_Versioned).format
        if version > FORMAT:
            raise InvalidManifest(
                f"It has the format {version}, this version reads formats up to {FORMAT}. Use a later version."
            )
        manifest = msgspec.json.decode(data, type=Manifest)
    except msgspec.DecodeError as error:
        raise InvalidManifest(f"It is damaged: {error}") from None
    wrong = [path for path, file in manifest.files.items() if not is_inner(path) or file.size_bytes < -1]
    if wrong or manifest.number < 1:
        raise InvalidManifest(f"It is damaged: {wrong[0] if wrong else 'its number'}")
    return manifest


def differences(files: Mapping[str, FileRecord], sizes_bytes: Mapping[str, int]) -> list[str]:
    """What is missing or has another size than the manifest says, one line a file.

    Args:
        files: of the manifest.
        sizes_bytes: what is there.
    """
    found = []
    for path, file in files.items():
        if path not in sizes_bytes:
            found.append(f"{path} is missing")
        elif file.size_bytes not in (-1, sizes_bytes[path]):
            found.append(f"{path} has {sizes_bytes[path]} bytes, not {file.size_bytes}")
    return found


def readable(metrics: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Metrics as JSON has them, and whether nothing is lost by that. Values that JSON does not have become text."""
    try:
        own = msgspec.json.decode(msgspec.json.encode(metrics))
    except _NOT_JSON:
        return {str(key): _readable(value) for key, value in metrics.items()}, False
    return own, own == metrics


def is_inner(path: str) -> bool:
    """Whether a path is relative and stays in its folder."""
    return bool(path) and not path.startswith("/") and not {"", ".", ".."}.intersection(path.split("/"))


def is_name(name: str) -> bool:
    """Whether a checkpoint's folder can have this name."""
    return bool(re.fullmatch(r"[^./\\\x00-\x1f][^/\\\x00-\x1f]{0,199}", name))


class _Versioned(msgspec.Struct):
    format: int


def _readable(value: Any) -> Any:
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except _NOT_JSON:
        return repr(value)[:200]
