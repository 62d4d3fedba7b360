"""The folder of a run, in a local or remote file system.

    <run>/<checkpoint>/...            the files of all ranks
    <run>/<checkpoint>/manifest.json  written last: with it the checkpoint is visible
    <run>/.unfinished/<checkpoint>@<rank>   made before the files, removed after the manifest is written
    <run>/.unfinished/<checkpoint>@deleted  made before a checkpoint is deleted, removed after it
    <run>/.unfinished/*.draft         files that are not complete

`sweep` removes what is named in `.unfinished` and has no manifest, so it never touches files that users keep in the
run's folder.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from runtime import cloudpickle
from runtime._system import settings
from runtime.train._api.checkpoint import Checkpoint
from runtime.train._api.exceptions import StorageError
from runtime.train._core import manifest
from runtime.train._core.manifest import FileRecord, Manifest, PartManifest, Place
from runtime.train._core.validations import ReportedCheckpointStatus as Status
from runtime.train._run import files
from runtime.train._run.calls import Cancelled, Watch, watched
from runtime.train._run.download import AT_ONCE, each

__all__ = ["Cancelled", "Committed", "RunStorage"]

T = TypeVar("T")
_log = logging.getLogger(__name__)

_UNFINISHED = ".unfinished"
_DELETED = "deleted"
_STATE = "state.json"
_KEEP_IT = (
    "Keep the checkpoint's folder until it is uploaded: in the mode ASYNC that is after report() has returned, so use "
    "tempfile.mkdtemp(), not a TemporaryDirectory."
)


class Committed(msgspec.Struct, frozen=True):
    """A checkpoint that is complete.

    Attributes:
        name: of its folder in the run's.
        metrics: those of rank 0 that were reported with it, and those of its validation.
        status: whether it is validated.
        validation: what its report says of the validation, pickled; b"": none is wanted.
    """

    name: str
    checkpoint: Checkpoint
    metrics: dict[str, Any]
    status: Status = Status.COMMITTED
    validation: bytes = b""


class Hidden(msgspec.Struct, frozen=True):
    """A checkpoint that does not count any more. `elsewhere`: its files, if they are not in the run's folder, and no
    other checkpoint has them."""

    name: str
    elsewhere: Checkpoint | None = None


class RunStorage:
    """A run's folder. Can be pickled: workers upload, the controller does all else.

    Every call ends with an error if the storage makes no progress for a time (RAY_TRAIN_STORAGE_TIMEOUT_S), and is
    tried again after errors that may go away.

    Args:
        path: of the folder of all runs: a local path, a URI, or a path on `filesystem`.
        name: of the run.
        filesystem: of fsspec or `pyarrow.fs`.
    """

    def __init__(self, path: str, name: str, filesystem: Any = None) -> None:
        self.path = files.local_path(path) if files.is_local(path, filesystem) else files.join(path)
        self.name = name
        self._filesystem = filesystem
        self._resolved: tuple[files.Files, str] | None = None
        self._known: list[tuple[str, Manifest]] | None = None  # in the process that commits
        self._records: dict[str, str] = {}  # texts of `append_lines` where files cannot be appended to

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.name, self._filesystem)

    @property
    def is_local(self) -> bool:
        """Whether it is in a file system of this machine, or one that is mounted here."""
        return files.is_local(self.path, self._filesystem)

    @property
    def folder(self) -> str:
        """The run's folder, as a path on the file system."""
        return self._place()[1]

    @property
    def experiment_fs_path(self) -> str:
        """The same as `folder`."""
        return self.folder

    @property
    def storage_filesystem(self) -> Any:
        """See `Checkpoint.filesystem`."""
        return files.public(self.path, self._filesystem)[0]

    def build_checkpoint_path_from_name(self, checkpoint_dir_name: str) -> str:
        """Where a checkpoint of this name is, on the file system."""
        return f"{self.folder}/{checkpoint_dir_name}"

    # ------------------------------------------------------------ in workers

    def upload(
        self, checkpoint: Checkpoint, name: str, rank: int, cancelled: Callable[[], bool]
    ) -> PartManifest:
        """Copies a rank's files of a checkpoint to the run's folder. Files of several ranks come together in one
        folder; of those with the same name the last one written stays.

        Args:
            checkpoint: whose files are copied.
            name: of the checkpoint in the run.
            rank: of this worker.
            cancelled: asked while it lasts.

        Raises:
            Cancelled: the call was given up.
            StorageError: the files could not be read or written.
        """
        what = f"upload the checkpoint {files.shown(checkpoint._given)} of rank {rank} to"

        def work(watch: Watch) -> PartManifest:
            target, run = self._place()
            source, path = checkpoint.resolve()
            try:
                sizes = watch.retried(lambda: source.walk(path))
            except FileNotFoundError as error:
                raise StorageError(what, f"{run}/{name}", f"{path} does not exist", _KEEP_IT) from error
            self._check_name(name, what)
            folder, unfinished = f"{run}/{name}", f"{run}/{_UNFINISHED}"
            if target.is_local and target.size(unfinished) is None:
                raise StorageError(
                    what,
                    folder,
                    "this node has not got the run's folder, which the run's controller has made on its node",
                    "With several nodes the storage_path must be a folder that all of them share, or the URI of a "
                    "storage such as s3://bucket/runs.",
                )
            if manifest.NAME in sizes and folder != path:
                if not _is_manifest(source.read(f"{path}/{manifest.NAME}")):
                    raise StorageError(
                        what, folder, f"it has a file {manifest.NAME}", "The name is taken: rename the file."
                    )
                del sizes[manifest.NAME]  # of a checkpoint that is reported again
            if watch.retried(lambda: target.size(f"{folder}/{manifest.NAME}")) is not None:
                raise StorageError(
                    what,
                    folder,
                    "the run has a checkpoint of this name",
                    "Give each checkpoint another checkpoint_dir_name, for example with the number of the step.",
                )
            self._mark(watch, name, str(rank))
            records: dict[str, FileRecord] = {}

            def one(inner: str) -> None:
                records[inner] = watch.retried(
                    lambda: files.copy(
                        source,
                        f"{path}/{inner}",
                        target,
                        f"{folder}/{inner}",
                        sizes[inner],
                        files.draft_in(unfinished),
                        watch.beat,
                        is_durable=True,
                    )
                )

            try:
                each(one, sorted(sizes), AT_ONCE)
            except FileNotFoundError as error:
                if source.size(str(error.filename)) is None and str(error.filename).startswith(path):
                    reason = f"{error.filename} was removed meanwhile"
                    raise StorageError(what, folder, reason, _KEEP_IT) from error
                raise
            folders = {folder, run, *_folders(folder, records)} if records else set()
            for inner in sorted(folders, reverse=True):
                watch.beat()
                target.settle_names(inner)
            return PartManifest(rank, records)

        return self._call(what, name, work, cancelled)

    def adopt(self, checkpoint: Checkpoint, name: str, rank: int) -> PartManifest:
        """Takes a rank's files from where they are: somebody else has brought them there.

        Raises:
            TypeError: `checkpoint` is none.
        """
        if not isinstance(checkpoint, Checkpoint):
            raise TypeError(
                f"checkpoint_upload_fn must return a Checkpoint that is in the storage, not {checkpoint!r:.100}."
            )
        self._check_name(name, "commit")
        if checkpoint._filesystem is None or checkpoint._is_local:
            given = checkpoint._given if "://" in checkpoint._given else f"file://{checkpoint._given}"
            return PartManifest(rank, {}, Place(given))
        is_own = checkpoint._filesystem is self._filesystem or checkpoint._filesystem == self._filesystem
        pickled = b"" if is_own else cloudpickle.dumps(checkpoint._filesystem)
        return PartManifest(rank, {}, Place(checkpoint._given, pickled))

    # ------------------------------------------------------------ in the controller

    def open(self) -> None:
        """Makes the folder, and removes what earlier processes have left unfinished.

        Raises:
            StorageError: the folder cannot be used.
        """

        def work(watch: Watch) -> None:
            own, run = self._place()
            probe = f"{run}/{_UNFINISHED}/probe"
            watch.retried(lambda: own.make_folder(run))
            watch.retried(lambda: own.write(probe, b"", files.draft_in(f"{run}/{_UNFINISHED}")))
            own.remove(probe)
            for folder in (run, run.rpartition("/")[0]):
                own.settle_names(folder or "/")

        self._call("write to the storage_path", "", work)
        self.sweep()

    def commit(
        self, name: str, parts: Sequence[PartManifest], metrics: dict[str, Any], validation: bytes = b""
    ) -> Checkpoint:
        """Makes a checkpoint visible. Its parts are there. `tidy` should follow.

        Args:
            name: of the checkpoint.
            parts: of the ranks that have files.
            metrics: of rank 0.
            validation: what the report says of it, pickled; b"": none is wanted.

        Raises:
            StorageError: its manifest could not be written.
        """
        self._check_name(name, "commit")
        known = self._manifests()
        merged, clashes = manifest.merge(parts)
        for clash in clashes:
            _log.warning(
                "Checkpoint %s: ranks %s wrote different files %s; one of them is kept. Give the files of each rank "
                "their own names.",
                name,
                ", ".join(map(str, clash.ranks)),
                clash.path,
            )
        readable, is_exact = manifest.readable(metrics)
        record = Manifest(
            number=1 + max((one.number for _, one in known), default=0),
            created_s=time.time(),
            files=merged,
            ranks=sorted(part.rank for part in parts),
            place=next((part.place for part in parts if part.place is not None), None),
            metrics=readable,
            pickled_metrics=b"" if is_exact else cloudpickle.dumps(metrics),
            status=(Status.PENDING_VALIDATION if validation else Status.COMMITTED).value,
            validation=validation,
        )
        self._write_manifest("commit", name, record)
        known.append((name, record))
        return self._checkpoint(name, record)

    def validated(self, name: str, status: Status, metrics: dict[str, Any]) -> None:
        """Keeps what has come of a checkpoint's validation.

        Args:
            name: of the checkpoint.
            metrics: all that it has now.

        Raises:
            StorageError: its manifest could not be written.
        """
        known = self._manifests()
        index = next(index for index, (each, _) in enumerate(known) if each == name)
        readable, is_exact = manifest.readable(metrics)
        record = msgspec.structs.replace(
            known[index][1],
            metrics=readable,
            pickled_metrics=b"" if is_exact else cloudpickle.dumps(metrics),
            status=status.value,
        )
        self._write_manifest("write the outcome of the validation of", name, record)
        known[index] = name, record

    def committed(self) -> list[Committed]:
        """The complete checkpoints, in the order of their commits.

        Raises:
            StorageError: the folder could not be read.
        """
        return [
            Committed(
                name,
                self._checkpoint(name, record),
                _metrics(record),
                Status(record.status),
                record.validation,
            )
            for name, record in self._manifests()
        ]

    def hide(self, name: str) -> Hidden:
        """A checkpoint does not count any more in this process; `remove` should follow. In other processes it does
        until then."""
        record = next(record for each, record in self._manifests() if each == name)
        self._known = [(each, record) for each, record in self._manifests() if each != name]
        is_elsewhere = record.place is not None
        is_shared = any(other.place == record.place for _, other in self._manifests())
        return Hidden(name, self._checkpoint(name, record) if is_elsewhere and not is_shared else None)

    def remove(self, hidden: Hidden) -> None:
        """Removes the files of a checkpoint, side by side with other calls. What cannot be removed is when the run's
        folder is opened again."""
        name = hidden.name

        def work(watch: Watch) -> None:
            own, run = self._place()
            self._mark(watch, name, _DELETED)
            watch.retried(lambda: own.remove(f"{run}/{name}/{manifest.NAME}"))
            watch.retried(lambda: own.remove(f"{run}/{name}"))
            if hidden.elsewhere is not None:
                place, path = hidden.elsewhere.resolve()
                watch.retried(lambda: place.remove(path))

        try:
            self._call("delete", name, work)
        except StorageError as error:
            _log.warning("%s", error)
        else:
            self.tidy(name)

    def sweep(self) -> None:
        """Removes checkpoints that were not completed, or not deleted completely. No worker may upload meanwhile.

        Raises:
            StorageError: the folder could not be read.
        """

        def work(watch: Watch) -> None:
            own, run = self._place()
            complete = {name for name, _ in self._manifests()}
            for entry in watch.retried(lambda: own.names(f"{run}/{_UNFINISHED}")):
                name, separator, who = entry.rpartition("@")
                if separator and (who == _DELETED or name not in complete) and manifest.is_name(name):
                    watch.retried(lambda name=name: own.remove(f"{run}/{name}"))  # type: ignore[misc]
                    complete.discard(name)
                watch.retried(lambda entry=entry: own.remove(f"{run}/{_UNFINISHED}/{entry}"))  # type: ignore[misc]
            if self._known is not None:
                self._known = [one for one in self._known if one[0] in complete]

        self._call("remove unfinished checkpoints of", "", work)

    def read_state(self) -> bytes:
        """What `write_state` has written; b"": nothing."""
        return self.read(_STATE)

    def write_state(self, state: bytes) -> None:
        """Replaces the state atomically."""
        self.write(_STATE, state)

    def read(self, name: str) -> bytes:
        """A file of the run's folder; b"": there is none."""

        def work(watch: Watch) -> bytes:
            own, run = self._place()
            try:
                return watch.retried(lambda: own.read(f"{run}/{name}"))
            except FileNotFoundError:
                return b""

        return self._call("read", name, work)

    def write(self, name: str, data: bytes) -> None:
        """Replaces a file of the run's folder atomically."""

        def work(watch: Watch) -> None:
            own, run = self._place()
            draft = files.draft_in(f"{run}/{_UNFINISHED}")
            watch.retried(lambda: own.write(f"{run}/{name}", data, draft))

        self._call("write", name, work)

    def append_lines(self, name: str, text: str) -> None:
        """Appends whole lines to a file of the run's folder. One process does so for a file.

        A remote file is written anew each time, so give many lines at once there.
        """
        own, run = self._place()
        if own.is_local:

            def work(watch: Watch) -> None:
                with open(f"{run}/{name}", "a", encoding="utf-8") as file:
                    file.write(text)

            self._call("append to", name, work)
            return
        if name not in self._records:
            self._records[name] = self.read(name).decode()
        self._records[name] += text
        self.write(name, self._records[name].encode())

    # ------------------------------------------------------------ inside

    def _place(self) -> tuple[files.Files, str]:
        if self._resolved is None:
            own, path = files.resolve(self.path, self._filesystem)
            self._resolved = own, f"{path.rstrip('/')}/{self.name}"
        return self._resolved

    def _call(
        self, what: str, name: str, work: Callable[[Watch], T], cancelled: Callable[[], bool] = lambda: False
    ) -> T:
        path = files.shown(files.join(self.path, self.name, name))
        return watched(what, path, work, settings.TRAIN_STORAGE_TIMEOUT_S.get(), cancelled)

    def _check_name(self, name: str, what: str) -> None:
        if not manifest.is_name(name):
            raise StorageError(
                what,
                files.shown(files.join(self.path, self.name, name)),
                "this is no name of a folder",
                "checkpoint_dir_name must be at most 200 characters without '/' and must not begin with a dot.",
            )

    def _mark(self, watch: Watch, name: str, who: str) -> None:
        own, run = self._place()

        def make() -> None:
            path, draft = f"{run}/{_UNFINISHED}/{name}@{who}", files.draft_in(f"{run}/{_UNFINISHED}")
            with own.create(path, 0, draft):
                pass

        watch.retried(make)

    def tidy(self, name: str) -> None:
        """Removes the marks of a checkpoint that is committed or removed, side by side with other calls. If that
        fails, `sweep` does it."""

        def work(watch: Watch) -> None:
            own, run = self._place()
            for entry in own.names(f"{run}/{_UNFINISHED}"):
                if entry.rpartition("@")[0] == name:
                    own.remove(f"{run}/{_UNFINISHED}/{entry}")

        try:
            self._call("tidy", _UNFINISHED, work)
        except StorageError as error:
            _log.info("%s", error)

    def _write_manifest(self, what: str, name: str, record: Manifest) -> None:
        def work(watch: Watch) -> None:
            own, run = self._place()
            path, draft = f"{run}/{name}/{manifest.NAME}", files.draft_in(f"{run}/{_UNFINISHED}")
            watch.retried(lambda: own.write(path, manifest.encode(record), draft))
            own.settle_names(run)

        self._call(what, name, work)

    def _checkpoint(self, name: str, record: Manifest) -> Checkpoint:
        place = record.place
        if place is None:
            return Checkpoint(files.join(self.path, self.name, name), self._filesystem)
        if place.filesystem:
            return Checkpoint(place.path, cloudpickle.loads(place.filesystem))
        return Checkpoint(place.path, None if "://" in place.path else self._filesystem)

    def _manifests(self) -> list[tuple[str, Manifest]]:
        if self._known is None:
            self._known = self._call("read the checkpoints of", "", self._read_manifests)
        return self._known

    def _read_manifests(self, watch: Watch) -> list[tuple[str, Manifest]]:
        own, run = self._place()
        found: list[tuple[str, Manifest]] = []
        names = [name for name in watch.retried(lambda: own.names(run)) if manifest.is_name(name)]

        def one(name: str) -> None:
            try:
                data = watch.retried(lambda: own.read(f"{run}/{name}/{manifest.NAME}"))
                record = manifest.decode(data)
            except (FileNotFoundError, NotADirectoryError):
                return
            except manifest.InvalidManifest as error:
                _log.warning("Checkpoint %s/%s is left out: its manifest is invalid. %s", run, name, error)
                return
            lacks = manifest.differences(record.files, own.walk(f"{run}/{name}")) if own.is_local else []
            if lacks:
                _log.warning(
                    "Checkpoint %s/%s is left out, it is damaged: %s", run, name, "; ".join(lacks[:5])
                )
            else:
                found.append((name, record))

        each(one, names, 1 if own.is_local else AT_ONCE)
        return sorted(found, key=lambda pair: pair[1].number)


def _folders(folder: str, paths: Iterable[str]) -> set[str]:
    """The folders of files, by their paths within `folder`, and those between."""
    found = set()
    for path in paths:
        while path := path.rpartition("/")[0]:
            found.add(f"{folder}/{path}")
    return found


def _metrics(record: Manifest) -> dict[str, Any]:
    return dict(cloudpickle.loads(record.pickled_metrics)) if record.pickled_metrics else dict(record.metrics)


def _is_manifest(data: bytes) -> bool:
    try:
        manifest.decode(data)
    except manifest.InvalidManifest:
        return False
    return True
