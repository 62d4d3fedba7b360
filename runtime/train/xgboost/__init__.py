"""Data-parallel training with XGBoost, with the names of Ray Train's `ray.train.xgboost`."""

from __future__ import annotations

from runtime.train.xgboost._backend import XGBoostConfig
from runtime.train.xgboost._callback import RayTrainReportCallback
from runtime.train.xgboost.trainer import XGBoostTrainer

__all__ = ["RayTrainReportCallback", "XGBoostConfig", "XGBoostTrainer"]
