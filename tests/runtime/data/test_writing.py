"""Data sets that are written: which files there are, and what is read from them again."""

from __future__ import annotations

import json
import pathlib
import sqlite3

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import runtime as ray
from runtime.data.datasource import Datasink, FilenameProvider

pytestmark = pytest.mark.usefixtures("session")
data = ray.data


def rows_of(folder: pathlib.Path) -> list[int]:
    """The rows of each file, in order of their names."""
    return [pq.read_metadata(path).num_rows for path in sorted(folder.rglob("*.parquet"))]


@pytest.mark.parametrize(
    ("options", "expected"),  # as of Ray, where files are of blocks in the same order
    [
        ({}, [10] * 10),
        ({"min_rows_per_file": 30}, [30, 30, 30, 10]),
        ({"max_rows_per_file": 4}, [4, 4, 2] * 10),
        ({"min_rows_per_file": 30, "max_rows_per_file": 50}, [30, 30, 30, 10]),
        ({"min_rows_per_file": 1000}, [100]),
        ({"min_bytes_per_file": 300}, [40, 40, 20]),
        ({"concurrency": 1}, [10] * 10),
    ],
)
def test_sizes_of_files(tmp_path, options, expected):
    data.range(100, override_num_blocks=10).write_parquet(str(tmp_path), **options)
    assert rows_of(tmp_path) == expected
    assert sorted(row["id"] for row in data.read_parquet(str(tmp_path)).take_all()) == list(range(100))


def test_the_old_name_of_min_rows_per_file(tmp_path):
    rows = data.range(20, override_num_blocks=2)
    with pytest.warns(DeprecationWarning, match="min_rows_per_file"):
        rows.write_parquet(str(tmp_path), num_rows_per_file=20)
    assert rows_of(tmp_path) == [20]
    with pytest.raises(ValueError, match="old name"):
        rows.write_parquet(str(tmp_path), num_rows_per_file=20, min_rows_per_file=3)


def test_names_and_compression_of_ones_own(tmp_path):
    class Names(FilenameProvider):
        def get_filename_for_block(self, block, write_uuid, task_index, block_index):
            return f"of-{task_index}-{block['id'][0]}.jsonl.gz"

    data.range(4, override_num_blocks=2).write_json(
        str(tmp_path), filename_provider=Names(), arrow_open_stream_args={"compression": "gzip"}
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["of-0-0.jsonl.gz", "of-1-2.jsonl.gz"]
    assert [row["id"] for row in data.read_json(str(tmp_path)).take_all()] == [0, 1, 2, 3]


def test_every_format_comes_back(tmp_path):
    rows = data.from_items([{"id": i, "name": f"n{i}"} for i in range(6)], override_num_blocks=2)
    expected = rows.take_all()
    for name in ("csv", "json", "orc", "parquet", "tfrecords"):
        folder = str(tmp_path / name)
        getattr(rows, f"write_{name}")(folder)
        back = [
            {key: value.decode() if isinstance(value, bytes) else value for key, value in row.items()}
            for row in getattr(data, f"read_{name}")(folder).take_all()
        ]
        assert sorted(back, key=lambda row: row["id"]) == expected, name
    rows.write_numpy(str(tmp_path / "numpy"), column="id")
    assert sorted(row["data"] for row in data.read_numpy(str(tmp_path / "numpy")).take_all()) == list(
        range(6)
    )
    images = data.from_items([{"image": np.full((2, 3, 3), i, np.uint8)} for i in range(3)])
    images.write_images(str(tmp_path / "images"), column="image")
    shown = data.read_images(str(tmp_path / "images")).take_all()
    assert sorted(int(row["image"][0, 0, 0]) for row in shown) == [0, 1, 2]
    samples = data.from_items([{"__key__": str(i), "txt": f"t{i}"} for i in range(3)])
    samples.write_webdataset(str(tmp_path / "web"))
    assert sorted(row["txt"] for row in data.read_webdataset(str(tmp_path / "web")).take_all()) == [
        "t0",
        "t1",
        "t2",
    ]


def test_databases(tmp_path):
    def connect(path=str(tmp_path / "a.db")):
        return sqlite3.connect(path, timeout=60)

    with connect() as connection:
        connection.execute("CREATE TABLE t (id INT, name TEXT)")
    connection.close()
    rows = data.from_items([{"id": i, "name": f"n{i}"} for i in range(6)], override_num_blocks=2)
    rows.write_sql("INSERT INTO t VALUES (?, ?)", connect)
    assert data.read_sql("SELECT * FROM t ORDER BY id", connect).take_all() == rows.take_all()


def test_paths_of_this_machine_only(tmp_path):
    data.range(3).write_csv(f"local://{tmp_path}/out")
    read = data.read_csv(f"local://{tmp_path}/out", override_num_blocks=3)
    assert sorted(row["id"] for row in read.map(lambda row: row).take_all()) == [0, 1, 2]
    assert not read._node.source.supports_distributed_reads


def test_a_file_is_cut_into_the_blocks_that_are_wanted(tmp_path):
    pq.write_table(pa.table({"id": range(100)}), tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text("id\n" + "".join(f"{i}\n" for i in range(100)))
    for read, name in ((data.read_parquet, "a.parquet"), (data.read_csv, "a.csv")):
        kept = read(str(tmp_path / name), override_num_blocks=7).materialize()
        assert kept.num_blocks() == 7
        assert [row["id"] for row in kept.take_all()] == list(range(100))
    cut = data.range(10, override_num_blocks=1).repartition(target_num_rows_per_block=4)
    assert [len(batch["id"]) for batch in cut.map(lambda row: row).iter_batches(batch_size=None)] == [4, 4, 2]


class Lines(Datasink):
    """A sink as the documentation of Ray has them: rows as lines of JSON, in a single file."""

    supports_distributed_writes = False
    min_rows_per_write = 4

    def __init__(self, path: pathlib.Path, fails: bool = False) -> None:
        self.path = path
        self.fails = fails
        self.seen: list[str] = []

    def on_write_start(self, schema: pa.Schema | None = None) -> None:
        self.seen.append("start")

    def write(self, blocks, ctx):
        if self.fails:
            raise ValueError("no more lines")
        return [json.dumps(row) for block in blocks for row in block.to_pylist()]

    def on_write_complete(self, write_result):
        self.seen.append(
            f"complete: {write_result.num_rows} rows of {len(write_result.write_returns)} writes"
        )
        self.path.write_text("\n".join(line for lines in write_result.write_returns for line in lines))

    def on_write_failed(self, error):
        self.seen.append(f"failed: {type(error).__name__}")
        raise OSError("nor can it be cleared")


def test_a_sink_of_ones_own(tmp_path):
    sink = Lines(tmp_path / "a.jsonl")
    data.range(10, override_num_blocks=5).write_datasink(sink)
    assert sink.seen == ["start", "complete: 10 rows of 3 writes"]
    assert [json.loads(line)["id"] for line in sink.path.read_text().splitlines()] == list(range(10))
    failing = Lines(tmp_path / "b.jsonl", fails=True)
    with pytest.raises(ValueError, match="no more lines") as error:
        data.range(10).write_datasink(failing)
    assert len(failing.seen) == 2
    assert "could not be cleared away: OSError" in "".join(error.value.__notes__)
