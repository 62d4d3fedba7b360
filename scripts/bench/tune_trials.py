"""What the trials of tune.py compute, and the trials themselves, through a module with Ray Tune's API. They travel to
their processes by value, as the functions of a program do; so this module imports little."""

from __future__ import annotations

import importlib
import pickle
import tempfile
import time
from pathlib import Path
from typing import Any

RESULTS = 20
"""Of a trial that ASHA does not stop."""
KEPT_BYTES = 2**20
ITERATIONS = 20
"""Of a member of the population."""
ITERATION_S = 0.02
STUDY_TRIAL_S = 0.05
HOLD_S = 4.0
Config = dict[str, Any]


def quadratic(x: float, y: float) -> float:
    """The least is 0, at (0.3, -0.2)."""
    return (x - 0.3) ** 2 + (y + 0.2) ** 2


def curve(x: float, step: int) -> float:
    """The loss after some steps."""
    return (x - 0.3) ** 2 + 1 / step


def blob(seed: int, step: int) -> bytes:
    """What a checkpoint is of."""
    return bytes([seed % 251, step]) * (KEPT_BYTES // 2)


def logged(folder: Path, x: float) -> None:
    """One trial of the study whose driver is killed: writes a line when it has finished."""
    time.sleep(STUDY_TRIAL_S)
    with open(folder / "finished", "a") as log:
        log.write(f"{x!r}\n")


def finished(folder: Path) -> list[str]:
    """The lines so far."""
    log = folder / "finished"
    return log.read_text().split() if log.exists() else []


# ------------------------------------------------------------ trials


def empty(config: Config) -> None:
    pass


def hold(config: Config) -> None:
    time.sleep(HOLD_S)


def tpe(config: Config) -> Config:
    return {"loss": quadratic(config["x"], config["y"])}


def noop(config: Config) -> Config:
    return {"loss": config["x"]}


def asha(config: Config) -> None:
    tune = _library(config)
    for step in range(1, RESULTS + 1):
        tune.report({"loss": curve(config["x"], step), "step": step})


def long(config: Config) -> None:
    tune = _library(config)
    for step in range(1, config["results"] + 1):
        tune.report({"step": step})


def keeping(config: Config) -> None:
    tune = _library(config)
    for step in range(config["kept"]):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "blob").write_bytes(blob(config["seed"], step))
            tune.report({"step": step}, checkpoint=tune.Checkpoint.from_directory(folder))


def member(config: Config) -> None:
    """Its value is the sum of the rates that it has used. The checkpoint has them, so that it shows what was copied."""
    tune, rates = _library(config), []
    if checkpoint := tune.get_checkpoint():
        with checkpoint.as_directory() as folder:
            rates = pickle.loads(Path(folder, "rates").read_bytes())
    while len(rates) < ITERATIONS:
        rates.append(config["rate"])
        time.sleep(ITERATION_S)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "rates").write_bytes(pickle.dumps(rates))
            metrics = {"value": sum(rates), "step": len(rates), "changed": len(set(rates)) > 1}
            tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(folder))


def study(config: Config) -> Config:
    logged(Path(config["folder"]), config["x"])
    return {"loss": config["x"] ** 2}


def _library(config: Config) -> Any:
    return importlib.import_module(f"{config['module']}.tune")
