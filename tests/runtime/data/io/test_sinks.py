"""How files are committed, named and counted, whatever their format."""

from __future__ import annotations

from decimal import Decimal

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from runtime.data.io.csv import CSVDatasink, CSVDatasource
from runtime.data.io.filenames import FilenameProvider
from runtime.data.io.interfaces import SaveMode, TaskContext
from runtime.data.io.parquet import ParquetDatasource
from runtime.data.io.parquet_sink import ParquetDatasink
from runtime.data.io.sinks import BlockBasedFileDatasink, RowBasedFileDatasink
from tests.runtime.data.io.reading import rows
from tests.runtime.data.io.writing import attempt, commit, files, start, write


def ids(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


def read(folder) -> list[int]:
    return sorted(row["id"] for row in rows(CSVDatasource(folder)))


def test_nothing_is_visible_before_the_commit(tmp_path):
    sink = CSVDatasink(tmp_path / "out")
    returned = start(sink, [ids(1), ids(2)], [ids(3)])
    with pytest.raises(ValueError, match="no file to read"):
        CSVDatasource(tmp_path / "out")
    commit(sink, returned)
    assert read(tmp_path / "out") == [1, 2, 3]
    assert files(tmp_path / "out") == [f"{sink.write_id}_{task:06}.csv" for task in range(2)]


def test_a_task_that_ran_twice_leaves_its_files_once(tmp_path):
    sink = CSVDatasink(tmp_path)
    sink.on_write_start()
    attempt(sink, 0, [ids(1)])  # its node dies after it has written
    commit(sink, [attempt(sink, 0, [ids(1)]), attempt(sink, 1, [ids(2)])])
    assert read(tmp_path) == [1, 2]
    assert len(files(tmp_path)) == 2


def test_an_attempt_that_fails_halfway_leaves_nothing(tmp_path):
    def interrupted():
        yield ids(1)
        raise RuntimeError("worker is gone")

    sink = CSVDatasink(tmp_path)
    sink.on_write_start()
    with pytest.raises(RuntimeError, match="gone"):
        sink.write(interrupted(), ctx=type("Context", (), {"task_idx": 0}))
    commit(sink, [attempt(sink, 0, [ids(1), ids(2)])])
    assert read(tmp_path) == [1, 2]
    assert len(files(tmp_path)) == 1


def test_a_failed_write_leaves_nothing(tmp_path):
    (tmp_path / "old.csv").write_text('"id"\n0\n')
    sink = CSVDatasink(tmp_path, mode="overwrite")
    start(sink, [ids(1)])
    sink.on_write_failed(RuntimeError())
    assert files(tmp_path) == ["old.csv"]


class TestModes:
    @pytest.fixture
    def old(self, tmp_path):
        write(CSVDatasink(tmp_path), [ids(0)])
        return tmp_path

    def test_append(self, old):
        sink = CSVDatasink(old)
        for _ in range(2):  # also with the same sink
            write(sink, [ids(1)])
        assert read(old) == [0, 1, 1]

    def test_overwrite_removes_old_files_when_the_new_ones_are_complete(self, old):
        sink = CSVDatasink(old, mode=SaveMode.OVERWRITE)
        returned = start(sink, [ids(1)])
        assert read(old) == [0]
        commit(sink, returned)
        assert read(old) == [1]
        assert len(files(old)) == 1

    def test_ignore(self, old):
        sink = CSVDatasink(old, mode="ignore")
        returned = start(sink, [ids(1)])
        assert sink.skips_write
        commit(sink, returned)
        assert read(old) == [0]

    def test_ignore_where_nothing_is(self, tmp_path):
        write(CSVDatasink(tmp_path / "new", mode="ignore"), [ids(1)])
        assert read(tmp_path / "new") == [1]

    @pytest.mark.parametrize("mode", ["error", "create"])
    def test_error(self, old, mode):
        with pytest.raises(ValueError, match="already exists"):
            CSVDatasink(old, mode=mode).on_write_start()

    def test_upsert_is_not_for_files(self, tmp_path):
        with pytest.raises(ValueError, match="upsert"):
            CSVDatasink(tmp_path, mode="upsert")


def test_a_folder_that_may_not_be_created(tmp_path):
    with pytest.raises(FileNotFoundError, match="try_create_dir"):
        CSVDatasink(tmp_path / "new", try_create_dir=False).on_write_start()


def test_no_rows_make_no_files(tmp_path):
    write(CSVDatasink(tmp_path), [ids()], [])
    assert files(tmp_path) == []


def test_a_file_has_no_more_rows_than_allowed(tmp_path):
    write(CSVDatasink(tmp_path, max_rows_per_file=4), [ids(*range(3)), ids(*range(3, 10))])
    assert [len(pacsv.read_csv(tmp_path / name)) for name in files(tmp_path)] == [4, 4, 2]
    assert read(tmp_path) == list(range(10))
    assert CSVDatasink(tmp_path, min_rows_per_file=5).min_rows_per_write == 5
    with pytest.raises(ValueError, match="min_rows_per_file=5 is more"):
        CSVDatasink(tmp_path, min_rows_per_file=5, max_rows_per_file=4)


def test_other_columns_start_a_file(tmp_path):
    write(CSVDatasink(tmp_path), [ids(1), pa.table({"name": ["x"]})])
    assert [pacsv.read_csv(tmp_path / name).column_names for name in files(tmp_path)] == [["id"], ["name"]]


def test_names_of_ones_own(tmp_path):
    class Names(FilenameProvider):
        def get_filename_for_block(self, block, write_uuid, task_index, block_index):
            return f"{block['id'][0]}-{task_index}.csv"

    write(CSVDatasink(tmp_path, filename_provider=Names()), [ids(7)], [ids(8)])
    assert files(tmp_path) == ["7-0.csv", "8-1.csv"]


def test_names_of_files_are_made_of_that_of_their_task(tmp_path):
    class Names(FilenameProvider):
        def get_filename_for_task(self, write_uuid, task_index):
            return f"part-{task_index}.csv"

    write(CSVDatasink(tmp_path, filename_provider=Names(), max_rows_per_file=1), [ids(7, 8)], [ids(9)])
    assert files(tmp_path) == ["part-0.csv", "part-0_000001.csv", "part-1.csv"]
    assert Names().get_filename_for_row({}, "id", 2, 0, 3) == "part-2_000000_000003.csv"


def test_the_same_name_twice_is_an_error_and_loses_nothing(tmp_path):
    class Names(FilenameProvider):
        def get_filename_for_block(self, block, write_uuid, task_index, block_index):
            return "same.csv"

    (tmp_path / "same.csv").write_text('"id"\n0\n')
    sink = CSVDatasink(tmp_path, filename_provider=Names())
    with pytest.raises(ValueError, match=r"same\.csv"):
        write(sink, [ids(7)], [ids(8)])
    sink.on_write_failed(ValueError())
    assert read(tmp_path) == [0]


def test_sinks_of_blocks_and_of_rows(tmp_path):
    class Frames(BlockBasedFileDatasink):
        def write_block_to_file(self, block, file):
            assert block.num_rows() == 3
            pacsv.write_csv(pa.Table.from_pandas(block.to_pandas()), file)

    class Rows(RowBasedFileDatasink):
        def write_row_to_file(self, row, file):
            file.write(str(row["id"]).encode())

    write(Frames(tmp_path / "frames", file_format="csv"), [ids(1), ids(2), ids(3)])
    assert read(tmp_path / "frames") == [1, 2, 3]
    write(Rows(tmp_path / "rows", file_format="txt", dataset_uuid="d"), [ids(1, 2)], [ids(3)])
    assert [(tmp_path / "rows" / name).read_text() for name in files(tmp_path / "rows")] == ["1", "2", "3"]
    assert files(tmp_path / "rows")[0].startswith("d_")


class TestPartitions:
    @pytest.fixture
    def table(self):
        columns = {"id": range(6), "day": ["a/b", "a/b", None, "c d", None, "c d"], "n": [1, 2, 1, 1, 1, 1]}
        return pa.table(columns)

    def test_folders(self, tmp_path, table):
        write(
            ParquetDatasink(tmp_path, partition_cols=["day", "n"]),
            [table, table.slice(0, 1)],
            [table.slice(3)],
        )
        folders = sorted({str(path.parent.relative_to(tmp_path)) for path in tmp_path.rglob("*.parquet")})
        assert folders == [
            "day=__HIVE_DEFAULT_PARTITION__/n=1",
            "day=a%2Fb/n=1",
            "day=a%2Fb/n=2",
            "day=c d/n=1",
        ]
        assert len(files(tmp_path)) == 6  # the second task has rows for two folders

    def test_what_was_written_is_read(self, tmp_path, table):
        from runtime.data.datasource import Partitioning

        write(ParquetDatasink(tmp_path, partition_cols=["day", "n"]), [table])
        source = ParquetDatasource(tmp_path, partitioning=Partitioning("hive", field_types={"n": int}))
        read = sorted(rows(source.with_columns(["id", "day", "n"])), key=lambda row: row["id"])
        assert read == table.to_pylist()

    def test_more_folders_than_files_that_may_be_open(self, tmp_path, monkeypatch):
        monkeypatch.setattr("runtime.data.io.parquet_sink._OPEN_FILES", 2)
        table = pa.table({"k": [0, 1, 2, 3] * 3, "id": range(12)})
        write(ParquetDatasink(tmp_path, partition_cols=["k"]), [table.slice(0, 6), table.slice(6)])
        assert sorted(row["id"] for row in rows(ParquetDatasource(tmp_path))) == list(range(12))

    def test_mistakes(self, tmp_path, table):
        for columns, message in ((["z"], "'z'"), (["id", "day", "n"], "all columns")):
            with pytest.raises(ValueError, match=message):
                write(ParquetDatasink(tmp_path, partition_cols=columns), [table])


class TestParquet:
    def test_row_groups_and_options(self, tmp_path):
        sink = ParquetDatasink(tmp_path, arrow_parquet_args={"compression": "zstd"}, min_rows_per_file=1)
        write(sink, [ids(1, 2), ids(3)])
        (name,) = files(tmp_path)
        metadata = pq.read_metadata(tmp_path / name)
        assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [3]
        assert metadata.row_group(0).column(0).compression == "ZSTD"

    @pytest.mark.parametrize(
        ("arguments", "stored"),
        [({}, "INT64"), ({"store_decimal_as_integer": False}, "FIXED_LEN_BYTE_ARRAY")],
    )
    def test_decimals_are_integers_unless_told_otherwise(self, tmp_path, arguments, stored):
        table = pa.table({"price": pa.array([Decimal("1.50"), None], pa.decimal128(15, 2))})
        write(ParquetDatasink(tmp_path, arrow_parquet_args=arguments), [table])
        (name,) = files(tmp_path)
        assert pq.ParquetFile(tmp_path / name).schema.column(0).physical_type == stored
        assert pq.read_table(tmp_path / name).equals(table)

    def test_arguments_made_in_the_task(self, tmp_path):
        sink = ParquetDatasink(tmp_path, arrow_parquet_args_fn=lambda: {"row_group_size": 1})
        write(sink, [ids(1, 2)])
        assert pq.read_metadata(tmp_path / files(tmp_path)[0]).num_row_groups == 2
        assert rows(ParquetDatasource(tmp_path)) == [{"id": 1}, {"id": 2}]

    def test_large_blocks_are_several_row_groups(self, tmp_path, monkeypatch):
        monkeypatch.setattr("runtime.data.io.parquet_sink._ROW_GROUP_BYTES", 800)
        sink = ParquetDatasink(tmp_path)
        sink.on_write_start()
        commit(sink, [sink.write([ids(*range(50)), ids(*range(50, 300))], TaskContext(0))])
        metadata = pq.read_metadata(tmp_path / files(tmp_path)[0])
        assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [100, 100, 100]
        assert [row["id"] for row in rows(ParquetDatasource(tmp_path), 1)] == list(range(300))

    def test_tensors(self, tmp_path):
        from runtime.data._block import batch

        images = np.arange(24).reshape(4, 2, 3)
        table = batch.from_batch({"image": images, "k": np.array([0, 1, 0, 1])})
        write(ParquetDatasink(tmp_path, partition_cols=["k"]), [table])
        (back,) = [task() for task in ParquetDatasource(tmp_path).get_read_tasks(1)]
        assert np.array_equal(batch.to_batch(next(back))["image"], images[[0, 2, 1, 3]])


class TestOtherFileSystems:
    def test_memory(self):
        filesystem = fsspec.filesystem("memory")
        write(CSVDatasink("memory://out"), [ids(1)], [ids(2)], [ids(3)])
        write(CSVDatasink("memory://out", mode="overwrite"), [ids(4)], [ids(5)])
        assert read("memory://out") == [4, 5]
        assert not [path for path in filesystem.find("/out") if "staging" in path]
        filesystem.store.clear()

    def test_s3(self, s3):
        table = pa.table({"id": range(3), "v": range(3)})
        write(ParquetDatasink("s3://data/out/t", filesystem=s3, partition_cols=["id"]), [table])
        write(CSVDatasink("data/out/u", filesystem=s3), [ids(1)], [ids(2)])
        write(CSVDatasink("data/out/u", filesystem=s3, mode="overwrite"), [ids(3)])
        found = [info.path for info in s3.get_file_info(pafs.FileSelector("data/out", recursive=True))]
        found = [path for path in found if path.endswith((".csv", ".parquet"))]
        assert [path.rpartition("/")[0] for path in sorted(found)] == [
            "data/out/t/id=0",
            "data/out/t/id=1",
            "data/out/t/id=2",
            "data/out/u",
        ]
