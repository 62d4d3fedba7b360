"""Large files are read in parts by several tasks: the same rows in the same order as by one."""

from __future__ import annotations

import io
import json
import random
import re

import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.data.io import csv as own_csv
from runtime.data.io.csv import CSVDatasource
from runtime.data.io.errors import FileReadError
from runtime.data.io.grouping import split
from runtime.data.io.json import JSONDatasource
from runtime.data.io.opening import row_start
from runtime.data.io.paths import File
from runtime.data.io.text import TextDatasource
from tests.runtime.data.io.reading import blocks, rows

LINES = st.lists(st.text(alphabet="ab \"'{}[]:,é\r\x0b\u2028", max_size=6), max_size=30)
VALUES = st.recursive(
    st.none() | st.integers(-9, 9) | st.text(alphabet='{}[]",\n é', max_size=5),
    lambda inner: st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)
ROWS = st.lists(
    st.fixed_dictionaries({"id": st.integers(0, 9), "v": VALUES.map(json.dumps)}), min_size=1, max_size=20
)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """Parts of any size, so that small files are cut."""
    for kind in (TextDatasource, JSONDatasource, CSVDatasource):
        monkeypatch.setattr(kind, "_LEAST_PART_BYTES", 1)
    monkeypatch.setattr(own_csv, "_WHOLE_FILE_BYTES", 64)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("parts")


@given(LINES, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.integers(2, 12))
@settings(max_examples=15, deadline=None)
def test_text(folder, lines, end, ends, tasks):
    path = folder / "a.txt"
    path.write_bytes((end.join(lines) + (end if ends else "")).encode())
    source = TextDatasource(path, drop_empty_lines=False)
    assert rows(source, tasks) == rows(source, 1)
    if path.stat().st_size > 4 * tasks:
        assert len(source.get_read_tasks(tasks)) > 1


@given(ROWS, st.sampled_from(["\n", "\r\n", "\n\n", "\n  "]), st.sampled_from([None, 1]), st.integers(2, 12))
@settings(max_examples=15, deadline=None)
def test_json(folder, values, end, indent, tasks):
    path = folder / "a.jsonl"
    path.write_text(end.join(json.dumps(row, indent=indent) for row in values), encoding="utf-8")
    source = JSONDatasource(path)
    assert len(source.get_read_tasks(tasks)) == tasks
    assert rows(source, tasks) == rows(source, 1) == values


def test_json_that_is_nested_or_a_list(tmp_path):
    inner = {"x": [{"a": index, "b": "} \\n {"} for index in range(20)]}
    (tmp_path / "a.json").write_text("\n".join(json.dumps(inner, indent=1) for _ in range(4)))
    (tmp_path / "b.json").write_text(json.dumps([inner] * 4, indent=1))
    assert rows(JSONDatasource(tmp_path / "a.json"), 9) == [inner] * 4
    source = JSONDatasource(tmp_path / "b.json")
    assert len(source.get_read_tasks(9)) == 1
    assert rows(source, 9) == [inner] * 4


@given(st.data())
@settings(max_examples=15, deadline=None)
def test_csv(folder, data):
    count = data.draw(st.integers(20, 60))
    value = st.sampled_from(["", "1", "2.5", "x", '"q,q"', "true"])
    values = data.draw(st.lists(value, min_size=count, max_size=count))
    path = folder / "a.csv"
    path.write_text("".join(["id,v\n", *(f"{index},{value}\n" for index, value in enumerate(values))]))
    tasks = data.draw(st.integers(2, 9))
    # Types are those of the first block: here of all rows.
    whole = pacsv.read_csv(io.BytesIO(path.read_bytes()))
    found = blocks(CSVDatasource(path), tasks)
    assert len(CSVDatasource(path).get_read_tasks(tasks)) == tasks
    assert pa.concat_tables(found).combine_chunks().to_pylist() == whole.to_pylist()
    assert {block.schema for block in found if block.num_rows} == {whole.schema}
    assert [row["id"] for row in rows(CSVDatasource(path).with_columns(["id"]), tasks)] == list(range(count))


def test_rows_of_csv_that_are_longer_than_what_is_looked_at_first(tmp_path):
    values = [f"{index:0200}" for index in range(50)]
    name = "s" * 100
    (tmp_path / "a.csv").write_text(f"{name}\n" + "".join(f"x{value}\n" for value in values))
    for tasks in (1, 7):
        assert [row[name][1:] for row in rows(CSVDatasource(tmp_path), tasks)] == values


