"""Errors that pass are repeated: those of networks, and those that the user names."""

from __future__ import annotations

import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runtime.data.context import DataContext
from runtime.data.io import retries, text
from runtime.data.io.csv import CSVDatasink, CSVDatasource
from runtime.data.io.errors import FileReadError, FileWriteError
from runtime.data.io.json import JSONDatasource
from runtime.data.io.json_sink import JSONDatasink
from runtime.data.io.parquet import ParquetDatasource
from runtime.data.io.parquet_sink import ParquetDatasink
from runtime.data.io.retries import Retries
from runtime.data.io.sinks import BlockBasedFileDatasink, RowBasedFileDatasink
from runtime.data.io.text import TextDatasource
from tests.runtime.data.io.flaky import FlakyFileSystem
from tests.runtime.data.io.writing import files, write


@pytest.fixture
def pauses(monkeypatch):
    pauses: list[float] = []
    monkeypatch.setattr(retries.time, "sleep", pauses.append)
    return pauses


@pytest.fixture
def named(monkeypatch, pauses):
    """The error of `FlakyFileSystem` is among those to repeat."""
    context = DataContext(retried_io_errors=["cable is loose"])
    monkeypatch.setattr("runtime.data.context._current", context)
    return context


class TestCalls:
    def test_passing_errors_are_repeated_after_growing_pauses(self, pauses):
        errors = [ConnectionResetError(), OSError("AWS Error SLOW_DOWN during GetObject")]

        def call():
            if errors:
                raise errors.pop(0)
            return "done"

        assert Retries().call(call) == "done"
        assert len(pauses) == 2
        assert 0.1 <= pauses[0] <= 0.3
        assert 0.2 <= pauses[1] <= 0.6

    @pytest.mark.parametrize(
        ("error", "attempts"),
        [
            (OSError("AWS Error ACCESS_DENIED"), 1),
            (PermissionError("timed out"), 1),
            (TimeoutError("timed out"), 5),
            (ValueError("loose cable"), 1),
            (ValueError("it is unplugged"), 10),
        ],
    )
    def test_the_last_error_is_raised(self, pauses, error, attempts):
        def call():
            raise error

        with pytest.raises(type(error)):
            Retries(("unplugged",)).call(call)
        assert len(pauses) == attempts - 1

    def test_iterators_go_on_where_they_were(self, pauses):
        begun = []

        def begin():
            begun.append(1)
            for number in range(10):
                if number == 3 * len(begun):
                    raise OSError("timed out")
                yield number

        assert list(Retries().iterate(begin)) == list(range(10))
        assert len(begun) == 4

    def test_errors_about_content_are_not_repeated_unless_named(self, pauses):
        def begin():
            yield 1
            raise ValueError("column 503 timed out")

        for named, attempts in (((), 1), (("column",), 10)):
            with pytest.raises(ValueError, match="503"):
                list(Retries(named).iterate(begin))
            assert len(pauses) == attempts - 1


class TestReading:
    @pytest.fixture
    def folder(self, tmp_path):
        for index in range(4):
            name = tmp_path / str(index)
            lines = range(1000 * index, 1000 * (index + 1))
            name.with_suffix(".csv").write_text("id\n" + "".join(f"{line}\n" for line in lines))
            name.with_suffix(".jsonl").write_text("".join(json.dumps({"id": line}) + "\n" for line in lines))
            name.with_suffix(".txt").write_text("".join(f"{line}\n" for line in lines))
            pq.write_table(pa.table({"id": lines}), name.with_suffix(".parquet"), row_group_size=100)
        return tmp_path

    @pytest.mark.parametrize(
        ("kind", "ending"),
        [
            (CSVDatasource, "csv"),
            (JSONDatasource, "jsonl"),
            (TextDatasource, "txt"),
            (ParquetDatasource, "parquet"),
        ],
    )
    @pytest.mark.parametrize("every", [4, 6])
    def test_every_row_comes_once(self, folder, named, monkeypatch, kind, ending, every):
        monkeypatch.setattr(text, "_CHUNK_BYTES", 700)
        filesystem = FlakyFileSystem(every if ending != "parquet" else 5 * every)
        source = kind([f"{folder}/{index}.{ending}" for index in range(4)], filesystem=filesystem)
        found = [
            row
            for task in source.get_read_tasks(2, data_context=named)
            for t in task()
            for row in t.to_pylist()
        ]
        assert [int(next(iter(row.values()))) for row in found] == list(range(4000))
        assert filesystem.failures

    def test_other_errors_end_it(self, folder, pauses):
        source = CSVDatasource(folder / "0.csv", filesystem=FlakyFileSystem(1))
        with pytest.raises(FileReadError, match=r"0\.csv: OSError: the cable is loose"):
            [list(task()) for task in source.get_read_tasks(1)]
        assert not pauses


def ids(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


class Blocks(BlockBasedFileDatasink):
    def write_block_to_file(self, block, file):
        for row in block.iter_rows():
            file.write(b"%d\n" % row["id"])


class Rows(RowBasedFileDatasink):
    def write_row_to_file(self, row, file):
        file.write(b"%d\n" % row["id"])


class TestWriting:
    @pytest.mark.parametrize("kind", [CSVDatasink, JSONDatasink, ParquetDatasink, Blocks, Rows])
    @pytest.mark.parametrize("every", [5, 6])
    def test_every_row_is_there_once(self, tmp_path, named, kind, every):
        filesystem = FlakyFileSystem(every if kind is not ParquetDatasink else 5 * every)
        sink = kind(str(tmp_path / "out"), filesystem=filesystem)
        write(sink, [ids(1, 2), ids(3)], [ids(4), ids(5, 6)], [ids(7, 8)])
        names = [tmp_path / "out" / name for name in files(tmp_path / "out")]
        assert len(names) == (8 if kind is Rows else 3)
        if kind is ParquetDatasink:
            found = [value for name in names for value in pq.read_table(name)["id"].to_pylist()]
        else:
            lines = "".join(name.read_text() for name in names)
            found = [int(number) for number in re.findall(r"\d+", lines)]
        assert sorted(found) == list(range(1, 9))

    def test_other_errors_end_it_and_name_the_file(self, tmp_path, pauses):
        sink = CSVDatasink(str(tmp_path / "out"), filesystem=FlakyFileSystem(1))
        with pytest.raises(
            FileWriteError, match=r"Cannot write .*/out/.*\.csv: OSError: the cable is loose"
        ) as error:
            write(sink, [ids(1)], [ids(2)])
        sink.on_write_failed(error.value)
        assert files(tmp_path) == []
