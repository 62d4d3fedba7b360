"""The base of all sinks that write files: staged files, an atomic commit, modes, sizes of files.

A task writes to a hidden folder `.staging-<write id>/<attempt>` below the target. The driver renames what successful
attempts wrote, and removes the folder. So readers never see half a file, failed writes leave nothing, and a task that
ran twice leaves its files once. The rename of a single file is atomic; that of all of them together is not.
"""

from __future__ import annotations

import errno
import posixpath
import uuid
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from runtime.data.block import BlockAccessor
from runtime.data.io import blocks as block_sizes
from runtime.data.io import paths
from runtime.data.io.errors import writing
from runtime.data.io.filenames import FilenameProvider
from runtime.data.io.filesystems import is_local, is_this_machine_only, resolve
from runtime.data.io.interfaces import Datasink, SaveMode, TaskContext, WriteResult
from runtime.data.io.paths import STAGING
from runtime.data.io.retries import Retries

if TYPE_CHECKING:
    import pyarrow as pa

_COMMIT_THREADS = 16
_REMOVALS = 10
_WITHOUT_FOLDERS = frozenset(
    {"s3", "gcs", "abfs"}
)  # a folder there is the prefix of names, and needs no creation


class StagedFile(NamedTuple):
    """A file that waits for the commit: where it is, and its path below the target."""

    staged: str
    relative: str


class TaskFiles:
    """The files of one attempt of a task."""

    def __init__(self, sink: FileDatasink, ctx: TaskContext) -> None:
        self._sink = sink
        self._task = ctx.task_idx
        self._folder = posixpath.join(sink.staging, uuid.uuid4().hex[:12])
        self.done: list[StagedFile] = []
        self.current = ""
        """Where the file that was opened last will be."""
        self._opened = 0

    @contextmanager
    def for_block(self, first: pa.Table, folder: str = "") -> Iterator[pa.NativeFile]:
        """Opens a file for many rows, of which `first` are the first ones, in a folder below the target."""
        provider = self._sink.filename_provider
        name = provider.get_filename_for_block(first, self._sink.write_id, self._task, self._opened)
        with self._open(posixpath.join(folder, name)) as file:
            yield file

    @contextmanager
    def for_row(self, row: dict[str, Any], block: int, index: int) -> Iterator[pa.NativeFile]:
        """Opens the file of a single row."""
        provider = self._sink.filename_provider
        with self._open(
            provider.get_filename_for_row(row, self._sink.write_id, self._task, block, index)
        ) as file:
            yield file

    @contextmanager
    def _open(self, relative: str) -> Iterator[pa.NativeFile]:
        self._opened += 1
        sink = self._sink
        target = posixpath.join(sink.path, relative)
        staged = posixpath.join(self._folder, relative)

        def opened() -> pa.NativeFile:
            sink.make_staged_folder(posixpath.dirname(staged))
            return sink.filesystem.open_output_stream(staged, **sink.open_args)

        self.current = target
        with writing(target):
            file = sink.retries.call(opened)
        try:
            yield file
        except BaseException:
            with suppress(Exception):  # the first error counts
                file.close()
            raise
        with writing(target):
            file.close()
        self.done.append(StagedFile(staged, relative))


