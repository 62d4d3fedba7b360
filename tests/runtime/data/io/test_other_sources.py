"""Databases, numbers, Torch data sets, Avro and ORC."""

from __future__ import annotations

import functools
import hashlib
import sqlite3

import numpy as np
import pyarrow as pa
import pyarrow.orc
import pytest

from runtime.data._block import batch
from runtime.data.io.avro import AvroDatasource
from runtime.data.io.memory import RangeDatasource, TorchDatasource
from runtime.data.io.orc import ORCDatasink, ORCDatasource
from runtime.data.io.sql import SQLDatasink, SQLDatasource
from tests.runtime.data.io.reading import blocks, rows
from tests.runtime.data.io.writing import write


def connect(path):
    connection = sqlite3.connect(path)
    connection.create_function("HASH", 1, lambda key: int(hashlib.md5(str(key).encode()).hexdigest()[:8], 16))
    return connection


class TestSQL:
    @pytest.fixture
    def database(self, tmp_path):
        factory = functools.partial(connect, str(tmp_path / "a.db"))
        connection = factory()
        connection.execute("CREATE TABLE t (id INT, name TEXT)")
        connection.executemany(
            "INSERT INTO t VALUES (?, ?)", [(i, None if i == 3 else f"n{i}") for i in range(25)]
        )
        connection.commit()
        connection.close()
        return factory

    def test_read(self, database):
        read = rows(SQLDatasource("SELECT * FROM t WHERE id < ?;", database, sql_params=(5,)), 4)
        assert read == [{"id": i, "name": None if i == 3 else f"n{i}"} for i in range(5)]

    def test_no_rows_still_have_columns(self, database):
        (table,) = blocks(SQLDatasource("SELECT id FROM t WHERE id < 0", database))
        assert table.column_names == ["id"]

    def test_shards(self, database):
        source = SQLDatasource("SELECT id FROM t", database, shard_keys=["id"], shard_hash_fn="HASH")
        tasks = [list(task()) for task in source.get_read_tasks(3)]
        read = [[row["id"] for block in task for row in block.to_pylist()] for task in tasks]
        assert sorted(i for part in read for i in part) == list(range(25))
        assert all(read)

    def test_write(self, database):
        write(SQLDatasink("INSERT INTO t VALUES (?, ?)", database), [pa.table({"id": [100], "name": ["x"]})])
        assert rows(SQLDatasource("SELECT * FROM t WHERE id = 100", database)) == [{"id": 100, "name": "x"}]

    def test_a_failed_task_writes_no_rows(self, database):
        bad = [pa.table({"id": [200]}), pa.table({"id": [201], "name": ["x"], "more": [1]})]
        with pytest.raises(sqlite3.ProgrammingError):
            write(SQLDatasink("INSERT INTO t (id) VALUES (?)", database), bad)
        assert rows(SQLDatasource("SELECT id FROM t WHERE id >= 200", database)) == []


class TestRange:
    def test_rows_and_blocks(self):
        source = RangeDatasource(10)
        assert [task.metadata.num_rows for task in source.get_read_tasks(3)] == [3, 3, 4]
        assert [row["id"] for row in rows(source, 3)] == list(range(10))
        assert source.row_count() == 10
        assert source.with_limit(4).row_count() == 4

    def test_blocks_are_not_too_large(self):
        class Context:
            target_max_block_size = 800

        assert [table.num_rows for table in blocks(RangeDatasource(250), 1, data_context=Context())] == [
            100,
            100,
            50,
        ]

    def test_tensors(self):
        (table,) = blocks(RangeDatasource(3, (2, 2), "data"), 1)
        assert np.array_equal(batch.to_batch(table)["data"], np.arange(3).repeat(4).reshape(3, 2, 2))

    def test_none(self):
        assert [table.num_rows for table in blocks(RangeDatasource(0), 4)] == [0]
        with pytest.raises(ValueError, match="negative"):
            RangeDatasource(-1)


def test_torch_data_sets_of_both_kinds():
    assert rows(TorchDatasource([1, 2, 3]), 2) == [{"item": 1}, {"item": 2}, {"item": 3}]
    assert len(TorchDatasource([1, 2, 3]).get_read_tasks(2)) == 2

    class Stream:
        def __iter__(self):
            return iter(range(3))

    assert rows(TorchDatasource(Stream()), 2) == [{"item": 0}, {"item": 1}, {"item": 2}]


def test_avro(tmp_path):
    fastavro = pytest.importorskip("fastavro")
    schema = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "string"}],
    }
    made = [{"a": i, "b": str(i)} for i in range(5)]
    with open(tmp_path / "a.avro", "wb") as file:
        fastavro.writer(file, schema, made)
    assert rows(AvroDatasource(tmp_path)) == made


def test_orc(tmp_path):
    table = pa.table({"a": range(5), "b": list("vwxyz")})
    write(ORCDatasink(tmp_path), [table.slice(0, 3), table.slice(3)])
    assert rows(ORCDatasource(tmp_path)) == table.to_pylist()
    assert rows(ORCDatasource(tmp_path, include_paths=True).with_columns(["b"]))[4] == {"b": "z"}
