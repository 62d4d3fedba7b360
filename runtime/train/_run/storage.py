"""The folder of a run."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from runtime import cloudpickle
from runtime.train._api.checkpoint import Checkpoint
from runtime.train._core.manifest import PartManifest

_STATE = "state.json"
_MANIFEST = "manifest.json"


class Manifest(msgspec.Struct, frozen=True):
    """What is written into a checkpoint's folder last. `metrics`: of rank 0, pickled."""

    number: int
    parts: Sequence[PartManifest]
    metrics: bytes


class Committed(msgspec.Struct, frozen=True):
    """A checkpoint that is complete."""

    name: str
    checkpoint: Checkpoint
    metrics: dict[str, Any]


class RunStorage:
    """A run's folder in a local file system, which all nodes must share.

    Args:
        path: the folder of all runs.
        name: of the run.
        filesystem: not supported yet.
    """

    def __init__(self, path: str, name: str, filesystem: Any = None) -> None:
        if filesystem is not None or "://" in path:
            raise NotImplementedError("Runs are stored in local folders for now.")
        self.folder = os.path.join(os.path.abspath(os.path.expanduser(path)), name)

    def open(self) -> None:
        """Makes the folder, and removes what is not committed."""
        os.makedirs(self.folder, exist_ok=True)
        complete = {one.name for one in self.committed()}
        for entry in os.scandir(self.folder):
            if entry.is_dir() and entry.name not in complete:
                shutil.rmtree(entry.path, ignore_errors=True)

    def upload(
        self, checkpoint: Checkpoint, name: str, rank: int, cancelled: Callable[[], bool]
    ) -> PartManifest:
        """Copies a rank's files of a checkpoint."""
        target = os.path.join(self.folder, name)
        files: dict[str, int] = {}
        for folder, _, names in os.walk(checkpoint.path):
            inner = os.path.relpath(folder, checkpoint.path)
            os.makedirs(os.path.join(target, inner), exist_ok=True)
            for each in names:
                if cancelled():
                    return PartManifest(rank, files)
                path = os.path.normpath(os.path.join(inner, each))
                shutil.copyfile(os.path.join(folder, each), os.path.join(target, path))
                files[path] = os.path.getsize(os.path.join(target, path))
        return PartManifest(rank, files)

    def adopt(self, checkpoint: Checkpoint, name: str, rank: int) -> PartManifest:
        """Takes a rank's files from where they are."""
        return PartManifest(rank, {}, checkpoint.path)

    def commit(self, name: str, parts: Sequence[PartManifest], metrics: dict[str, Any]) -> Checkpoint:
        """Makes a checkpoint visible."""
        folder = os.path.join(self.folder, name)
        os.makedirs(folder, exist_ok=True)
        number = 1 + max((manifest.number for _, manifest in self._manifests()), default=0)
        self._replace(
            os.path.join(folder, _MANIFEST),
            msgspec.json.encode(Manifest(number, parts, cloudpickle.dumps(metrics))),
        )
        return self._checkpoint(name, parts)

    def committed(self) -> list[Committed]:
        """The complete checkpoints, oldest first."""
        found = sorted(self._manifests(), key=lambda each: each[1].number)
        return [
            Committed(name, self._checkpoint(name, manifest.parts), cloudpickle.loads(manifest.metrics))
            for name, manifest in found
        ]

    def delete(self, name: str) -> None:
        """Removes a checkpoint."""
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(self.folder, name, _MANIFEST))
        shutil.rmtree(os.path.join(self.folder, name), ignore_errors=True)

    def read_state(self) -> bytes:
        """What `write_state` has written; b"": nothing."""
        with contextlib.suppress(FileNotFoundError), open(os.path.join(self.folder, _STATE), "rb") as file:
            return file.read()
        return b""

    def write_state(self, state: bytes) -> None:
        """Replaces the state."""
        self._replace(os.path.join(self.folder, _STATE), state)

    def _checkpoint(self, name: str, parts: Sequence[PartManifest]) -> Checkpoint:
        adopted = [part.path for part in parts if part.path]
        return Checkpoint(adopted[0] if adopted else os.path.join(self.folder, name))

    def _manifests(self) -> list[tuple[str, Manifest]]:
        found = []
        for name in os.listdir(self.folder):
            with (
                contextlib.suppress(FileNotFoundError, NotADirectoryError),
                open(os.path.join(self.folder, name, _MANIFEST), "rb") as file,
            ):
                found.append((name, msgspec.json.decode(file.read(), type=Manifest)))
        return found

    def _replace(self, path: str, data: bytes) -> None:
        draft = f"{path}.new"
        with open(draft, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
