"""A study whose driver is killed, as a program: `killed_study.py FOLDER TRIALS`. It begins or goes on with the study.

A trial notes in FOLDER/log when it begins and when it has computed its result. At the end the program prints how many
trials there are, how many are complete, and how many have the right result.
"""

from __future__ import annotations

import os
import pathlib
import sys
import time
from typing import Any

import runtime
from runtime import tune

NAME = "study"
TRIAL_S = 0.2
"""Of a trial with x = 1, at which computing one takes longest."""


def note(folder: str, what: str) -> None:
    """Appends a line to the log, in one write."""
    log = os.open(os.path.join(folder, "log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(log, f"{tune.get_context().get_trial_id()} {what}\n".encode())
    os.close(log)


def trial(config: dict[str, Any]) -> dict[str, float]:
    """Two results: the half of x, and its square."""
    note(config["folder"], "begun")
    tune.report({"half": config["x"] / 2})
    time.sleep(TRIAL_S * config["x"])
    note(config["folder"], "computed")
    return {"square": config["x"] ** 2}


def main(folder: str, trials: int) -> None:
    runtime.init(num_cpus=2, log_to_driver=False)
    path = os.path.join(folder, NAME)
    if tune.Tuner.can_restore(path):
        tuner = tune.Tuner.restore(path, trial)
    else:
        tuner = tune.Tuner(
            trial,
            param_space={"x": tune.uniform(0, 1), "folder": folder},
            tune_config=tune.TuneConfig(num_samples=trials, reuse_actors=True),
            run_config=tune.RunConfig(name=NAME, storage_path=folder, verbose=0),
        )
    pathlib.Path(folder, "up").touch()
    grid = tuner.fit()
    right = sum((each.metrics or {}).get("square") == each.config["x"] ** 2 for each in grid)  # type: ignore[index]
    print(len(grid), grid.num_terminated, right)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
