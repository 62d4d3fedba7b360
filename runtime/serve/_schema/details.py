"""The schema of `GET /api/serve/applications/`."""

from __future__ import annotations

from typing import Any

from runtime.serve._core.states import (
    ApplicationStatus,
    DeploymentStatus,
    DeploymentStatusTrigger,
    ProxyStatus,
    ReplicaState,
)
from runtime.serve._schema.checks import Schema, nested, nested_dict, nested_list
from runtime.serve._schema.configs import (
    DeploymentSchema,
    HTTPOptionsSchema,
    ServeApplicationSchema,
    gRPCOptionsSchema,
)
from runtime.serve._schema.logs import APIType
from runtime.serve._schema.status import ServeStatus
from runtime.serve._settings import settings
from runtime.serve.config import ProxyLocation


@settings
class ServeActorDetails(Schema):
    """An actor of serving, and where it runs. `log_file_path`: below the logs of the session."""

    node_id: str | None = None
    node_ip: str | None = None
    node_instance_id: str | None = None
    actor_id: str | None = None
    actor_name: str | None = None
    worker_id: str | None = None
    log_file_path: str | None = None


@settings
class ReplicaDetails(ServeActorDetails):
    """One replica. `start_time_s`: seconds since the epoch."""

    replica_id: str = ""
    state: ReplicaState | str = ReplicaState.STARTING
    pid: int | None = None
    start_time_s: float = 0.0

    def __post_init__(self) -> None:
        nested(self, "state", ReplicaState)


@settings
class ProxyDetails(ServeActorDetails):
    """The ingress of one node."""

    status: ProxyStatus | str = ProxyStatus.STARTING

    def __post_init__(self) -> None:
        nested(self, "status", ProxyStatus)


@settings
class DeploymentDetails(Schema):
    """One deployment. `message`: why it is not healthy."""

    name: str = ""
    status: DeploymentStatus | str = DeploymentStatus.UPDATING
    status_trigger: DeploymentStatusTrigger | str = DeploymentStatusTrigger.UNSPECIFIED
    message: str = ""
    deployment_config: DeploymentSchema | dict[str, Any] | None = None
    target_num_replicas: int = 0
    required_resources: dict[str, Any] | None = None
    replicas: list[Any] | None = None
    recent_dead_replicas: list[Any] | None = None

    def __post_init__(self) -> None:
        nested(self, "status", DeploymentStatus)
        nested(self, "status_trigger", DeploymentStatusTrigger)
        nested(self, "deployment_config", DeploymentSchema.model_validate)
        nested_list(self, "replicas", ReplicaDetails.model_validate)
        nested_list(self, "recent_dead_replicas", ReplicaDetails.model_validate)


@settings
class ApplicationDetails(Schema):
    """One application. `deployed_app_config`: what a configuration says of it; None: a program has deployed it."""

    name: str = ""
    route_prefix: str | None = None
    docs_path: str | None = None
    status: ApplicationStatus | str = ApplicationStatus.NOT_STARTED
    message: str = ""
    last_deployed_time_s: float = 0.0
    deployed_app_config: ServeApplicationSchema | dict[str, Any] | None = None
    source: APIType | str = APIType.UNKNOWN
    deployments: dict[str, Any] | None = None
    external_scaler_enabled: bool = False

    def __post_init__(self) -> None:
        nested(self, "status", ApplicationStatus)
        nested(self, "source", APIType)
        nested(self, "deployed_app_config", ServeApplicationSchema.model_validate)
        nested_dict(self, "deployments", DeploymentDetails.model_validate)


@settings
class Target(Schema):
    """An address that takes requests."""

    ip: str = ""
    port: int = 0
    instance_id: str = ""
    name: str = ""


@settings
class TargetGroup(Schema):
    """Addresses for a load balancer: all take requests of these routes. `protocol`: HTTP or gRPC."""

    targets: list[Any] | None = None
    route_prefix: str = "/"
    protocol: str = "HTTP"
    app_name: str = ""

    def __post_init__(self) -> None:
        nested_list(self, "targets", Target.model_validate)


@settings
class ServeInstanceDetails(Schema):
    """Everything that is served."""

    controller_info: ServeActorDetails | dict[str, Any] | None = None
    proxy_location: ProxyLocation | str | None = None
    http_options: HTTPOptionsSchema | dict[str, Any] | None = None
    grpc_options: gRPCOptionsSchema | dict[str, Any] | None = None
    proxies: dict[str, Any] | None = None
    applications: dict[str, Any] | None = None
    target_capacity: float | None = None
    target_groups: list[Any] | None = None

    def __post_init__(self) -> None:
        nested(self, "controller_info", ServeActorDetails.model_validate)
        nested(self, "proxy_location", ProxyLocation)
        nested(self, "http_options", HTTPOptionsSchema.model_validate)
        nested(self, "grpc_options", gRPCOptionsSchema.model_validate)
        nested_dict(self, "proxies", ProxyDetails.model_validate)
        nested_dict(self, "applications", ApplicationDetails.model_validate)
        nested_list(self, "target_groups", TargetGroup.model_validate)

    @staticmethod
    def get_empty_schema_dict() -> dict[str, Any]:
        """Nothing is served."""
        return {
            "controller_info": {},
            "proxies": {},
            "applications": {},
            "target_capacity": None,
            "target_groups": [],
        }

    def _get_status(self) -> ServeStatus:
        return ServeStatus.of(self.model_dump())
