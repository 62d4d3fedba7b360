"""Functions that make data sets, through the public API."""

from __future__ import annotations

import sqlite3

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import runtime as ray
from runtime.data.datasource import BlockMetadata, Datasource, Partitioning, ReadTask

data = ray.data

pytestmark = pytest.mark.usefixtures("session")


class Recorded:
    """What a reader gives to `Dataset`, without a data set."""

    def __init__(self, monkeypatch):
        from runtime.data.dataset import Dataset

        self.source = self.remote_args = self.blocks = self.concurrency = None
        monkeypatch.setattr(Dataset, "_from_datasource", self.take)

    def take(self, source, remote_args, blocks, concurrency):
        self.source, self.remote_args, self.blocks, self.concurrency = (
            source,
            remote_args,
            blocks,
            concurrency,
        )


def test_items():
    assert data.from_items([1, 2]).take_all() == [{"item": 1}, {"item": 2}]
    assert data.from_items([{"a": 1}, {"a": 2}], override_num_blocks=2).num_blocks() == 2
    assert data.from_items([1, 2, 3]).num_blocks() == 3
    assert data.from_items(list(range(100))).num_blocks() == 16
    assert data.from_items([]).count() == 0
    with pytest.raises(ValueError, match="at least 1"):
        data.from_items([1], override_num_blocks=0)


def test_tables_frames_and_arrays():
    table = pa.table({"a": [1, 2, 3]})
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    assert data.from_arrow([table, stream.getvalue().to_pybytes()]).count() == 6
    assert data.from_arrow(table, override_num_blocks=2).num_blocks() == 2
    assert data.from_blocks([table, pd.DataFrame({"a": [4]})]).count() == 4
    assert data.from_pandas(pd.DataFrame({"a": [1]}, index=[7])).take_all() == [{"a": 1}]
    arrays = data.from_numpy([np.zeros((2, 3)), np.ones((1, 3))])
    assert [row["data"].tolist() for row in arrays.take_all()] == [[0] * 3, [0] * 3, [1] * 3]


def test_references():
    table, frame = pa.table({"a": [1]}), pd.DataFrame({"a": [2]})
    assert data.from_arrow_refs([ray.put(table)]).take_all() == [{"a": 1}]
    assert data.from_pandas_refs(ray.put(frame)).take_all() == [{"a": 2}]
    assert data.from_numpy_refs([ray.put(np.array([3]))]).take_all() == [{"data": 3}]


def test_ranges():
    assert data.range(3).take_all() == [{"id": 0}, {"id": 1}, {"id": 2}]
    assert data.range(10).count() == 10
    assert [row["data"].tolist() for row in data.range_tensor(2, shape=(1, 2)).take_all()] == [
        [[0, 0]],
        [[1, 1]],
    ]


def test_other_libraries():
    class Partition(list):
        @property
        def partitions(self):
            return self

        def compute(self):
            return pd.DataFrame({"a": list(self)})

    class Elements:
        def as_numpy_iterator(self):
            return iter([{"x": np.int64(1)}, {"x": np.int64(2)}])

    assert data.from_torch([5, 6]).take_all() == [{"item": 5}, {"item": 6}]
    assert data.from_dask(Partition([Partition([1]), Partition([2])])).take_all() == [{"a": 1}, {"a": 2}]
    assert data.from_tf(Elements()).take_all() == [{"x": 1}, {"x": 2}]


def test_huggingface():
    class Stored:
        def with_format(self, name):
            assert name == "arrow"
            return self

        def __len__(self):
            return 3

        def __getitem__(self, key):
            return pa.table({"a": [1, 2, 3]})

    class Streamed:
        num_shards = 1

        def with_format(self, name):
            return self

        def iter(self, batch_size):
            yield pa.table({"a": [1]})
            yield pa.table({"a": [2]})

    assert data.from_huggingface(Stored()).take_all() == [{"a": 1}, {"a": 2}, {"a": 3}]
    assert data.from_huggingface(Streamed()).take_all() == [{"a": 1}, {"a": 2}]
    with pytest.raises(TypeError, match=r"dataset\['train'\]"):
        data.from_huggingface({"train": Stored()})
    with pytest.raises(TypeError, match="not int"):
        data.from_huggingface(1)


