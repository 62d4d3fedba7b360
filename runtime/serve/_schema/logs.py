"""Options of logs, and how an application was deployed."""

# ruff: noqa: UP042 - as with Ray, str() of a member shows its class
from __future__ import annotations

import logging
from enum import Enum

from runtime.serve._settings import Settings, settings


class APIType(str, Enum):
    """How an application was deployed: by a program, or by a configuration."""

    UNKNOWN = "unknown"
    IMPERATIVE = "imperative"
    DECLARATIVE = "declarative"


class EncodingType(str, Enum):
    """How a line of a log is written."""

    TEXT = "TEXT"
    JSON = "JSON"


@settings
class LoggingConfig(Settings):
    """Of the logs of a deployment or application.

    Attributes:
        encoding: see `EncodingType`.
        log_level: a name or number of `logging`.
        logs_dir: the folder of its files; None for that of the session.
        enable_access_log: whether there is a line for each request.
        additional_log_standard_attrs: attributes of log records that are added to each line.

    Raises:
        ValueError: a value is invalid.
    """

    STRICT = True

    encoding: EncodingType | str = EncodingType.TEXT
    log_level: int | str = "INFO"
    logs_dir: str | None = None
    enable_access_log: bool = True
    additional_log_standard_attrs: list[str] | None = None

    def __post_init__(self) -> None:
        names = [each.value for each in EncodingType]
        if self.encoding not in names:
            raise ValueError(f"encoding must be one of {', '.join(names)}, not {self.encoding!r}.")
        self.encoding = EncodingType(self.encoding).value
        levels = logging.getLevelNamesMapping()
        if isinstance(self.log_level, int):
            by_number = {number: name for name, number in levels.items()}
            if self.log_level not in by_number:
                raise ValueError(f"log_level must be one of {sorted(by_number)}, not {self.log_level}.")
            self.log_level = by_number[self.log_level]
        elif self.log_level not in levels:
            raise ValueError(f"log_level must be one of {', '.join(levels)}, not {self.log_level!r}.")
        known = vars(logging.makeLogRecord({}))
        for name in self.additional_log_standard_attrs or ():
            if name not in known and name not in ("message", "asctime"):
                raise ValueError(f"Log records have no attribute {name!r}.")
        self.additional_log_standard_attrs = sorted(set(self.additional_log_standard_attrs or ()))
