"""The status of what is served, as `serve.status` returns it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from runtime.serve._core.states import (
    ApplicationStatus,
    DeploymentStatus,
    DeploymentStatusTrigger,
    ProxyStatus,
    ReplicaState,
)


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
    counts = Counter(ReplicaState(replica["state"]).value for replica in details["replicas"])
    return DeploymentStatusOverview(
        DeploymentStatus(details["status"]),
        DeploymentStatusTrigger(details["status_trigger"]),
        dict(counts),
        details["message"],
    )
