"""`ray.air.integrations.comet`."""

from runtime.tune.logger.comet import CometLoggerCallback

__all__ = ["CometLoggerCallback"]
