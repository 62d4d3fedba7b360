"""Trials that boost trees report each iteration, and give the model."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

xgboost = pytest.importorskip("xgboost")
lightgbm = pytest.importorskip("lightgbm")
pytest.importorskip("sklearn")

from runtime import tune
from runtime.tune.integration import lightgbm as with_lightgbm
from runtime.tune.integration import xgboost as with_xgboost

pytestmark = pytest.mark.usefixtures("session")
ROUNDS = 4


def table() -> Any:
    from sklearn.datasets import load_diabetes

    return load_diabetes(return_X_y=True)


def boost(config: dict[str, Any]) -> None:
    """With one of the libraries, and one of its callbacks."""
    x, y = table()
    options = config["options"]
    if config["library"] == "xgboost":
        callback = getattr(with_xgboost, config["callback"])(**options)
        matrix = xgboost.DMatrix(x, y)
        parameters = {"max_depth": 2, "eta": config["eta"], "nthread": 1}
        xgboost.train(
            parameters, matrix, ROUNDS, evals=[(matrix, "train")], callbacks=[callback], verbose_eval=False
        )
    else:
        callback = getattr(with_lightgbm, config["callback"])(**options)
        rows = lightgbm.Dataset(x, y)
        parameters = {
            "num_leaves": 4,
            "eta": config["eta"],
            "num_threads": 1,
            "verbose": -1,
            "metric": "rmse",
        }
        lightgbm.train(
            parameters, rows, ROUNDS, valid_sets=[rows], valid_names=["train"], callbacks=[callback]
        )


def fitted(
    folder: pathlib.Path, library: str, callback: str, options: dict[str, Any], etas: list[float]
) -> Any:
    return tune.Tuner(
        boost,
        param_space={
            "library": library,
            "callback": callback,
            "options": options,
            "eta": tune.grid_search(etas),
        },
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=tune.RunConfig(storage_path=str(folder), verbose=0),
    ).fit()


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_the_best_trial_has_the_model_of_its_last_iteration(library: str, tmp_path: pathlib.Path) -> None:
    options = {"metrics": {"loss": "train-rmse"}, "frequency": 3}
    grid = fitted(tmp_path, library, "TuneReportCheckpointCallback", options, [0.01, 0.5])
    assert [each.error for each in grid] == [None, None]
    best = grid.get_best_result()
    assert best.config["eta"] == 0.5
    losses = [row["loss"] for row in best.history]
    assert losses[:ROUNDS] == sorted(losses[:ROUNDS], reverse=True)
    assert [row["should_checkpoint"] for row in best.history] == [False, False, True, False, True]
    module = with_xgboost if library == "xgboost" else with_lightgbm
    model = module.TuneReportCheckpointCallback.get_model(best.checkpoint)
    x, y = table()
    predicted = model.predict(xgboost.DMatrix(x)) if library == "xgboost" else model.predict(x)
    assert float(((predicted - y) ** 2).mean() ** 0.5) == pytest.approx(best.metrics["loss"], rel=1e-5)


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_metrics_may_come_without_checkpoints(library: str, tmp_path: pathlib.Path) -> None:
    found = fitted(tmp_path, library, "TuneReportCallback", {"metrics": {"loss": "train-rmse"}}, [0.1])[0]
    assert len(found.history) == ROUNDS
    assert found.checkpoint is None
