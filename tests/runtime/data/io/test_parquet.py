"""What of Parquet files is read, and what is not."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from runtime.data._block import batch
from runtime.data.context import DataContext
from runtime.data.datasource import Partitioning
from runtime.data.datatype import DataType
from runtime.data.expressions import col, lit, udf
from runtime.data.io.errors import FileReadError
from runtime.data.io.parquet import ParquetDatasource
from tests.runtime.data.io.reading import blocks, rows


@pytest.fixture
def ids(tmp_path):
    """Two files with 10 row groups of 100 rows each."""
    for part in range(2):
        table = pa.table({"id": np.arange(1_000) + 1_000 * part, "name": [f"n{i}" for i in range(1_000)]})
        pq.write_table(table, tmp_path / f"{part}.parquet", row_group_size=100)
    return tmp_path


@pytest.fixture
def by_year(tmp_path):
    for year, values in {2024: [1, 2], 2025: [3]}.items():
        (tmp_path / f"year={year}").mkdir()
        pq.write_table(pa.table({"v": values}), tmp_path / f"year={year}" / "0.parquet")
    return ParquetDatasource(tmp_path, partitioning=Partitioning("hive"), include_paths=True)


def test_counts_come_from_the_footers(ids, monkeypatch):
    source = ParquetDatasource(ids)
    monkeypatch.setattr(ParquetDatasource, "_scan", None)
    assert source.row_count() == 2_000
    assert source.with_limit(5).row_count() == 5
    assert source.with_predicate(col("id") > 5).row_count() is None


def test_row_groups_are_split_among_tasks(ids):
    tasks = ParquetDatasource(ids).get_read_tasks(8)
    assert len(tasks) == 8
    assert {task.metadata.num_rows for task in tasks} == {200, 300}
    read = [row["id"] for task in tasks for table in task() for row in table.to_pylist()]
    assert read == list(range(2_000))


def test_a_task_per_row_group_at_most(ids):
    assert len(ParquetDatasource(ids).get_read_tasks(1_000)) == 20


def test_columns_in_the_order_in_which_they_are_asked_for(ids):
    (table, *_) = blocks(ParquetDatasource(ids, columns=["name", "id"]), 1)
    assert table.column_names == ["name", "id"]
    assert blocks(ParquetDatasource(ids).with_columns(["id"]), 1)[0].column_names == ["id"]
    assert sum(table.num_rows for table in blocks(ParquetDatasource(ids).with_columns([]), 1)) == 2_000


def test_fewer_columns_are_fewer_bytes(ids):
    source = ParquetDatasource(ids)
    assert source.with_columns(["id"]).estimate_inmemory_data_size() == 16_000
    assert source.estimate_inmemory_data_size() > 16_000


def test_a_predicate_skips_row_groups_and_filters_rows(ids):
    source = ParquetDatasource(ids).with_predicate(col("id") >= 1_950)
    (task,) = source.get_read_tasks(8)
    assert task.metadata.num_rows is None
    assert task.metadata.input_files == (str(ids / "1.parquet"),)
    assert [row["id"] for row in rows(source)] == list(range(1_950, 2_000))
    both = source.with_predicate(col("id") < 1_952).with_columns(["name"])
    assert rows(both) == [{"name": "n950"}, {"name": "n951"}]
    assert rows(source.with_predicate(col("id") < 0)) == []


def test_a_predicate_that_arrow_cannot_evaluate_is_refused(ids):
    @udf(DataType.bool())
    def is_even(ids: pa.Array) -> pa.Array:
        return pc.equal(pc.bit_wise_and(ids, 1), 0)

    assert ParquetDatasource(ids).with_predicate(is_even(col("id")) == lit(True)) is None


def test_a_limit_reads_no_more_row_groups_than_it_needs(ids):
    tasks = ParquetDatasource(ids).with_limit(150).get_read_tasks(8)
    assert sum(task.metadata.num_rows for task in tasks) == 200
    assert len(rows(ParquetDatasource(ids).with_limit(150), 1)) == 150


def test_values_of_folders(by_year, tmp_path):
    assert rows(by_year, 2)[2] == {"v": 3, "year": "2025", "path": str(tmp_path / "year=2025/0.parquet")}
    assert rows(by_year.with_columns(["year", "v"]))[0] == {"year": "2024", "v": 1}
    assert rows(by_year.with_columns(["path"]))[0] == {"path": str(tmp_path / "year=2024/0.parquet")}
    assert by_year.get_read_tasks(1)[0].schema.names == ["v", "year", "path"]


def test_a_predicate_on_folders_leaves_out_files(by_year):
    one = by_year.with_predicate(col("year") == "2025")
    assert [task.metadata.input_files for task in one.get_read_tasks(4)] == [(by_year.input_files[1],)]
    both = by_year.with_predicate((col("year") == "2024") & (col("v") > 1))
    assert [row["v"] for row in rows(both)] == [2]


def test_files_with_other_columns(tmp_path):
    pq.write_table(pa.table({"a": pa.array([1], pa.int32())}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"a": pa.array([2**40]), "b": ["x"]}), tmp_path / "1.parquet")
    source = ParquetDatasource(tmp_path)
    assert rows(source, 2) == [{"a": 1, "b": None}, {"a": 2**40, "b": "x"}]
    assert {table.schema for table in blocks(source, 2)} == {source.get_read_tasks(1)[0].schema}
    pq.write_table(pa.table({"a": ["text"]}), tmp_path / "2.parquet")
    with pytest.raises(FileReadError, match=r"2\.parquet: its columns do not fit those of .*0\.parquet"):
        ParquetDatasource(tmp_path).get_read_tasks(1)


def test_tensors_survive(tmp_path):
    images = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    pq.write_table(batch.from_batch({"image": images}), tmp_path / "a.parquet")
    (table,) = blocks(ParquetDatasource(tmp_path))
    assert np.array_equal(batch.to_batch(table)["image"], images)


def test_footers_of_many_files_are_not_all_read_at_once(ids, monkeypatch):
    monkeypatch.setattr("runtime.data.io.parquet._FOOTERS_BEFORE_READING", 1)
    source = ParquetDatasource(ids)
    assert [task.metadata.num_rows for task in source.get_read_tasks(2)][-1] is None
    assert list(source._footers) == [str(ids / "0.parquet")]
    assert [row["id"] for row in rows(source, 2)] == list(range(2_000))
    assert source.row_count() == 2_000


def test_large_rows_come_in_small_blocks(tmp_path):
    pq.write_table(pa.table({"a": ["x" * 100_000] * 100}), tmp_path / "a.parquet", use_dictionary=False)

    context = DataContext(target_max_block_size=1_000_000)
    found = [table.num_rows for table in blocks(ParquetDatasource(tmp_path), 1, data_context=context)]
    assert sum(found) == 100
    assert max(found) <= 10


def test_mistakes_are_named(ids):
    with pytest.raises(FileReadError, match=r"0\.parquet: it has no column 'z', but \['id', 'name'\]"):
        rows(ParquetDatasource(ids, columns=["z"]))
    with pytest.raises(ValueError, match="pushed down"):
        ParquetDatasource(ids, arrow_parquet_args={"filter": col("id") > 1})
    with pytest.raises(TypeError, match="'colums'"):
        ParquetDatasource(ids, arrow_parquet_args={"colums": ["id"]})
    (ids / "2.parquet").write_bytes(b"nothing of the kind")
    with pytest.raises(FileReadError, match=r"2\.parquet: ArrowInvalid"):
        ParquetDatasource(ids).get_read_tasks(1)
