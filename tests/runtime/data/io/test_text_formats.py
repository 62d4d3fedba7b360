"""Text, CSV and JSON."""

from __future__ import annotations

import gzip
import json
import sysconfig

import pyarrow.csv as pacsv
import pytest

from runtime.data.datasource import Partitioning, PathPartitionFilter
from runtime.data.io import text as text_module
from runtime.data.io.csv import CSVDatasource
from runtime.data.io.errors import FileReadError
from runtime.data.io.files import FileShuffleConfig
from runtime.data.io.json import JSONDatasource
from runtime.data.io.text import TextDatasource
from tests.runtime.data.io.reading import blocks, rows


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


class TestText:
    def test_lines(self, tmp_path):
        path = put(tmp_path / "a.txt", "a\r\nb\n\n  \nc\x0cd")
        assert [row["text"] for row in rows(TextDatasource(path))] == ["a", "b", "c", "d"]
        every = rows(TextDatasource(path, drop_empty_lines=False, include_paths=True))
        assert [row["text"] for row in every] == ["a", "b", "", "  ", "c", "d"]
        assert {row["path"] for row in every} == {path}

    @pytest.mark.parametrize("chunk", [1, 2, 3, 7, 1000])
    def test_chunks_cut_no_line_and_no_character(self, tmp_path, monkeypatch, chunk):
        monkeypatch.setattr(text_module, "_CHUNK_BYTES", chunk)
        content = "aé\r\nb\n\r\nü" + "x" * 20 + "\r"
        read = TextDatasource(put(tmp_path / "a.txt", content), drop_empty_lines=False)
        assert [row["text"] for task in read.get_read_tasks(1) for b in task() for row in b.to_pylist()] == (
            content.splitlines()
        )

    def test_encodings(self, tmp_path):
        path = put(tmp_path / "a.txt", "ok\nä".encode("latin-1"))
        assert rows(TextDatasource(path, encoding="latin-1"))[1] == {"text": "ä"}
        with pytest.raises(FileReadError, match=r"a\.txt, row 0: it is not utf-8.*latin-1"):
            rows(TextDatasource(path))
        with pytest.raises(LookupError):
            TextDatasource(path, encoding="none-such")

    def test_compressed_by_ending_or_by_argument(self, tmp_path):
        packed = gzip.compress(b"a\nb")
        assert len(rows(TextDatasource(put(tmp_path / "a.txt.gz", packed)))) == 2
        other = put(tmp_path / "a.bin", packed)
        assert len(rows(TextDatasource(other, open_stream_args={"compression": "gzip"}))) == 2

    def test_the_standard_library(self):
        folder = sysconfig.get_path("stdlib") + "/email"
        source = TextDatasource(folder, file_extensions=["py"], include_paths=True)
        read = rows(source, 3)
        lines = []
        for path in source.input_files:
            with open(path, encoding="utf-8", newline="") as file:
                lines += [{"text": line, "path": path} for line in file.read().splitlines() if line.strip()]
        assert read == lines

    def test_many_small_files_are_few_tasks_and_blocks(self, tmp_path):
        for index in range(300):
            put(tmp_path / f"{index:03}.txt", f"{index}\n")
        source = TextDatasource(tmp_path)
        assert len(source.get_read_tasks(-1)) == 1
        assert len(source.get_read_tasks(4)) == 4
        assert [block.num_rows for block in blocks(source, 4)] == [75] * 4
        assert rows(source) == [{"text": str(index)} for index in range(300)]

    def test_a_random_order_of_files_is_the_same_for_the_same_seed(self, tmp_path):
        for index in range(20):
            put(tmp_path / f"{index:02}.txt", f"{index}\n")
        in_order = rows(TextDatasource(tmp_path))
        one, two = (rows(TextDatasource(tmp_path, shuffle=FileShuffleConfig(seed=3)), 2) for _ in range(2))
        assert one == two != in_order
        assert sorted(one, key=lambda row: int(row["text"])) == in_order
        with pytest.raises(ValueError, match="shuffle"):
            TextDatasource(tmp_path, shuffle="rows")


