"""WebDataset."""

from __future__ import annotations

import io
import tarfile

import numpy as np
import pytest

from runtime.data._block import batch
from runtime.data.io.errors import FileReadError
from runtime.data.io.webdataset import WebDatasetDatasink, WebDatasetDatasource
from tests.runtime.data.io.reading import blocks, rows
from tests.runtime.data.io.writing import files, write


def tar(path, members):
    with tarfile.open(path, "w") as archive:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


@pytest.fixture
def shard(tmp_path):
    return tar(
        tmp_path / "0.tar",
        [
            ("d/a.txt", b"one"),
            ("d/a.seg.json", b'{"x": 1}'),
            ("d/a.cls", b"3"),
            ("d/b.txt", b"two"),
            ("d/b.cls", b"4"),
            ("README", b"no sample"),
        ],
    )


def test_samples(shard):
    assert rows(WebDatasetDatasource(shard)) == [
        {"__key__": "d/a", "__url__": str(shard), "txt": "one", "seg.json": {"x": 1}, "cls": 3},
        {"__key__": "d/b", "__url__": str(shard), "txt": "two", "seg.json": None, "cls": 4},
    ]


def test_choices(shard):
    assert list(rows(WebDatasetDatasource(shard, suffixes=["c*"], decoder=None))[0]) == [
        "__key__",
        "cls",
        "__url__",
    ]
    read = WebDatasetDatasource(shard, fileselect=lambda name: name == "txt", filerename=[("txt", "text")])
    assert [row["text"] for row in rows(read)] == ["one", "two"]
    own = WebDatasetDatasource(shard, decoder=[True, lambda sample: {"n": sample["cls"] + 1}])
    assert rows(own) == [{"n": 4}, {"n": 5}]


def test_json_as_columns(tmp_path):
    shard = tar(tmp_path / "a.tar", [("a.json", b'{"label": "cat"}')])
    assert rows(WebDatasetDatasource(shard, expand_json=True))[0]["label"] == "cat"


def test_the_sample_that_cannot_be_decoded_is_named(tmp_path):
    shard = tar(tmp_path / "a.tar", [("a.cls", b"1"), ("b.cls", b"x")])
    with pytest.raises(FileReadError, match=r"a\.tar, row 1: sample 'b'"):
        rows(WebDatasetDatasource(shard))
    shard = tar(tmp_path / "b.tar", [("a.cls", b"1"), ("a.cls", b"x")])
    with pytest.raises(FileReadError, match="two files with the ending 'cls'"):
        rows(WebDatasetDatasource(shard))


def test_round_trip(tmp_path):
    image = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    samples = [
        {"__key__": f"k{i}", "txt": f"t{i}", "json": {"x": i}, "cls": i, "npy": np.ones(2) * i}
        for i in range(3)
    ]
    write(WebDatasetDatasink(tmp_path), [batch.from_rows([{**sample, "png": image} for sample in samples])])
    (table,) = blocks(WebDatasetDatasource(tmp_path))
    read = list(batch.rows(table))
    for row, sample in zip(read, samples, strict=True):
        assert {name: row[name] for name in ("__key__", "txt", "json", "cls")} == {
            name: sample[name] for name in ("__key__", "txt", "json", "cls")
        }
        assert np.array_equal(row["npy"], sample["npy"])
        assert np.array_equal(row["png"], image)


def test_encoders(tmp_path):
    rows_of = batch.from_rows([{"x": b"1"}])
    write(
        WebDatasetDatasink(tmp_path, encoder=lambda sample: {"__key__": "a", "y": sample["x"] + b"!"}),
        [rows_of],
    )
    with tarfile.open(tmp_path / files(tmp_path)[0]) as archive:
        assert archive.getnames() == ["a.y"]
    with pytest.raises(TypeError, match="'x' of sample '00000000' is no bytes"):
        write(WebDatasetDatasink(tmp_path, encoder=False), [batch.from_rows([{"x": 1}])])
