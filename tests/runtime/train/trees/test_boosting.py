"""Workers that boost trees on shards of a table make the model that one process makes, up to the order of sums."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

xgboost = pytest.importorskip("xgboost")
lightgbm = pytest.importorskip("lightgbm")
pytest.importorskip("sklearn")
pytest.importorskip("pandas")

from runtime import data, train
from runtime.train.lightgbm import LightGBMTrainer, get_network_params
from runtime.train.lightgbm import RayTrainReportCallback as LightGBMReports
from runtime.train.xgboost import RayTrainReportCallback as XGBoostReports
from runtime.train.xgboost import XGBoostConfig, XGBoostTrainer

pytestmark = pytest.mark.usefixtures("session")

ROUNDS = 12
XGB = {"objective": "binary:logistic", "eval_metric": "logloss", "max_depth": 3, "eta": 0.3, "nthread": 1}
LGB = {"objective": "regression", "num_leaves": 7, "min_data_in_leaf": 5, "num_threads": 1, "verbose": -1}


def cancer() -> Any:
    from sklearn.datasets import load_breast_cancer

    return load_breast_cancer(as_frame=True).frame


def diabetes() -> Any:
    from sklearn.datasets import load_diabetes

    return load_diabetes(as_frame=True).frame


def own_rows() -> Any:
    return train.get_dataset_shard("train").materialize().to_pandas()


def boost_with_xgboost() -> int:
    rows = own_rows()
    matrix = xgboost.DMatrix(rows.drop(columns="target"), rows["target"])
    reports = XGBoostReports(metrics={"loss": "train-logloss"}, frequency=5)
    xgboost.train(XGB, matrix, ROUNDS, evals=[(matrix, "train")], callbacks=[reports], verbose_eval=False)
    return len(rows)


def fitted(trainer: Any, function: Any, table: Any, folder: pathlib.Path) -> Any:
    return trainer(
        function,
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(storage_path=str(folder)),
        datasets={"train": data.from_pandas(table).repartition(4)},
    ).fit()


def test_xgboost(tmp_path: pathlib.Path) -> None:
    table = cancer()
    matrix = xgboost.DMatrix(table.drop(columns="target"), table["target"])
    alone: dict[str, Any] = {}
    xgboost.train(XGB, matrix, ROUNDS, evals=[(matrix, "train")], evals_result=alone, verbose_eval=False)

    result = fitted(XGBoostTrainer, boost_with_xgboost, table, tmp_path)
    assert result.return_value in (len(table) // 2, len(table) // 2 + 1)
    # The bins of a feature are sketched from each rank's rows, so the splits are not quite the same.
    assert result.metrics["loss"] == pytest.approx(alone["train"]["logloss"][-1], rel=0.05)
    assert len(result.best_checkpoints) == 3  # after 5 and 10 rounds, and at the end
    model = XGBoostTrainer.get_model(result.checkpoint)
    assert model.num_boosted_rounds() == ROUNDS
    wrong = ((model.predict(matrix) > 0.5) != table["target"]).mean()
    assert wrong < 0.02
    with pytest.raises(ValueError, match="must be rabit"):
        XGBoostConfig(xgboost_communicator="federated")


def boost_with_lightgbm() -> None:
    rows = own_rows()
    matrix = lightgbm.Dataset(rows.drop(columns="target"), rows["target"])
    parameters = {**LGB, **get_network_params(), "tree_learner": "data"}
    lightgbm.train(
        parameters, matrix, ROUNDS, valid_sets=[matrix], valid_names=["train"], callbacks=[LightGBMReports()]
    )


def test_lightgbm(tmp_path: pathlib.Path) -> None:
    table = diabetes()
    matrix = lightgbm.Dataset(table.drop(columns="target"), table["target"])
    alone = lightgbm.train(LGB, matrix, ROUNDS)

    result = fitted(LightGBMTrainer, boost_with_lightgbm, table, tmp_path)
    model = LightGBMTrainer.get_model(result.checkpoint)
    assert model.num_trees() == ROUNDS
    features = table.drop(columns="target")
    error, expected = (((one.predict(features) - table["target"]) ** 2).mean() for one in (model, alone))
    assert error == pytest.approx(expected, rel=0.1)
    assert set(result.metrics) == {"train-l2"}


@pytest.mark.parametrize("trainer", [XGBoostTrainer, LightGBMTrainer])
def test_arguments_of_earlier_versions_say_what_to_use(trainer: Any) -> None:
    with pytest.raises(DeprecationWarning, match="does not take params, label_column any more"):
        trainer(params={}, label_column="target", datasets={})
    with pytest.raises(DeprecationWarning, match="num_boost_round, dmatrix_params"):
        trainer(boost_with_xgboost, num_boost_round=3, dmatrix_params={})
    with pytest.raises(TypeError, match="train_loop_per_worker"):
        trainer(datasets={})


def test_what_belongs_into_a_training_function_says_so() -> None:
    with pytest.raises(RuntimeError, match="in a training function"):
        get_network_params()