class TestCSV:
    def test_columns_of_folders_and_the_path(self, tmp_path):
        path = put(tmp_path / "year=2024" / "a.csv", "a,b\n1,x\n2,\n")
        source = CSVDatasource(tmp_path, partitioning=Partitioning("hive"), include_paths=True)
        assert rows(source)[0] == {"a": 1, "b": "x", "year": "2024", "path": path}
        assert rows(source.with_columns(["path", "b"])) == [{"path": path, "b": "x"}, {"path": path, "b": ""}]
        assert rows(source.with_columns(["year"])) == [{"year": "2024"}] * 2

    def test_partition_filter(self, tmp_path):
        for year in (2023, 2024):
            put(tmp_path / f"year={year}" / "a.csv", f"a\n{year}\n")
        keep = PathPartitionFilter.of(lambda values: values["year"] == "2024")
        assert rows(CSVDatasource(tmp_path, partition_filter=keep)) == [{"a": 2024}]

    def test_the_wrong_row_is_named(self, tmp_path):
        path = put(tmp_path / "a.csv", "a,b\n1,x\n2\n")
        with pytest.raises(FileReadError, match=r"a\.csv.*Row #3: Expected 2 columns, got 1") as caught:
            rows(CSVDatasource(path))
        assert caught.value.path == path

    def test_an_empty_file_and_a_missing_column(self, tmp_path):
        with pytest.raises(FileReadError, match="empty"):
            rows(CSVDatasource(put(tmp_path / "e.csv", "")))
        with pytest.raises(FileReadError, match="'z'"):
            rows(CSVDatasource(put(tmp_path / "a.csv", "a\n1\n")).with_columns(["z"]))

    def test_options_of_pyarrow(self, tmp_path):
        path = put(tmp_path / "a.tsv", "1\tx\n")
        options = {
            "parse_options": pacsv.ParseOptions(delimiter="\t"),
            "read_options": pacsv.ReadOptions(column_names=["n", "s"]),
        }
        assert rows(CSVDatasource(path, arrow_csv_args=options)) == [{"n": 1, "s": "x"}]
        with pytest.raises(TypeError, match="delimiter"):
            CSVDatasource(path, arrow_csv_args={"delimiter": "\t"})

    def test_a_file_too_large_to_be_parsed_at_once(self, tmp_path, monkeypatch):
        monkeypatch.setattr("runtime.data.io.csv._WHOLE_FILE_BYTES", 1000)
        path = put(tmp_path / "a.csv", "a,b\n" + "".join(f"{i},{'x' * (i % 50)}\n" for i in range(5_000)))
        (task,) = CSVDatasource(path).get_read_tasks(1)
        assert [row["a"] for block in task() for row in block.to_pylist()] == list(range(5_000))

    def test_limits(self, tmp_path):
        path = put(tmp_path / "a.csv", "a\n" + "1\n" * 100)
        assert len(rows(CSVDatasource(path).with_limit(7))) == 7
        assert len(rows(CSVDatasource(path), per_task_row_limit=3)) == 3


class TestJSON:
    def test_shapes_of_files(self, tmp_path):
        assert rows(JSONDatasource(put(tmp_path / "a.json", '[{"a":1},{"a":2}]'))) == [{"a": 1}, {"a": 2}]
        lines = put(tmp_path / "a.jsonl", '{"a":1}\n{"a":2,"b":[1]}\n')
        assert rows(JSONDatasource(lines)) == [{"a": 1, "b": None}, {"a": 2, "b": [1]}]
        assert rows(JSONDatasource(put(tmp_path / "o.json", '{"a":1,\n"b":{"c":2}}'))) == [
            {"a": 1, "b": {"c": 2}}
        ]
        assert rows(JSONDatasource(put(tmp_path / "e.json", "\n"))) == []

    def test_chunks(self, tmp_path, monkeypatch):
        monkeypatch.setattr("runtime.data.io.json._CHUNK_BYTES", 50)
        made = [{"a": index, "s": "x" * (index % 90)} for index in range(200)]
        path = put(tmp_path / "a.jsonl", "\n".join(json.dumps(row) for row in made))
        (task,) = JSONDatasource(path).get_read_tasks(1)
        assert [row for block in task() for row in block.to_pylist()] == made

    def test_the_wrong_row_is_named(self, tmp_path):
        path = put(tmp_path / "a.jsonl", '{"a": 1}\n{"a": 2}\n{"a": oops}\n')
        with pytest.raises(FileReadError, match=r"a\.jsonl, row 2: .*line 3") as caught:
            rows(JSONDatasource(path))
        assert caught.value.row == 2

    def test_values_that_fit_no_column(self, tmp_path):
        path = put(tmp_path / "a.json", '[{"a": 1}, {"a": "x"}]')
        with pytest.raises(FileReadError, match=r"row 1: column 'a' has values of different types.*'x'"):
            rows(JSONDatasource(path))
        with pytest.raises(FileReadError, match="row 1: a row must be an object"):
            rows(JSONDatasource(put(tmp_path / "b.json", '[{"a": 1}, 2]')))
