"""What serving shows of itself, and the options of its logs, under Ray's names."""

# ruff: noqa: UP042 - as with Ray, str() of a member shows its class
from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from runtime.serve._core.states import (
    ApplicationStatus,
    DeploymentStatus,
    DeploymentStatusTrigger,
    ProxyStatus,
    ReplicaState,
)
from runtime.serve._settings import Settings, settings

__all__ = [
    "ApplicationStatus",
    "ApplicationStatusOverview",
    "DeploymentStatus",
    "DeploymentStatusOverview",
    "DeploymentStatusTrigger",
    "EncodingType",
    "LoggingConfig",
    "ProxyStatus",
    "ReplicaState",
    "ServeStatus",
]


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
        ValueError: a value cannot be meant.
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


@dataclass
class DeploymentStatusOverview:
    """Of one deployment. `replica_states`: how many replicas have each state, by its name."""

    status: DeploymentStatus
    status_trigger: DeploymentStatusTrigger
    replica_states: dict[str, int]
    message: str


@dataclass
class ApplicationStatusOverview:
    """Of one application. `last_deployed_time_s`: seconds since the epoch."""

    status: ApplicationStatus
    message: str
    last_deployed_time_s: float
    deployments: dict[str, DeploymentStatusOverview]


@dataclass
class ServeStatus:
    """Of everything that is served. `proxies`: by the id of their node."""

    proxies: dict[str, ProxyStatus] = field(default_factory=dict)
    applications: dict[str, ApplicationStatusOverview] = field(default_factory=dict)
    target_capacity: float | None = None

    @classmethod
    def of(cls, details: Mapping[str, Any]) -> ServeStatus:
        """From what the controller tells of everything."""
        return cls(
            {node: ProxyStatus(each["status"]) for node, each in details["proxies"].items()},
            {name: _application(each) for name, each in details["applications"].items()},
            details.get("target_capacity"),
        )


def _application(details: Mapping[str, Any]) -> ApplicationStatusOverview:
    return ApplicationStatusOverview(
        ApplicationStatus(details["status"]),
        details["message"],
        details["last_deployed_time_s"],
        {name: _deployment(each) for name, each in details["deployments"].items()},
    )


def _deployment(details: Mapping[str, Any]) -> DeploymentStatusOverview:
    counts = Counter(str(replica["state"]) for replica in details["replicas"])
    return DeploymentStatusOverview(
        DeploymentStatus(details["status"]),
        DeploymentStatusTrigger(details["status_trigger"]),
        dict(counts),
        details["message"],
    )
