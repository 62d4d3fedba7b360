"""Read tasks and what sinks give back."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pytest

from runtime.data.datasource import BlockMetadata, Datasource, ReadTask, SaveMode, WriteResult

UNKNOWN = BlockMetadata(None, None)


def test_a_task_yields_tables_of_tables_and_frames():
    blocks = [pa.table({"a": [1]}), pd.DataFrame({"a": [2]}), pa.record_batch({"a": [3]})]
    assert [table.to_pydict() for table in ReadTask(lambda: blocks, UNKNOWN)()] == [
        {"a": [1]},
        {"a": [2]},
        {"a": [3]},
    ]


def test_a_task_stops_at_its_limit():
    def read():
        yield pa.table({"a": [1, 2]})
        yield pa.table({"a": [3, 4]})
        raise AssertionError("read on")

    assert sum(table.num_rows for table in ReadTask(read, UNKNOWN, per_task_row_limit=3)()) == 3


def test_a_task_refuses_what_is_no_block():
    with pytest.raises(TypeError, match="not dict"):
        list(ReadTask(lambda: [{"a": 1}], UNKNOWN)())
    with pytest.raises(TypeError, match="iterable of blocks"):
        list(ReadTask(lambda: None, UNKNOWN)())  # type: ignore[arg-type, return-value]


def test_names():
    class ExampleDatasource(Datasource): ...

    assert ExampleDatasource().get_name() == "Example"


def test_modes_have_names():
    assert SaveMode.of("Overwrite") is SaveMode.OVERWRITE
    with pytest.raises(ValueError, match="'append'"):
        SaveMode.of("replace")


def test_results_add_up():
    assert WriteResult.combine(WriteResult(1, 8, ["a"]), WriteResult(2, 16, ["b"])) == WriteResult(
        3, 24, ["a", "b"]
    )