class FileDatasink(Datasink[list[StagedFile]]):
    """Writes files into a folder.

    Args:
        path: The folder, local or with a scheme. On several nodes it must be storage that all of them share, or a
            path with local://, where tasks run on the driver's node only.
        filesystem: A file system of pyarrow or fsspec; by default the path's scheme decides.
        try_create_dir: Whether to create the folder if it does not exist.
        open_stream_args: Arguments of `pyarrow.fs.FileSystem.open_output_stream`, for example compression.
        filename_provider: Names the files.
        dataset_uuid: With what names start by default.
        file_format: The ending of names by default.
        mode: What to do where files exist. APPEND adds files; OVERWRITE removes the old ones when the new ones are
            complete; IGNORE writes nothing; ERROR and CREATE raise.

    Raises:
        ValueError: The mode is UPSERT, which is for tables of databases.
    """

    def __init__(
        self,
        path: str,
        *,
        filesystem: Any = None,
        try_create_dir: bool = True,
        open_stream_args: dict[str, Any] | None = None,
        filename_provider: FilenameProvider | None = None,
        dataset_uuid: str | None = None,
        file_format: str | None = None,
        mode: SaveMode | str = SaveMode.APPEND,
    ) -> None:
        self.mode = SaveMode.of(mode)
        if self.mode is SaveMode.UPSERT:
            raise ValueError("Files cannot be written with mode 'upsert'; use 'append' or 'overwrite'.")
        self._is_here_only = is_this_machine_only(path)
        self.filesystem, (self.path,) = resolve(path, filesystem)
        self.filename_provider = filename_provider or FilenameProvider(dataset_uuid, file_format)
        self.open_args = dict(open_stream_args or {})
        self.retries = Retries.of()
        self.write_id = uuid.uuid4().hex
        self._may_create_folder = try_create_dir
        self._skips = False

    @property
    def staging(self) -> str:
        """The hidden folder of files that are not committed."""
        return posixpath.join(self.path, STAGING + self.write_id)

    @property
    def skips_write(self) -> bool:
        return self._skips

    @property
    def supports_distributed_writes(self) -> bool:
        return not self._is_here_only

    def on_write_start(self, schema: pa.Schema | None = None) -> None:
        """Looks what exists, and creates the folder.

        Raises:
            ValueError: There are files, which the mode does not allow.
            FileNotFoundError: The folder does not exist and is not to be created.
        """
        self.write_id = uuid.uuid4().hex
        self.retries = Retries.of()
        if self.mode in (SaveMode.ERROR, SaveMode.CREATE) and self._existing():
            raise ValueError(
                f"Path {self.path} already exists. Use mode='append', 'overwrite' or 'ignore' if that is expected."
            )
        self._skips = self.mode is SaveMode.IGNORE and bool(self._existing())
        if self._skips:
            return
        if not self._may_create_folder and not self._exists():
            raise FileNotFoundError(
                f"{self.path} does not exist; create it, or write with try_create_dir=True"
            )
        with writing(self.path):
            self.retries.call(lambda: self.make_folder(self.staging))

    def write(self, blocks: Iterable[pa.Table], ctx: TaskContext) -> list[StagedFile]:
        if self._skips:
            return []
        files = TaskFiles(self, ctx)
        self.write_blocks(blocks, files)
        return files.done

    @abstractmethod
    def write_blocks(self, blocks: Iterable[pa.Table], files: TaskFiles) -> None:
        """Writes a task's blocks to files."""

    def on_write_complete(self, write_result: WriteResult[list[StagedFile]]) -> None:
        """Moves the files to their places.

        Raises:
            ValueError: Two files have the same name, which the filename provider gave. Nothing is moved.
        """
        if self._skips:
            return
        staged = [file for files in write_result.write_returns for file in files]
        names: set[str] = set()
        for file in staged:
            if file.relative in names:
                raise ValueError(
                    f"Two files of this write are named {file.relative}; names must be different."
                )
            names.add(file.relative)
        targets = [posixpath.join(self.path, file.relative) for file in staged]
        old = self._existing() if self.mode is SaveMode.OVERWRITE else []
        try:
            for folder in sorted({posixpath.dirname(target) for target in targets}):
                with writing(folder):
                    self.retries.call(lambda: self.make_folder(folder))  # noqa: B023 - called at once
            self._in_parallel(self._move, [file.staged for file in staged], targets)
        except BaseException:
            self._withdraw(targets)
            raise
        outdated = sorted(set(old) - set(targets))
        self._in_parallel(self.filesystem.delete_file, outdated)
        self._remove_staging()

    def _move(self, staged: str, target: str) -> None:
        import pyarrow.fs as pafs

        with writing(target):
            try:
                self.filesystem.move(staged, target)
            except FileNotFoundError:
                # An attempt of which only the answer was lost has moved it.
                if self.filesystem.get_file_info(target).type == pafs.FileType.NotFound:
                    raise

    def _withdraw(self, targets: Sequence[str]) -> None:
        """Removes the files of a commit that failed, as far as their names tell that they are of this write."""
        for target in targets:
            if self.write_id in target:
                with suppress(Exception):  # most of them are not there, and the first error counts
                    self.filesystem.delete_file(target)

    def on_write_failed(self, error: Exception) -> None:
        """Removes what the tasks wrote."""
        if not self._skips:
            self._remove_staging()

    def make_folder(self, folder: str) -> None:
        """Creates a folder and those above it, where the file system has folders."""
        if self.filesystem.type_name not in _WITHOUT_FOLDERS:
            self.filesystem.create_dir(folder, recursive=True)

    def make_staged_folder(self, folder: str) -> None:
        """Creates a folder for files that are not committed, unless the write has ended: a task that ends late must
        leave nothing behind. Only local file systems can tell that.

        Raises:
            FileNotFoundError: The write has ended.
        """
        if not is_local(self.filesystem):
            self.make_folder(folder)
            return
        made = self.staging
        for name in posixpath.relpath(folder, made).split("/"):
            made = posixpath.join(made, name)
            self.filesystem.create_dir(made, recursive=False)

    def _exists(self) -> bool:
        import pyarrow.fs as pafs

        return bool(self.filesystem.get_file_info(self.path).type != pafs.FileType.NotFound)

    def _existing(self) -> list[str]:
        if not self._exists():
            return []
        return [file.path for file in paths.expand(self.filesystem, [self.path], ignore_missing=True)]

    def _remove_staging(self) -> None:
        for tries_left in reversed(range(_REMOVALS)):
            try:
                self.filesystem.delete_dir(self.staging)
            except FileNotFoundError:
                pass  # an object store, and no task has written anything
            except OSError as error:
                if self.filesystem.type_name in _WITHOUT_FOLDERS:
                    return
                if error.errno == errno.ENOTEMPTY and tries_left:  # a task was just writing
                    continue
                raise
            return

    def _in_parallel(self, call: Any, *arguments: Sequence[str]) -> None:
        def with_retries(*each: str) -> None:
            self.retries.call(lambda: call(*each))

        if is_local(self.filesystem) or len(arguments[0]) < 2:
            for each in zip(*arguments, strict=True):
                with_retries(*each)
            return
        with ThreadPoolExecutor(_COMMIT_THREADS, thread_name_prefix="data-commit") as pool:
            list(pool.map(with_retries, *arguments))