def test_files(tmp_path):
    (tmp_path / "k=1").mkdir()
    (tmp_path / "k=1" / "a.csv").write_text("a\n1\n")
    (tmp_path / "a.json").write_text('{"a": 1}')
    (tmp_path / "a.txt").write_text("x\n")
    np.save(tmp_path / "a.npy", np.array([1, 2]))
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "k=1" / "a.parquet")
    assert data.read_csv(f"{tmp_path}/*/*.csv").take_all() == [{"a": 1, "k": "1"}]
    assert data.read_json(tmp_path).take_all() == [{"a": 1}]
    assert data.read_text(tmp_path, file_extensions=["txt"]).take_all() == [{"text": "x"}]
    assert data.read_numpy(tmp_path).take_all() == [{"data": 1}, {"data": 2}]
    assert data.read_binary_files(tmp_path / "a.txt").take_all() == [{"bytes": b"x\n"}]
    typed = Partitioning("hive", field_types={"k": int})
    assert data.read_parquet(str(tmp_path), partitioning=typed).take_all() == [
        {"a": 1, "k": 1},
        {"a": 2, "k": 1},
    ]
    assert data.read_parquet(str(tmp_path)).count() == 2


def test_databases(tmp_path):
    def connect(path=str(tmp_path / "a.db")):
        return sqlite3.connect(path)

    connection = connect()
    connection.execute("CREATE TABLE t (a INT)")
    connection.execute("INSERT INTO t VALUES (1)")
    connection.commit()
    connection.close()
    assert data.read_sql("SELECT * FROM t", connect).take_all() == [{"a": 1}]


def test_a_source_of_ones_own():
    class Ones(Datasource):
        def __init__(self, count):
            self.count = count

        def get_read_tasks(self, parallelism, per_task_row_limit=None, data_context=None):
            metadata = BlockMetadata(num_rows=1, size_bytes=8, input_files=None, exec_stats=None)
            return [ReadTask(lambda: [pa.table({"one": [1]})], metadata) for _ in range(self.count)]

    assert data.read_datasource(Ones(3)).take_all() == [{"one": 1}] * 3
    with pytest.raises(TypeError, match="'count'"):
        data.read_datasource(Ones(3), count=4)


def test_options_of_tasks_and_of_files(monkeypatch, tmp_path):
    (tmp_path / "a.csv").write_text("a\n1\n")
    got = Recorded(monkeypatch)
    data.read_csv(
        str(tmp_path),
        num_cpus=2,
        memory=None,
        concurrency=3,
        override_num_blocks=4,
        include_paths=True,
        ray_remote_args={"max_retries": 1},
    )
    assert (got.remote_args, got.blocks, got.concurrency) == ({"num_cpus": 2, "max_retries": 1}, 4, 3)
    data.read_text(str(tmp_path), parallelism=7)
    assert got.blocks == 7
    data.read_text(str(tmp_path))
    assert got.blocks is None
    with pytest.raises(TypeError, match="inclde_paths"):
        data.read_text(str(tmp_path), inclde_paths=True)
    with pytest.raises(TypeError, match="inclde_paths"):
        data.read_csv(str(tmp_path), inclde_paths=True)


def test_what_needs_another_library(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "deltalake", None)
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(ImportError, match="pip install deltalake"):
        data.read_delta("/x")
    with pytest.raises(ImportError, match="pip install fastavro"):
        data.read_avro("/x")
    for name, package, read in (
        ("lance", "pylance", lambda: data.read_lance("/x")),
        ("pyiceberg", "pyiceberg", lambda: data.read_iceberg(table_identifier="x")),
        ("soundfile", "soundfile", lambda: data.read_audio("/x")),
    ):
        for module in [module for module in sys.modules if module.partition(".")[0] == name] + [name]:
            monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(ImportError, match=f"pip install .*{package}"):
            read()


def test_readers_of_ray_that_are_not_here_say_what_is():
    for name in ("read_hudi", "read_bigquery", "read_videos", "from_spark"):
        with pytest.raises(NotImplementedError, match=f"{name} is not here; use "):
            getattr(data, name)("/x", option=1)


def test_every_public_name_is_there():
    assert all(hasattr(data, name) for name in data.__all__)
