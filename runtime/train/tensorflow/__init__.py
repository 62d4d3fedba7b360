"""Data-parallel training with TensorFlow, with the names of Ray Train's `ray.train.tensorflow`. TensorFlow is imported
by the training function only."""

from __future__ import annotations

from runtime.train.tensorflow._backend import TensorflowConfig
from runtime.train.tensorflow.trainer import TensorflowTrainer

__all__ = ["TensorflowConfig", "TensorflowTrainer"]
