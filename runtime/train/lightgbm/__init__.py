"""Data-parallel training with LightGBM, with the names of Ray Train's `ray.train.lightgbm`."""

from __future__ import annotations

from runtime.train.lightgbm._backend import LightGBMConfig, get_network_params
from runtime.train.lightgbm._callback import RayTrainReportCallback
from runtime.train.lightgbm.trainer import LightGBMTrainer

__all__ = ["LightGBMConfig", "LightGBMTrainer", "RayTrainReportCallback", "get_network_params"]
