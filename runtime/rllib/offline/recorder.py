"""Writes experience to files, as `OfflineData` and Ray RLlib read them."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from runtime.rllib._core import tables
from runtime.rllib._core.rollout import Rollout
from runtime.rllib._core.types import Config, ModuleID

from . import episode_files, storage

if TYPE_CHECKING:
    import pyarrow as pa


class Recorder:
    """Buffers the rows of one environment runner and writes them under `config.output`.

    The rows are steps, or whole episodes with `output_write_episodes`. Without `output_max_rows_per_file`, each `add`
    writes a file, or several of about `output_max_file_size` bytes of columns; with it, files of that many rows are
    written as they fill, and `close` writes what is left if `output_write_remaining_data` is set.

    Args:
        config: see its `offline_data`.
        environment: the name of the environment, a folder below `config.output`.
        runner: the number of the environment runner, a part of the names of its files. No recorder replaces another's.

    Raises:
        ValueError: `config.output` is no folder or URI.
    """

    def __init__(self, config: Config, environment: str, runner: int) -> None:
        output = config.output
        if output == "logdir" or not isinstance(output, str | os.PathLike):
            raise ValueError(
                f"config.offline_data(output={output!r}): give a folder or a URI. 'logdir' and functions that make an "
                "OutputWriter belong to the old API stack."
            )
        self._config = config
        self._folder = f"{str(config.output).rstrip('/')}/{environment}"
        # A runner that is restarted, and the next run, have the same number, and must not replace these files.
        self._name = f"run-{runner:06d}-{uuid.uuid4().hex[:12]}"
        self._filesystem = storage.filesystem_of(config.output_filesystem, config.output_filesystem_kwargs)
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self._writes = 0

    @property
    def buffered_rows(self) -> int:
        """Rows that are not written yet."""
        return self._pending_rows

    def add(self, rollouts: Mapping[ModuleID, Rollout]) -> None:
        """Takes the rows, and writes files as they fill.

        Raises:
            OSError: a file cannot be written.
        """
        for module_id, rollout in rollouts.items():
            if rollout.rows:
                self._pending.append(self._table(module_id, rollout))
                self._pending_rows += self._pending[-1].num_rows
        per_file = self._config.output_max_rows_per_file
        if not per_file:
            for part in _parts(self._take(None), self._config.output_max_file_size):
                self._write(part)
            return
        while self.buffered_rows >= per_file:
            self._write(self._take(per_file))

    def close(self) -> None:
        """Writes what is buffered if `output_write_remaining_data` is set."""
        if self._config.output_write_remaining_data:
            self._write(self._take(None))

    def _table(self, module_id: ModuleID, rollout: Rollout) -> pa.Table:
        import pyarrow as pa

        from runtime.data.block import BlockAccessor

        if self._config.output_write_episodes:
            episodes = episode_files.encode_segments(rollout, module_id)
            return pa.table({episode_files.COLUMN: pa.array(episodes, pa.binary())})
        return BlockAccessor.batch_to_block(tables.table_from_rollout(rollout, module_id))

    def _take(self, rows: int | None) -> pa.Table | None:
        """The first rows of the buffer, or all."""
        import pyarrow as pa

        if not self._pending:
            return None
        joined = pa.concat_tables(self._pending, promote_options="default")
        taken = joined if rows is None else joined.slice(0, rows)
        left = joined.slice(taken.num_rows)
        self._pending = [left] if left.num_rows else []
        self._pending_rows = left.num_rows
        return taken

    def _write(self, table: pa.Table | None) -> None:
        if table is None:
            return
        self._writes += 1
        path = f"{self._folder}/{self._name}-{self._writes:05d}"
        config = self._config
        if config.output_write_method == "write_parquet" and not config.output_write_method_kwargs:
            # Without tasks: the runners themselves may hold all CPUs of the cluster.
            write_parquet(table, path, config.output_compress_columns, self._filesystem)
            return
        import runtime.data

        options = dict(config.output_write_method_kwargs)
        if self._filesystem is not None:
            options["filesystem"] = self._filesystem
        getattr(runtime.data.from_arrow(table), config.output_write_method)(path, **options)


def _parts(table: pa.Table | None, most_bytes: float | None) -> list[pa.Table]:
    """The table in as few pieces of equal numbers of rows as have at most so many bytes each, or one row."""
    if table is None:
        return []
    pieces = -(-table.nbytes // max(int(most_bytes), 1)) if most_bytes else 1
    rows = -(-table.num_rows // max(pieces, 1))
    return [table.slice(start, rows) for start in range(0, table.num_rows, rows)]


def write_parquet(table: pa.Table, folder: str, lz4_columns: Any, filesystem: Any = None) -> None:
    """One file in a new folder; with names in `lz4_columns`, with Parquet's LZ4 codec, which any reader undoes.

    Raises:
        OSError: the file cannot be written.
    """
    import pyarrow.parquet as pq
    from pyarrow import fs

    if filesystem is None:
        if "://" in folder:
            filesystem, folder = fs.FileSystem.from_uri(folder)
        else:
            filesystem, folder = fs.LocalFileSystem(), os.path.abspath(os.path.expanduser(folder))
    filesystem.create_dir(folder, recursive=True)
    compression = "lz4" if lz4_columns else "snappy"
    # Readers skip names that begin with "_": they never see half a file.
    pq.write_table(table, f"{folder}/_part-000000.parquet", filesystem=filesystem, compression=compression)
    filesystem.move(f"{folder}/_part-000000.parquet", f"{folder}/part-000000.parquet")
