"""`ray.air.integrations.wandb`."""

from runtime.tune.logger.wandb import WandbLoggerCallback

__all__ = ["WandbLoggerCallback"]
