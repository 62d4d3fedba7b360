"""`ray.air.constants`."""

from runtime.tune.result import TIME_THIS_ITER_S, TRAINING_ITERATION

MODEL_KEY = "model"
EVALUATION_DATASET_KEY = "evaluation"
TRAIN_DATASET_KEY = "train"

__all__ = [
    "EVALUATION_DATASET_KEY",
    "MODEL_KEY",
    "TIME_THIS_ITER_S",
    "TRAINING_ITERATION",
    "TRAIN_DATASET_KEY",
]
