"""Files that loggers write."""

from __future__ import annotations

import csv
import json
import pathlib
import pickle
from types import SimpleNamespace

import numpy
import pytest

from runtime.tune.logger import CSVLoggerCallback, JsonLoggerCallback, TBXLoggerCallback
from runtime.tune.logger.flat import as_json, flat
from runtime.tune.logger.tensorboardx import is_installed


class Trial(SimpleNamespace):
    __hash__ = object.__hash__


def test_dicts_become_flat_and_values_json() -> None:
    assert flat({"a": {"b": {"c": 1}, "d": 2}, "e": {}, "f": 3}) == {"a/b/c": 1, "a/d": 2, "f": 3}
    value = {"n": numpy.float32(0.5), "a": numpy.arange(2), "s": {2, 1}, "o": pathlib.Path("/x"), "t": (1,)}
    assert json.loads(as_json(value)) == {"n": 0.5, "a": [0, 1], "s": [1, 2], "o": "/x", "t": [1]}


def test_json_and_csv(tmp_path: pathlib.Path) -> None:
    trial = Trial(local_path=str(tmp_path), config={"x": numpy.int64(3)})
    for logger in (JsonLoggerCallback(), CSVLoggerCallback()):
        logger.log_trial_start(trial)
        logger.log_trial_result(1, trial, {"loss": 1.0, "inner": {"a": 1}, "config": trial.config})
        logger.log_trial_result(2, trial, {"inner": {"a": 2}, "late": "ignored by the table"})
        logger.log_trial_end(trial)
    lines = (tmp_path / "result.json").read_text().splitlines()
    assert [json.loads(line)["inner"]["a"] for line in lines] == [1, 2]
    assert json.loads((tmp_path / "params.json").read_text()) == {"x": 3}
    assert pickle.loads((tmp_path / "params.pkl").read_bytes()) == {"x": 3}
    rows = list(csv.DictReader((tmp_path / "progress.csv").open()))
    assert rows == [{"loss": "1.0", "inner/a": "1"}, {"loss": "", "inner/a": "2"}]
    again = CSVLoggerCallback()  # after a restore
    again.log_trial_result(3, trial, {"inner": {"a": 3}, "loss": 0.5})
    rows = list(csv.DictReader((tmp_path / "progress.csv").open()))
    assert rows[2] == {"loss": "0.5", "inner/a": "3"}


def test_tensorboard(tmp_path: pathlib.Path) -> None:
    if not is_installed():
        with pytest.raises(ImportError, match="pip install tensorboardX"):
            TBXLoggerCallback()
        return
    trial = Trial(local_path=str(tmp_path), config={})
    logger = TBXLoggerCallback()
    logger.log_trial_result(1, trial, {"loss": 1.0, "text": "no number", "training_iteration": 1})
    logger.log_trial_end(trial)
    assert list(tmp_path.glob("events.out.tfevents.*"))
