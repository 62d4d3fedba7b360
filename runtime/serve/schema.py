"""What serving shows of itself, its configurations and the options of its logs, under Ray's names.

Those of configurations and details are imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from runtime.serve._core.states import (
    ApplicationStatus,
    DeploymentStatus,
    DeploymentStatusTrigger,
    ProxyStatus,
    ReplicaState,
)
from runtime.serve._schema.logs import APIType, EncodingType, LoggingConfig
from runtime.serve._schema.status import ApplicationStatusOverview, DeploymentStatusOverview, ServeStatus

if TYPE_CHECKING:
    from runtime.serve._schema.configs import (
        DeploymentSchema,
        HTTPOptionsSchema,
        RayActorOptionsSchema,
        ScaleDeploymentRequest,
        ServeApplicationSchema,
        ServeDeploySchema,
        gRPCOptionsSchema,
    )
    from runtime.serve._schema.details import (
        ApplicationDetails,
        DeploymentDetails,
        ProxyDetails,
        ReplicaDetails,
        ServeActorDetails,
        ServeInstanceDetails,
        Target,
        TargetGroup,
    )
    from runtime.serve.context import ReplicaRank

__all__ = [
    "APIType",
    "ApplicationDetails",
    "ApplicationStatus",
    "ApplicationStatusOverview",
    "DeploymentDetails",
    "DeploymentSchema",
    "DeploymentStatus",
    "DeploymentStatusOverview",
    "DeploymentStatusTrigger",
    "EncodingType",
    "HTTPOptionsSchema",
    "LoggingConfig",
    "ProxyDetails",
    "ProxyStatus",
    "RayActorOptionsSchema",
    "ReplicaDetails",
    "ReplicaRank",
    "ReplicaState",
    "ScaleDeploymentRequest",
    "ServeActorDetails",
    "ServeApplicationSchema",
    "ServeDeploySchema",
    "ServeInstanceDetails",
    "ServeStatus",
    "Target",
    "TargetGroup",
    "gRPCOptionsSchema",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for module in ("_schema.configs", "_schema.details", "context"):
        found = importlib.import_module(f"runtime.serve.{module}")
        if hasattr(found, name):
            return getattr(found, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
