"""`ray.air.integrations.mlflow`."""

from runtime.tune.logger.mlflow import MLflowLoggerCallback

__all__ = ["MLflowLoggerCallback"]