class BlockBasedFileDatasink(FileDatasink):
    """Writes blocks to a file each; small blocks of a task are joined. A subclass defines `write_block_to_file`.

    Args:
        min_rows_per_file: The fewest rows of a file, as far as the data set has them.
    """

    def __init__(self, path: str, *, min_rows_per_file: int | None = None, **options: Any) -> None:
        super().__init__(path, **options)
        self._min_rows = min_rows_per_file

    @property
    def min_rows_per_write(self) -> int | None:
        return self._min_rows

    @abstractmethod
    def write_block_to_file(self, block: BlockAccessor, file: pa.NativeFile) -> None:
        """Writes a block (`block.to_arrow()`, `block.to_pandas()`) to an open file."""

    def write_blocks(self, blocks: Iterable[pa.Table], files: TaskFiles) -> None:
        for table in block_sizes.joined(blocks, block_sizes.TARGET_BYTES, self._min_rows or 0):
            self.retries.call(lambda: self._write_block(table, files))  # noqa: B023 - called at once

    def _write_block(self, table: pa.Table, files: TaskFiles) -> None:
        with files.for_block(table) as file, writing(files.current):
            self.write_block_to_file(BlockAccessor(table), file)


class RowBasedFileDatasink(FileDatasink):
    """Writes rows to a file each. A subclass defines `write_row_to_file`."""

    @abstractmethod
    def write_row_to_file(self, row: dict[str, Any], file: pa.NativeFile) -> None:
        """Writes a row to an open file."""

    def write_blocks(self, blocks: Iterable[pa.Table], files: TaskFiles) -> None:
        from runtime.data._block import batch

        for number, table in enumerate(blocks):
            for index, row in enumerate(batch.rows(table)):
                self.retries.call(lambda: self._write_row(row, number, index, files))  # noqa: B023 - called at once

    def _write_row(self, row: dict[str, Any], block: int, index: int, files: TaskFiles) -> None:
        with files.for_row(row, block, index) as file, writing(files.current):
            self.write_row_to_file(row, file)
