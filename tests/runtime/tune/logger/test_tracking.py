"""Trials as runs of MLflow, in a local database, and of Weights & Biases, offline."""

from __future__ import annotations

import importlib
import importlib.util
import json
import pathlib
import pickle
import struct
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest


def found_by(library: str, folder: pathlib.Path) -> dict[str, Any]:
    program = [sys.executable, "-m", "tests.runtime.tune.logger.study_of_two", library, str(folder)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((folder / "found.json").read_text())
    return found


def test_each_trial_is_a_run_of_mlflow(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    runs = found_by("mlflow", tmp_path)
    assert {x: run["status"] for x, run in runs.items()} == {"1": "FINISHED", "2": "FAILED"}
    assert runs["1"]["parameters"] == {"x": "1", "model/layers": "3"}
    assert runs["1"]["tags"]["team"] == "a"
    assert runs["1"]["metrics"]["eval/f1"] == 0.5
    assert "note" not in runs["1"]["metrics"]
    assert sorted(runs["2"]["losses"]) == [[1, 2], [2, 1], [3, 0]]


def test_each_trial_is_a_run_of_wandb_in_its_folder(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("wandb")
    for x, trial in found_by("wandb", tmp_path).items():
        (file,) = pathlib.Path(trial["path"]).glob("wandb/offline-run-*/*.wandb")
        assert file.stem == f"run-{trial['id']}"
        rows, exit_code = logged(file)
        assert [float(row["loss"]) for row in rows] == [int(x) - step for step in range(3)]
        assert [float(row["eval/f1"]) for row in rows] == [0.5, 0.5, 0.5]
        assert all("secret" not in row for row in rows)
        assert exit_code == int(x == "2")


def logged(file: pathlib.Path) -> tuple[list[dict[str, str]], int]:
    """What a run's file says was logged, and how the run ended."""
    from wandb.proto import wandb_internal_pb2

    rows, exit_code = [], -1
    for data in chunks(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.HasField("history"):
            rows.append(
                {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
            )
        elif record.HasField("exit"):
            exit_code = record.exit.exit_code
    return rows, exit_code


def chunks(data: bytes) -> Iterator[bytes]:
    """The records of wandb's file: LevelDB's log format after seven bytes of its own."""
    block, head, at, record = 32768, struct.Struct("<IHB"), 7, b""
    while at + head.size <= len(data):
        if block - at % block < head.size:
            at += block - at % block
            continue
        _, size, kind = head.unpack_from(data, at)
        record += data[at + head.size : at + head.size + size]
        at += head.size + size
        if kind in (1, 4):  # whole, or the last part
            yield record
            record = b""


def test_each_trial_is_a_run_of_aim(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("aim")
    runs = found_by("aim", tmp_path)
    assert {run["experiment"] for run in runs.values()} == {"descent"}
    for x, run in runs.items():
        assert sorted(run["metrics"]) == ["ray/tune/eval/f1", "ray/tune/loss"]
        assert run["metrics"]["ray/tune/loss"] == [int(x) - step for step in range(3)]


def test_each_trial_is_an_experiment_of_comet(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("comet_ml")
    found = found_by("comet_ml", tmp_path)
    assert sorted(found) == ["1", "2"]
    for x, experiment in found.items():
        assert str(experiment["parameters"]["model/layers"]) == "3"
        assert experiment["losses"] == [int(x) - step for step in range(3)]


LOGGERS = {
    "aim": ("aim", "AimLoggerCallback"),
    "comet": ("comet_ml", "CometLoggerCallback"),
    "mlflow": ("mlflow", "MLflowLoggerCallback"),
    "wandb": ("wandb", "WandbLoggerCallback"),
}


@pytest.mark.parametrize("name", LOGGERS)
def test_a_missing_library_is_named(name: str) -> None:
    library, logger = LOGGERS[name]
    if importlib.util.find_spec(library) is not None:
        pytest.skip(f"{library} is installed")
    module = importlib.import_module(f"runtime.tune.logger.{name}")
    with pytest.raises(ImportError, match=f"{logger} needs .*: pip install {library}"):
        getattr(module, logger)()


@pytest.mark.parametrize("name", ["comet", "mlflow", "wandb"])
def test_the_loggers_have_their_earlier_paths(name: str) -> None:
    logger = LOGGERS[name][1]
    module = importlib.import_module(f"runtime.compat.air.integrations.{name}")
    assert getattr(module, logger).__module__ == f"runtime.tune.logger.{name}"


def test_wandbs_key_is_not_pickled() -> None:
    pytest.importorskip("wandb")
    from runtime.tune.logger.wandb import WandbLoggerCallback

    callback = WandbLoggerCallback("descent", api_key="key-of-someone")
    assert b"key-of-someone" not in pickle.dumps(callback)
    with pytest.raises(ValueError, match="exclude each other"):
        WandbLoggerCallback("descent", api_key="key", api_key_file="~/key")