class TestCSVOptions:
    @pytest.fixture
    def path(self, tmp_path):
        path = tmp_path / "a.csv"
        path.write_text("a;b\n" + "".join(f"{index};{index % 3}\n" for index in range(100)))
        return path

    @pytest.mark.parametrize(
        "arguments",
        [
            {},
            {"read_options": pacsv.ReadOptions(column_names=["x", "y"])},
            {"read_options": pacsv.ReadOptions(autogenerate_column_names=True)},
            {"convert_options": pacsv.ConvertOptions(column_types={"b": pa.string()})},
            {"convert_options": pacsv.ConvertOptions(include_columns=["b"])},
            {"convert_options": pacsv.ConvertOptions(null_values=["1"])},
        ],
    )
    def test_parts_get_them(self, path, arguments):
        arguments = {**arguments, "parse_options": pacsv.ParseOptions(delimiter=";")}
        source = CSVDatasource(path, arrow_csv_args=arguments)
        whole = rows(source, 1)
        assert len(whole) >= 100
        assert len(source.get_read_tasks(7)) == 7
        assert rows(source, 7) == whole

    @pytest.mark.parametrize(
        "arguments",
        [
            {"read_options": pacsv.ReadOptions(skip_rows=1)},
            {"read_options": pacsv.ReadOptions(encoding="utf-16")},
            {"parse_options": pacsv.ParseOptions(newlines_in_values=True)},
            {"parse_options": pacsv.ParseOptions(escape_char="\\")},
            {"convert_options": pacsv.ConvertOptions(auto_dict_encode=True)},
        ],
    )
    def test_files_that_stay_whole(self, path, arguments):
        assert len(CSVDatasource(path, arrow_csv_args=arguments).get_read_tasks(7)) == 1


def test_files_that_stay_whole(tmp_path):
    (tmp_path / "a.txt").write_text("line\n" * 100, encoding="utf-16")
    (tmp_path / "b.txt").write_text("line\n" * 100)
    with pa.output_stream(tmp_path / "c.txt.gz") as file:
        file.write(bytes(random.Random(0).randbytes(1000)))
    assert len(TextDatasource(tmp_path / "a.txt", encoding="utf-16").get_read_tasks(5)) == 1
    assert len(TextDatasource(tmp_path / "b.txt").get_read_tasks(5)) == 5
    assert (
        len(TextDatasource(tmp_path / "b.txt", open_stream_args={"compression": "gzip"}).get_read_tasks(5))
        == 1
    )
    assert len(TextDatasource(tmp_path / "c.txt.gz").get_read_tasks(5)) == 1


def test_columns_of_the_path_and_limits(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("".join(f"{index}\n" for index in range(100)))
    source = TextDatasource(path, include_paths=True)
    found = rows(source, 5)
    assert found == [{"text": str(index), "path": str(path)} for index in range(100)]
    assert [task.metadata.input_files for task in source.get_read_tasks(5)] == [(str(path),)] * 5
    assert len(rows(source.with_limit(3), 5)) == 15


def test_an_error_says_where_rows_are_counted_from(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n' * 50 + '{"a": oh}\n' + '{"a": 1}\n' * 50)
    with pytest.raises(FileReadError, match=r"a\.jsonl: row \d+: .* after byte \d+"):
        rows(JSONDatasource(tmp_path), 10)


def test_parts_of_several_files():
    files = [File("a", 100), File("b", 10), File("c", 55)]
    asked = []

    def may_split(file):
        asked.append(file.path)
        return file.path != "c"

    parts = split(files, 8, 1, may_split)
    assert parts == [File("a", 20, start, False) for start in range(0, 100, 20)] + files[1:]
    assert asked == ["a", "c"]
    assert split(files, 8, 90, may_split) == files
    assert split(files, -1, 1, may_split) == files


def test_lines_longer_than_what_is_read_at_once():
    data = b"x" * 300_000 + b"\n" + b"y" * 10
    source = pa.BufferReader(data)
    assert [row_start(source, offset, re.compile(rb"\n")) for offset in (0, 1, 300_000, 300_001, 400_000)] == [
        0, 300_001, 300_001, len(data), len(data)
    ]  # fmt: skip
