"""The study of tune.py whose driver is killed, as a program: `tune_study.py MODULE FOLDER TRIALS begin|restore`.

MODULE has Ray Tune's API, or is `anchors`: Optuna then, with its storage in SQLite. Prints "done" when all trials have
finished and their results are right.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import tune_trials as trials
from comparison import ANCHORS
from data_measuring import require

NAME = "study"


def through_library(module: str, folder: Path, count: int, restores: bool) -> list[tuple[float, float]]:
    """The configurations and losses of all trials."""
    rt, tune = importlib.import_module(module), importlib.import_module(f"{module}.tune")
    quiet = {"include_dashboard": False} if module == "ray" else {}
    rt.init(num_cpus=2, log_to_driver=False, logging_level="ERROR", **quiet)
    if restores:
        tuner = tune.Tuner.restore(str(folder / NAME), trials.study, resume_unfinished=True)
    else:
        tuner = tune.Tuner(
            trials.study,
            param_space={"x": tune.uniform(-1, 1), "folder": str(folder)},
            tune_config=tune.TuneConfig(num_samples=count),
            run_config=tune.RunConfig(name=NAME, storage_path=str(folder), verbose=0),
        )
    grid = tuner.fit()
    require(not grid.errors, f"a trial failed: {grid.errors[:1]}")
    return [(each.config["x"], each.metrics["loss"]) for each in grid]


def through_optuna(folder: Path, count: int) -> list[tuple[float, float]]:
    """Likewise."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        sampler=optuna.samplers.RandomSampler(),
        storage=f"sqlite:///{folder}/study.db",
        study_name=NAME,
        load_if_exists=True,
    )

    def objective(asked: Any) -> float:
        x = asked.suggest_float("x", -1, 1)
        trials.logged(folder, x)
        return float(x**2)

    study.optimize(objective, n_trials=count - len(_complete(study)))
    return [(each.params["x"], each.value) for each in _complete(study)]


def _complete(study: Any) -> list[Any]:
    return [each for each in study.trials if each.state.name == "COMPLETE"]


def main(module: str, where: str, number: str, what: str) -> None:
    folder, count = Path(where), int(number)
    if module == ANCHORS:
        found = through_optuna(folder, count)
    else:
        found = through_library(module, folder, count, what == "restore")
    require(len(found) == count, f"{len(found)} trials in place of {count}")
    require(all(loss == x**2 for x, loss in found), "a loss is not that of its configuration")
    print("\ndone", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
