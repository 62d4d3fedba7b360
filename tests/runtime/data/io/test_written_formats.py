"""What is written as CSV, JSON, arrays and images."""

from __future__ import annotations

import datetime
import decimal
import json

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

from runtime.data._block import batch
from runtime.data.io.arrays import NumpyDatasink, NumpyDatasource
from runtime.data.io.csv import CSVDatasink
from runtime.data.io.images import ImageDatasink, ImageDatasource
from runtime.data.io.json import JSONDatasource
from runtime.data.io.json_sink import JSONDatasink, line
from tests.runtime.data.io.reading import blocks, rows
from tests.runtime.data.io.writing import files, write


def test_csv_with_options_and_its_limits(tmp_path):
    sink = CSVDatasink(tmp_path, arrow_csv_args={"write_options": pacsv.WriteOptions(include_header=False)})
    write(sink, [pa.table({"a": [1], "b": ["x"]})])
    assert (tmp_path / files(tmp_path)[0]).read_text() == '1,"x"\n'
    with pytest.raises(ValueError, match=r"'a' of type list<.*does not fit into CSV"):
        write(CSVDatasink(tmp_path), [pa.table({"a": [[1]]})])


class TestJSON:
    def test_what_was_written_is_read(self, tmp_path):
        table = pa.table({"a": [1, None], "l": [[1.5], []], "s": [{"x": "é"}, {"x": None}]})
        write(JSONDatasink(tmp_path), [table])
        assert rows(JSONDatasource(tmp_path)) == table.to_pylist()

    def test_values(self):
        row = {
            "n": float("nan"),
            "nested": [{"i": float("inf")}],
            "t": datetime.datetime(2024, 1, 1),
            "z": datetime.datetime(2024, 1, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
            "d": datetime.date(2024, 1, 1),
            "e": datetime.timedelta(seconds=1),
            "c": decimal.Decimal("1.5"),
            "b": b"text",
            "x": b"\xff",
            "v": np.array([1, 2]),
            "w": np.array([1.0, np.nan]),
        }
        assert json.loads(line(row)) == {
            "n": None,
            "nested": [{"i": None}],
            "t": 1704067200000,
            "z": 1704067200000,
            "d": 1704067200000,
            "e": 1000,
            "c": 1.5,
            "b": "text",
            "x": "/w==",
            "v": [1, 2],
            "w": [1.0, None],
        }
        with pytest.raises(TypeError, match="object cannot be written as JSON"):
            line({"a": object()})

    def test_options_of_pandas(self, tmp_path):
        write(
            JSONDatasink(tmp_path, pandas_json_args={"orient": "columns", "lines": False}),
            [pa.table({"a": [1]})],
        )
        assert json.loads((tmp_path / files(tmp_path)[0]).read_text()) == {"a": {"0": 1}}


def test_numpy(tmp_path):
    values = np.arange(24).reshape(4, 3, 2)
    table = batch.from_batch({"x": values})
    write(NumpyDatasink(tmp_path, column="x"), [table.slice(0, 1), table.slice(1)])
    assert np.array_equal(np.load(tmp_path / files(tmp_path)[0]), values)
    (read,) = blocks(NumpyDatasource(tmp_path))
    assert np.array_equal(batch.to_batch(read)["data"], values)
    with pytest.raises(ValueError, match="no column 'y'"):
        write(NumpyDatasink(tmp_path, column="y"), [table])


def test_images(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (2, 4, 5, 3), dtype=np.uint8)
    write(ImageDatasink(tmp_path, column="image", file_format="png"), [batch.from_batch({"image": pixels})])
    assert len(files(tmp_path)) == 2
    (read,) = blocks(ImageDatasource(tmp_path))
    assert np.array_equal(batch.to_batch(read)["image"], pixels)
    write(
        ImageDatasink(tmp_path / "j", column="image", file_format="jpg"),
        [batch.from_batch({"image": pixels})],
    )
    assert all(name.endswith(".jpg") for name in files(tmp_path / "j"))
