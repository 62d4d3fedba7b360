"""Broken files, missing rights, full disks: errors name the file and what to do, and nothing is left behind."""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runtime.data.io.csv import CSVDatasink, CSVDatasource
from runtime.data.io.errors import FileReadError, FileWriteError
from runtime.data.io.json_sink import JSONDatasink
from runtime.data.io.parquet import ParquetDatasource
from runtime.data.io.parquet_sink import ParquetDatasink
from runtime.data.io.sinks import RowBasedFileDatasink
from runtime.data.io.text import TextDatasource
from tests.runtime.data.io.reading import rows
from tests.runtime.data.io.writing import commit, files, start

ROWS = pa.table({"id": np.random.default_rng(0).integers(0, 1 << 60, 200_000)})
NOBODY = 65534


class Rows(RowBasedFileDatasink):
    def write_row_to_file(self, row, file):
        file.write(str(row["id"]).encode() * 10_000)


@contextlib.contextmanager
def without_rights(folder):
    """Nothing may be read or written in the folder."""
    folder.chmod(0)
    try:
        if os.geteuid() == 0:
            os.seteuid(NOBODY)
        yield
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
        folder.chmod(0o755)


@contextlib.contextmanager
def small_disk(size_bytes):
    """No file may become larger."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class TestReading:
    def test_a_truncated_parquet_file(self, tmp_path):
        pq.write_table(ROWS, tmp_path / "a.parquet")
        whole = (tmp_path / "a.parquet").read_bytes()
        (tmp_path / "a.parquet").write_bytes(whole[: len(whole) // 2])
        with pytest.raises(FileReadError, match=r"Cannot read .*a\.parquet: .*Parquet"):
            ParquetDatasource(tmp_path).get_read_tasks(1)

    def test_a_parquet_file_with_a_broken_page(self, tmp_path):
        pq.write_table(ROWS, tmp_path / "a.parquet", compression="snappy")
        whole = (tmp_path / "a.parquet").read_bytes()
        (tmp_path / "a.parquet").write_bytes(whole[:4] + b"\xff" * 100 + whole[104:])
        with pytest.raises(FileReadError, match=r"Cannot read .*a\.parquet"):
            rows(ParquetDatasource(tmp_path))

    def test_a_broken_row_of_csv(self, tmp_path):
        (tmp_path / "a.csv").write_text("a,b\n" + "1,2\n" * 10 + "1,2,3\n")
        with pytest.raises(FileReadError, match=r"a\.csv: .*Row #12: Expected 2 columns, got 3: 1,2,3"):
            rows(CSVDatasource(tmp_path))

    def test_a_file_that_is_gone(self, tmp_path):
        (tmp_path / "a.txt").write_text("x")
        (task,) = TextDatasource(tmp_path).get_read_tasks(1)
        (tmp_path / "a.txt").unlink()
        with pytest.raises(FileNotFoundError, match=r"a\.txt"):
            list(task())

    def test_a_folder_without_rights(self, tmp_path):
        (tmp_path / "in").mkdir()
        (tmp_path / "in" / "a.txt").write_text("x")
        (task,) = TextDatasource(tmp_path / "in").get_read_tasks(1)
        with without_rights(tmp_path / "in"):
            for read in (lambda: list(task()), lambda: TextDatasource(tmp_path / "in")):
                with pytest.raises(PermissionError, match="in"):
                    read()


class TestWriting:
    def test_a_folder_without_rights(self, tmp_path):
        (tmp_path / "in").mkdir()
        with (
            without_rights(tmp_path / "in"),
            pytest.raises(FileWriteError, match=r"in/out: .* change the folder's"),
        ):
            CSVDatasink(tmp_path / "in" / "out").on_write_start()
        sink = CSVDatasink(tmp_path / "in")
        sink.on_write_start()
        with (
            without_rights(tmp_path / "in"),
            pytest.raises(FileWriteError, match=r"in/.*\.csv: .* another path"),
        ):
            sink.write([ROWS], type("Context", (), {"task_idx": 0}))

    @pytest.mark.parametrize("kind", [CSVDatasink, JSONDatasink, ParquetDatasink, Rows])
    def test_a_full_disk(self, tmp_path, kind):
        sink = kind(tmp_path / "out", **({"partition_cols": ["k"]} if kind is ParquetDatasink else {}))
        table = ROWS.append_column("k", pa.array(np.arange(len(ROWS)) % 3))
        with (
            small_disk(100_000),
            pytest.raises(FileWriteError, match=r"Cannot write .*/out/.*: .*large.*") as error,
        ):
            start(sink, [table.slice(0, 10), table])
        assert "max_rows_per_file" in str(error.value)
        sink.on_write_failed(error.value)
        assert files(tmp_path) == []
        again = pickle.loads(pickle.dumps(error.value))
        assert (str(again), again.path, again.errno) == (
            str(error.value),
            error.value.path,
            error.value.errno,
        )

    def test_a_target_that_disappears_during_the_write(self, tmp_path):
        def disappearing():
            yield ROWS.slice(0, 10)
            shutil.rmtree(tmp_path / "out")
            yield ROWS.slice(0, 10)

        sink = CSVDatasink(tmp_path / "out", max_rows_per_file=10)
        sink.on_write_start()
        with pytest.raises(FileWriteError, match=r"out/.*\.csv: .* Its folder was removed"):
            sink.write(disappearing(), type("Context", (), {"task_idx": 0}))
        sink.on_write_failed(OSError())
        assert files(tmp_path) == []

    def test_a_target_that_disappears_before_the_commit(self, tmp_path):
        sink = CSVDatasink(tmp_path / "out")
        returned = start(sink, [ROWS.slice(0, 10)])
        shutil.rmtree(tmp_path / "out")
        with pytest.raises(FileWriteError, match=r"out/.*\.csv: .* Its folder was removed"):
            commit(sink, returned)
        assert files(tmp_path) == []

    def test_a_task_that_goes_on_after_the_write_has_failed_leaves_nothing(self, tmp_path):
        def late():
            sink.on_write_failed(OSError())
            yield ROWS.slice(0, 10)

        sink = CSVDatasink(tmp_path)
        sink.on_write_start()
        with pytest.raises(FileWriteError, match="removed"):
            sink.write(late(), type("Context", (), {"task_idx": 0}))
        assert list(tmp_path.iterdir()) == []

    def test_a_commit_that_fails_halfway_withdraws_its_files(self, tmp_path):
        sink = CSVDatasink(tmp_path)
        returned = start(sink, [ROWS.slice(0, 1)], [ROWS.slice(1, 1)])
        os.unlink(returned[1][0].staged)
        with pytest.raises(FileWriteError, match="_000001"):
            commit(sink, returned)
        sink.on_write_failed(OSError())
        assert files(tmp_path) == []

    def test_errors_of_users_stay_theirs(self, tmp_path):
        def broken():
            yield ROWS.slice(0, 10)
            raise OSError("of the user")

        sink = ParquetDatasink(tmp_path)
        sink.on_write_start()
        with pytest.raises(OSError, match=r"^of the user$"):
            sink.write(broken(), type("Context", (), {"task_idx": 0}))
        sink.on_write_failed(OSError())
        assert files(tmp_path) == []
