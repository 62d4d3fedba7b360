"""Loggers: callbacks that write what trials report."""

from __future__ import annotations

from runtime.tune._api.callback import LoggerCallback
from runtime.tune.logger.csv import CSVLoggerCallback
from runtime.tune.logger.json import JsonLoggerCallback
from runtime.tune.logger.tensorboardx import TBXLoggerCallback

__all__ = ["CSVLoggerCallback", "JsonLoggerCallback", "LoggerCallback", "TBXLoggerCallback"]
