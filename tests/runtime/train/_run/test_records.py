"""What a run's folder says of the run."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np

from runtime.train._run import records
from runtime.train._run.records import RunRecords, encoded
from runtime.train._run.storage import RunStorage


def lines_of(folder: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in pathlib.Path(folder, "metrics.jsonl").read_text().splitlines()]


def test_each_rank_has_a_line(tmp_path: pathlib.Path) -> None:
    storage = RunStorage(str(tmp_path), "run")
    storage.open()
    written = RunRecords(storage)
    written.begin({"scaling": {"num_workers": 2}})
    written.add(0, [{"loss": 1.0}, {"loss": 2.0}], "", 0)
    written.add(1, [{"loss": 0.5}, {"loss": 0.25}], "checkpoint_1", 1)
    written.flush()
    found = lines_of(storage.folder)
    assert [(line["rank"], line["report"], line["metrics"]["loss"]) for line in found] == [
        (0, 0, 1.0), (1, 0, 2.0), (0, 1, 0.5), (1, 1, 0.25),
    ]  # fmt: skip
    assert "checkpoint" not in found[0]
    assert found[3]["checkpoint"] == "checkpoint_1"
    assert found[3]["failures"] == 1
    written.end("FINISHED", "", {"loss": 0.5}, 1)
    result = json.loads(pathlib.Path(storage.folder, "result.json").read_text())
    assert result["status"] == "FINISHED"
    assert result["metrics"] == {"loss": 0.5}


def test_a_remote_file_is_not_written_for_each_report(memory: str) -> None:
    storage = RunStorage(f"memory:/{memory}/runs", "run")
    storage.open()
    written = RunRecords(storage)
    for number in range(10):
        written.add(number, [{"step": number}], "", 0)
        written.flush()
    assert storage.read(records.METRICS) == b""
    written.end("FINISHED", "", None, 0)
    assert storage.read(records.METRICS).count(b"\n") == 10


def test_what_json_does_not_know_is_written_in_words() -> None:
    def read(value: Any) -> Any:
        return json.loads(encoded(value))

    assert read({"a": np.float32(0.5), "b": np.arange(2), "c": np.int64(3)}) == {
        "a": 0.5,
        "b": [0, 1],
        "c": 3,
    }
    assert read({"a": np.zeros((100, 100))}) == {"a": "ndarray of shape (100, 100)"}
    assert read({"a": float("nan")}) == {"a": None}
    assert read({"a": read}) == {"a": read.__qualname__}
    assert read({(1, 2): 3}) == {"(1, 2)": 3}
    cycle: list[Any] = []
    cycle.append(cycle)
    assert "..." in read(cycle)
