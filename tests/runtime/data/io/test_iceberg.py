"""Iceberg tables, where pyiceberg is installed, with its catalog on SQLite."""

from __future__ import annotations

import pyarrow as pa
import pytest

from runtime.data._expression import FunctionExpr
from runtime.data.expressions import col, lit
from runtime.data.io.iceberg import IcebergDatasink, IcebergDatasource, converted
from tests.runtime.data.io.reading import rows
from tests.runtime.data.io.writing import attempt, commit, start, write

catalogs = pytest.importorskip("pyiceberg.catalog")
pytest.importorskip("sqlalchemy")


@pytest.fixture(scope="module", autouse=True)
def threads():
    """pyiceberg keeps its threads for the life of the process."""
    from pyiceberg.utils.concurrent import ExecutorFactory

    yield
    ExecutorFactory.get_or_create().shutdown()
    ExecutorFactory._instance = None


def table(start: int, end: int) -> pa.Table:
    return pa.table({"id": range(start, end), "name": [f"n{i}" for i in range(start, end)]})


@pytest.fixture
def catalog(tmp_path):
    """Arguments for the catalog, which has the table "db.t" with two files."""
    places = {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"}
    arguments = {"name": "default", "type": "sql", **places}
    made = catalogs.load_catalog(**arguments)
    made.create_namespace("db")
    created = made.create_table("db.t", schema=table(0, 1).schema)
    created.append(table(0, 60))
    created.append(table(60, 100))
    yield arguments
    made.engine.dispose()


def source(catalog, **options) -> IcebergDatasource:
    return IcebergDatasource("db.t", catalog_kwargs=catalog, **options)


def ids(catalog, **options) -> list[int]:
    return sorted(row["id"] for row in rows(source(catalog, **options)))


def sink(catalog, **options) -> IcebergDatasink:
    return IcebergDatasink("db.t", catalog_kwargs=catalog, **options)


class TestReading:
    def test_files_are_shared_by_tasks(self, catalog):
        read = source(catalog)
        assert sorted(task.metadata.num_rows for task in read.get_read_tasks(2)) == [40, 60]
        assert sorted(rows(read, 2), key=lambda row: row["id"]) == table(0, 100).to_pylist()
        assert read.row_count() == 100

    def test_columns_limits_and_old_snapshots(self, catalog):
        read = source(catalog, selected_fields=("name",))
        assert set(rows(read.with_limit(1), 1)[0]) == {"name"}
        assert list(rows(source(catalog).with_columns(["name", "id"]).with_limit(1), 1)[0]) == ["name", "id"]
        first = catalogs.load_catalog(**catalog).load_table("db.t").snapshots()[0].snapshot_id
        assert ids(catalog, snapshot_id=first) == list(range(60))

    def test_predicates(self, catalog):
        read = source(catalog).with_predicate((col("id") >= 97) | (col("name") == "n3"))
        assert sorted(row["name"] for row in rows(read.with_columns(["name"]))) == ["n3", "n97", "n98", "n99"]
        assert read.row_count() is None
        pruned = source(catalog).with_predicate(col("id") > 80)
        assert len(pruned.get_read_tasks(9)) == 1  # the other file is ruled out by its statistics
        assert ids(catalog, row_filter="id < 3") == [0, 1, 2]
        assert source(catalog).with_predicate(~(col("id") > 80)) is None
        assert source(catalog).with_predicate(col("id") > "x") is None


def test_expressions():
    expressions = pytest.importorskip("pyiceberg.expressions")
    assert converted(lit(3) < col("id"), expressions) == expressions.GreaterThan("id", 3)
    assert converted(col("id").is_in([1, 2]) & col("name").is_null(), expressions) == expressions.And(
        expressions.In("id", [1, 2]), expressions.IsNull("name")
    )
    for other in (
        col("id") + 1 > 3,
        col("id") == float("nan"),
        col("id").is_in([None, 1]),
        ~col("id").is_null(),
    ):
        assert isinstance(other, FunctionExpr)
        assert converted(other, expressions) is None


class TestWriting:
    def test_nothing_is_visible_before_the_commit(self, catalog):
        writer = sink(catalog, snapshot_properties={"who": "me"})
        returned = start(writer, [table(100, 103)], [table(103, 104), table(104, 105)], [])
        attempt(writer, 0, [table(100, 103)])  # a task that ran twice
        assert ids(catalog) == list(range(100))
        commit(writer, returned)
        assert ids(catalog) == list(range(105))
        snapshot = catalogs.load_catalog(**catalog).load_table("db.t").current_snapshot()
        assert snapshot.summary.additional_properties["who"] == "me"

    def test_overwrite(self, catalog):
        write(sink(catalog, mode="overwrite", overwrite_filter=col("id") >= 2), [table(200, 202)])
        assert ids(catalog) == [0, 1, 200, 201]
        write(sink(catalog, mode="overwrite"), [table(7, 8)])
        assert ids(catalog) == [7]

    def test_upsert(self, catalog):
        new = pa.table({"id": [5, 500], "name": ["new", "newer"]})
        write(sink(catalog, mode="upsert", upsert_kwargs={"join_cols": ["id"]}), [new])
        found = {row["id"]: row["name"] for row in rows(source(catalog))}
        assert (found[5], found[500], len(found)) == ("new", "newer", 101)
        with pytest.raises(ValueError, match="join_cols"):
            sink(catalog, mode="upsert").on_write_start()
        with pytest.raises(ValueError, match="same key"):
            write(sink(catalog, mode="upsert", upsert_kwargs={"join_cols": ["id"]}), [new], [new])

    def test_columns_that_are_new_or_do_not_fit(self, catalog):
        wider = pa.table({"id": [1000], "name": ["x"], "more": [1.5]})
        write(sink(catalog, schema=wider.schema), [wider])
        assert {row["id"]: row["more"] for row in rows(source(catalog))}[1000] == 1.5
        with pytest.raises(ValueError, match="id"):
            write(sink(catalog), [pa.table({"id": ["x"], "name": ["y"]})])
        with pytest.raises(ValueError, match="create"):
            sink(catalog, mode="create")
        with pytest.raises(ValueError, match="cannot remove rows by"):
            sink(catalog, mode="overwrite", overwrite_filter=col("id") + 1 > 3)
