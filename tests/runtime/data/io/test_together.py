"""Small files that are parsed together give what they give one by one."""

from __future__ import annotations

import pytest

from runtime.data.datasource import Partitioning
from runtime.data.io.csv import CSVDatasource
from runtime.data.io.errors import FileReadError
from runtime.data.io.json import JSONDatasource
from runtime.data.io.together import LinesDatasource
from tests.runtime.data.io.reading import blocks, rows


@pytest.fixture
def folder(tmp_path):
    def put(files):
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
            (tmp_path / name).write_text(content)
        return tmp_path

    return put


CSV = {
    "plain": {"0.csv": "a,b\n1,x\n2,y\n", "1.csv": "a,b\n3,z\n"},
    "without the last line end": {"0.csv": "a,b\n1,x", "1.csv": "a,b\n3,z"},
    "no rows": {"0.csv": "a,b\n1,x\n", "1.csv": "a,b\n", "2.csv": "a,b\n3,z\n"},
    "blank lines": {"0.csv": "a,b\n1,x\n\n2,y\n", "1.csv": "a,b\n\n3,z\n"},
    "line ends in values": {"0.csv": 'a,b\n1,"x\ny"\n', "1.csv": "a,b\n3,z\n"},
    "quoted names": {"0.csv": '"a","b"\n1,x\n', "1.csv": '"a","b"\n3,z\n'},
    "carriage returns": {"0.csv": "a,b\r\n1,x\r\n", "1.csv": "a,b\r\n3,z\r\n"},
    "other names": {"0.csv": "a,b\n1,x\n", "1.csv": "a,c\n3,z\n"},
    "values of folders": {"k=1/0.csv": "a,b\n1,x\n", "k=2/0.csv": "a,b\n3,z\n", "2.csv": "a,b\n4,q\n"},
}
JSON = {
    "plain": {"0.json": '{"a": 1}\n{"a": 2}\n', "1.json": '{"a": 3}\n'},
    "without the last line end": {"0.json": '{"a": 1}', "1.json": '{"a": 3}'},
    "lists": {"0.json": '[{"a": 1}, {"a": 2}]', "1.json": '[{"a": 3}]'},
    "several lines for a row": {"0.json": '{"a":\n1}\n', "1.json": '{"a": 3}\n'},
    "blank lines": {"0.json": '{"a": 1}\n\n{"a": 2}\n', "1.json": '{"a": 3}\n'},
}


@pytest.mark.parametrize(
    ("source", "files"),
    [(CSVDatasource, files) for files in CSV.values()] + [(JSONDatasource, files) for files in JSON.values()],
    ids=[*CSV, *(f"json, {name}" for name in JSON)],
)
def test_the_same_rows(folder, monkeypatch, source, files):
    path = folder(files)
    for options in ({}, {"include_paths": True}, {"partitioning": Partitioning("hive")}):
        together = rows(source(path, **options))
        with monkeypatch.context() as patch:
            patch.setattr("runtime.data.io.together._SMALL_BYTES", 0)
            (task,) = source(path, **options).get_read_tasks(1)
            one_by_one = [row for block in task() for row in block.to_pylist()]
        assert together == one_by_one
        assert together


def test_types_are_those_of_all_files(folder):
    (table,) = blocks(CSVDatasource(folder({"0.csv": "a\n1\n", "1.csv": "a\n2.5\n"})))
    assert table["a"].to_pylist() == [1.0, 2.5]


def test_selected_columns(folder):
    files = {f"k={k}/0.csv": f"a,b\n{k},x\n" for k in range(3)}
    source = CSVDatasource(folder(files), partitioning=Partitioning("hive"))
    assert rows(source.with_columns(["k", "b"])) == [{"k": str(k), "b": "x"} for k in range(3)]
    assert rows(source.with_columns(["k"])) == [{"k": str(k)} for k in range(3)]
    with pytest.raises(FileReadError, match=r"0\.csv: .*'z'"):
        rows(source.with_columns(["z"]))


def test_the_wrong_file_is_named(folder):
    files = {f"{i}.csv": "a,b\n1,x\n" for i in range(9)} | {"5.csv": "a,b\n1\n"}
    with pytest.raises(FileReadError, match=r"5\.csv.*Row #2: Expected 2 columns, got 1"):
        rows(CSVDatasource(folder(files)))


def test_files_are_really_parsed_together(folder, monkeypatch):
    path = folder({f"{i:03}.csv": f"a\n{i}\n" for i in range(300)})
    calls = []
    parse = CSVDatasource._parse_together
    monkeypatch.setattr(
        CSVDatasource, "_parse_together", lambda self, *args: calls.append(1) or parse(self, *args)
    )
    monkeypatch.setattr(LinesDatasource, "_tables_of", None)
    (task,) = CSVDatasource(path).get_read_tasks(1)
    assert [row["a"] for block in task() for row in block.to_pylist()] == list(range(300))
    assert len(calls) == 3
