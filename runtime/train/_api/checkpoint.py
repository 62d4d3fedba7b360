"""Checkpoints: folders of files, local or in a remote storage."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

if TYPE_CHECKING:
    from runtime.train._run.calls import Watch
    from runtime.train._run.files import Files
    from runtime.train._run.near import NearFiles

T = TypeVar("T")

METADATA = ".metadata.json"


class Checkpoint:
    """A reference to a folder with what a training function goes on from. Two are equal if they name the same folder.

    Args:
        path: of the folder: a local path, a URI such as "s3://bucket/folder", or a path on `filesystem`.
        filesystem: of `pyarrow.fs` or fsspec. Default: from the URI.
    """

    def __init__(self, path: str | os.PathLike[str], filesystem: Any = None) -> None:
        from runtime.train._run import files

        self._given = os.fspath(path)
        self._filesystem = filesystem
        self._near: NearFiles | None = None
        self._is_local = files.is_local(self._given, filesystem)
        if self._is_local:
            self._given = files.local_path(self._given)

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str]) -> Checkpoint:
        """The checkpoint in a local folder."""
        return cls(os.path.abspath(os.path.expanduser(path)))

    @property
    def path(self) -> str:
        """The path on the file system, without a scheme."""
        if self._is_local:
            return self._given
        from runtime.train._run import files

        return files.public(self._given, self._filesystem)[1]

    @property
    def filesystem(self) -> Any:
        """The file system: as given, otherwise of `pyarrow.fs` if it is installed and has it, otherwise of fsspec."""
        from runtime.train._run import files

        return files.public(self._given, self._filesystem)[0]

    @contextmanager
    def as_directory(self) -> Iterator[str]:
        """A local folder with the files, for reading.

        That is the folder itself if it is local. Otherwise it is a copy, which the processes on this node share: one of
        them downloads it, and it is removed when none uses it any more.

        Raises:
            StorageError: the files cannot be read, or are damaged.
        """
        if self._is_local:
            yield self._given
            return
        from runtime.train._run import node_copies

        with node_copies.shared(self._identity(), self._download) as folder:
            yield folder

    def to_directory(self, path: str | os.PathLike[str] | None = None) -> str:
        """Copies the files into a local folder; returns its path.

        Args:
            path: the folder, made if it does not exist. Default: a new temporary one, which nobody removes.

        Raises:
            StorageError: the files cannot be read or written, or are damaged.
        """
        target = tempfile.mkdtemp(prefix="checkpoint-") if path is None else os.path.expanduser(path)
        target = os.path.abspath(target)
        self._download(target)
        return target

    def get_metadata(self) -> dict[str, Any]:
        """What `set_metadata` has stored with the checkpoint; an empty dict if there is nothing."""

        def work(watch: Watch) -> dict[str, Any]:
            files, path = self.resolve()
            try:
                data = watch.retried(lambda: files.read(f"{path}/{METADATA}"))
            except FileNotFoundError:
                return {}
            return dict(json.loads(data))

        return self._call("read the metadata of", work)

    def set_metadata(self, metadata: dict[str, Any]) -> None:
        """Stores metadata with the checkpoint, instead of those that are there.

        Args:
            metadata: what JSON can hold.
        """
        from runtime.train._run.files import draft_in

        data = json.dumps(metadata).encode()

        def work(watch: Watch) -> None:
            files, path = self.resolve()
            watch.retried(lambda: files.write(f"{path}/{METADATA}", data, draft_in(path)))

        self._call("write the metadata of", work)

    def update_metadata(self, metadata: dict[str, Any]) -> None:
        """Adds metadata to those that are there; equal keys are replaced."""
        self.set_metadata({**self.get_metadata(), **metadata})

    def resolve(self) -> tuple[Files, str]:
        """The files, and the path among them. For the library itself."""
        from runtime.train._run import files

        return files.resolve(self._given, self._filesystem)

    def with_copies(self, near: NearFiles) -> Checkpoint:
        """The same checkpoint, whose files are read from the nodes' object stores as far as they are there. For the
        library itself."""
        found = Checkpoint(self._given, self._filesystem)
        found._near = near
        return found

    def release_copies(self) -> None:
        """The files are read from the storage from now on. For the library itself."""
        near, self._near = self._near, None
        if near is not None:
            near.release()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_near": None}  # others may read it when the copies are gone

    def __repr__(self) -> str:
        from runtime.train._run import files

        filesystem = "" if self._filesystem is None else f", filesystem={type(self._filesystem).__name__}"
        return f"Checkpoint(path={files.shown(self._given)!r}{filesystem})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Checkpoint):
            return NotImplemented
        return self._given == other._given and (
            (self._is_local and other._is_local) or self._filesystem == other._filesystem
        )

    def __hash__(self) -> int:
        return hash(self._given)

    def __fspath__(self) -> NoReturn:
        raise TypeError("A Checkpoint is no path. Use as_directory() or to_directory().")

    def _download(self, target: str) -> None:
        from runtime.train._run.download import download

        def work(watch: Watch) -> None:
            download(*self.resolve(), target, watch, self._near)

        self._call("read", work)

    def _call(self, what: str, work: Callable[[Watch], T]) -> T:
        from runtime._system import settings
        from runtime.train._run import files
        from runtime.train._run.calls import watched

        return watched(what, files.shown(self._given), work, settings.TRAIN_STORAGE_TIMEOUT_S.get())

    def _identity(self) -> str:
        if self._filesystem is None:
            return self._given
        from runtime import cloudpickle

        return f"{cloudpickle.dumps(self._filesystem).hex()} {self._given}"
