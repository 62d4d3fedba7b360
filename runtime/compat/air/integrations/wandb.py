"""`ray.air.integrations.wandb`."""

from runtime.tune.logger.wandb import WandbLoggerCallback

WANDB_ENV_VAR = "WANDB_API_KEY"

__all__ = ["WANDB_ENV_VAR", "WandbLoggerCallback"]
