"""Lance data sets, where pylance is installed."""

from __future__ import annotations

import pyarrow as pa
import pytest

from runtime.data.expressions import col
from runtime.data.io.lance import LanceDatasink, LanceDatasource
from tests.runtime.data.io.reading import rows
from tests.runtime.data.io.writing import attempt, commit, start, write

lance = pytest.importorskip("lance")
# Lance keeps its event loop's descriptors for the life of the process: before a test is looked at for leaks.
lance.write_dataset(pa.table({"a": [1]}), "memory://first")


def table(start: int, end: int) -> pa.Table:
    names, numbers = [f"n{i}" for i in range(start, end)], [float(i) for i in range(start, end)]
    return pa.table({"id": range(start, end), "name": names, "x": numbers})


@pytest.fixture
def ids(tmp_path):
    lance.write_dataset(table(0, 100), tmp_path / "a", max_rows_per_file=30)
    return str(tmp_path / "a")


class TestReading:
    def test_fragments_are_shared_by_tasks(self, ids):
        source = LanceDatasource(ids)
        tasks = source.get_read_tasks(3)
        assert [task.metadata.num_rows for task in tasks] == [30, 60, 10]
        assert rows(source, 3) == table(0, 100).to_pylist()
        assert source.row_count() == 100
        assert source.estimate_inmemory_data_size() > 0

    def test_columns_and_limits(self, ids):
        source = LanceDatasource(ids, columns=["x", "id"])
        assert rows(source.with_limit(1), 1) == [{"x": 0.0, "id": 0}]
        assert rows(source.with_columns(["name"]).with_limit(1), 1) == [{"name": "n0"}]
        assert source.with_limit(7).row_count() == 7
        with pytest.raises(KeyError, match="'z'"):
            source.with_columns(["z"]).get_read_tasks(1)

    def test_predicates(self, ids, tmp_path):
        source = LanceDatasource(ids)
        narrowed = source.with_predicate((col("id") > 95) | (col("name") == "n3")).with_columns(["x"])
        assert [row["x"] for row in rows(narrowed)] == [3.0, 96.0, 97.0, 98.0, 99.0]
        assert narrowed.row_count() is None
        assert rows(source.with_predicate(col("id") > 1000)) == []
        assert source.with_predicate(col("x") > 95) is None  # NaN is larger than all to Lance
        assert LanceDatasource(ids, filter="id = 1").with_predicate(col("id") > 95) is None

    def test_options_of_lance(self, ids):
        lance.write_dataset(table(100, 110), ids, mode="append")
        assert LanceDatasource(ids).row_count() == 110
        assert LanceDatasource(ids, version=1).row_count() == 100
        source = LanceDatasource(ids, filter="id % 50 = 0", scanner_options={"batch_size": 1})
        assert [row["id"] for row in rows(source)] == [0, 50, 100]
        assert source.row_count() is None
        both = LanceDatasource([ids, ids])
        assert len(rows(both, 3)) == both.row_count() == 220


class TestWriting:
    def test_nothing_is_visible_before_the_commit(self, tmp_path):
        sink = LanceDatasink(tmp_path / "b")
        returned = start(sink, [table(0, 3)], [table(3, 5), table(5, 6)], [table(0, 0)])
        attempt(sink, 0, [table(0, 3)])  # a task that ran twice
        with pytest.raises(ValueError, match="not found"):
            lance.dataset(tmp_path / "b")
        commit(sink, returned)
        assert sorted(row["id"] for row in rows(LanceDatasource(str(tmp_path / "b")))) == list(range(6))

    def test_modes(self, ids):
        with pytest.raises(ValueError, match="already exists"):
            LanceDatasink(ids).on_write_start()
        write(LanceDatasink(ids, mode="append"), [table(100, 101)])
        assert LanceDatasource(ids).row_count() == 101
        write(LanceDatasink(ids, mode="overwrite", max_rows_per_file=2), [pa.table({"other": range(5)})])
        source = LanceDatasource(ids)
        assert rows(source) == [{"other": i} for i in range(5)]
        assert len(source._parts()) == 3
        with pytest.raises(ValueError, match="upsert"):
            LanceDatasink(ids, mode="upsert")

    def test_append_where_nothing_is_and_what_does_not_fit(self, tmp_path):
        write(LanceDatasink(tmp_path / "c", mode="append"), [pa.table({"id": [1], "name": ["a"]})])
        write(LanceDatasink(tmp_path / "c", mode="append"), [pa.table({"id": pa.array([2], pa.int32())})])
        assert rows(LanceDatasource(tmp_path / "c")) == [{"id": 1, "name": "a"}, {"id": 2, "name": None}]
        with pytest.raises(ValueError, match="'new' is not in the schema"):
            write(LanceDatasink(tmp_path / "c", mode="append"), [pa.table({"new": [1]})])
