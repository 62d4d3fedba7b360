"""The schema of YAML files and of `PUT /api/serve/applications/`."""

from __future__ import annotations

from collections import Counter
from typing import Any

from runtime.serve._schema.checks import (
    ConfigSchema,
    at,
    flag,
    mapping,
    nested,
    nested_list,
    remote_environment,
    text,
)
from runtime.serve._schema.logs import LoggingConfig
from runtime.serve._settings import number, settings, whole
from runtime.serve.config import (
    DEFAULT_GRPC_PORT,
    DEFAULT_HTTP_PORT,
    AutoscalingConfig,
    BackpressureConfig,
    ControllerOptions,
    HTTPOptions,
    ProxyLocation,
    RequestRouterConfig,
    gRPCOptions,
)
from runtime.serve.deployment import ACTOR_OPTIONS, NUMBERS, TIMES, check_limits, check_route_prefix, merged


@settings
class RayActorOptionsSchema(ConfigSchema):
    """Of the actor of each replica.

    Raises:
        ValueError: a value is invalid.
    """

    runtime_env: dict[str, Any] | None = None
    num_cpus: float | None = None
    num_gpus: float | None = None
    memory: float | None = None
    resources: dict[str, float] | None = None
    accelerator_type: str | None = None
    label_selector: dict[str, str] | None = None
    fallback_strategy: list[dict[str, Any]] | None = None

    def __post_init__(self) -> None:
        mapping(self, "runtime_env")
        mapping(self, "resources")
        for name in ("num_cpus", "num_gpus", "memory"):
            number(self, name, positive=False, optional=True)
        if self.accelerator_type is not None:
            text(self, "accelerator_type")


@settings
class DeploymentSchema(ConfigSchema):
    """Options of one deployment, on top of those in the code. Only those that are given count.

    Raises:
        ValueError: a value is invalid.
    """

    name: str = ""
    num_replicas: int | str | None = None
    max_ongoing_requests: int | None = None
    max_queued_requests: int | None = None
    backpressure_config: BackpressureConfig | dict[str, Any] | None = None
    user_config: Any = None
    autoscaling_config: AutoscalingConfig | dict[str, Any] | None = None
    graceful_shutdown_wait_loop_s: float | None = None
    graceful_shutdown_timeout_s: float | None = None
    health_check_period_s: float | None = None
    health_check_timeout_s: float | None = None
    ray_actor_options: RayActorOptionsSchema | dict[str, Any] | None = None
    placement_group_bundles: list[dict[str, float]] | None = None
    placement_group_strategy: str | None = None
    placement_group_bundle_label_selector: list[dict[str, str]] | None = None
    max_replicas_per_node: int | None = None
    logging_config: LoggingConfig | dict[str, Any] | None = None
    request_router_config: RequestRouterConfig | dict[str, Any] | None = None
    max_constructor_retry_count: int | None = None
    gang_scheduling_config: dict[str, Any] | None = None
    deployment_actors: list[dict[str, Any]] | None = None
    rolling_update_percentage: float | None = None
    max_surge_percent: int | None = None

    def __post_init__(self) -> None:
        text(self, "name")
        merged({}, {name: getattr(self, name) for name in self._given - {"name"}})
        if isinstance(self.num_replicas, int | float):
            whole(self, "num_replicas", 1)
        for name, (_, least) in NUMBERS.items():
            whole(self, name, least, optional=True)
        whole(self, "max_replicas_per_node", 1, optional=True)
        for name, (_, positive) in TIMES.items():
            number(self, name, positive, optional=True)
        number(self, "rolling_update_percentage", optional=True)
        check_limits(vars(self))
        nested(self, "ray_actor_options", RayActorOptionsSchema.model_validate)
        nested(self, "autoscaling_config", AutoscalingConfig.model_validate)
        nested(self, "backpressure_config", BackpressureConfig.model_validate)
        nested(self, "logging_config", LoggingConfig.model_validate)
        nested(self, "request_router_config", RequestRouterConfig.model_validate)

    @property
    def is_autoscaling_configured(self) -> bool:
        """Whether its number of replicas follows its load."""
        return self.num_replicas == "auto" or self.autoscaling_config is not None

    def overrides(self) -> dict[str, Any]:
        """The given options, for `Deployment.options`."""
        given = self.model_dump(exclude_unset=True)
        given.pop("name", None)
        actor = given.get("ray_actor_options")
        if actor is not None:
            given["ray_actor_options"] = {key: actor[key] for key in actor if key in ACTOR_OPTIONS}
        return given


@settings
class ServeApplicationSchema(ConfigSchema):
    """One application.

    Attributes:
        import_path: `module:name` of an application, or of a function that returns one and takes `args`.
        runtime_env: of its deployments; theirs are added.

    Raises:
        ValueError: a value is invalid.
    """

    name: str = "default"
    route_prefix: str | None = "/"
    import_path: str = ""
    runtime_env: dict[str, Any] | None = None
    host: str = "0.0.0.0"
    port: int = DEFAULT_HTTP_PORT
    deployments: list[Any] | None = None
    autoscaling_policy: dict[str, Any] | None = None
    args: dict[str, Any] | None = None
    logging_config: LoggingConfig | dict[str, Any] | None = None
    external_scaler_enabled: bool = False

    def __post_init__(self) -> None:
        text(self, "name")
        if "#" in self.name or "\0" in self.name:
            raise ValueError(f"name must not contain '#': {self.name!r}.")
        check_import_path(self.import_path)
        check_route_prefix(self.route_prefix)
        remote_environment(self, "runtime_env")
        mapping(self, "args")
        flag(self, "external_scaler_enabled")
        nested_list(self, "deployments", DeploymentSchema.model_validate)
        for each in self.deployments or ():
            if each.ray_actor_options is not None:
                with at(f"deployments ({each.name}).ray_actor_options"):
                    remote_environment(each.ray_actor_options, "runtime_env")
        nested(self, "logging_config", LoggingConfig.model_validate)
        _check_unique("deployments", self.deployment_names)
        if self.autoscaling_policy is not None:
            raise ValueError(
                "autoscaling_policy of an application is not supported: give deployments a policy in their "
                "autoscaling_config."
            )
        scaled = [each.name for each in self.deployments or () if each.is_autoscaling_configured]
        if self.external_scaler_enabled and scaled:
            raise ValueError(
                f"external_scaler_enabled excludes autoscaling, which these deployments have: {', '.join(scaled)}."
            )

    @property
    def deployment_names(self) -> list[str]:
        """Of the deployments whose options it changes."""
        return [each.name for each in self.deployments or ()]

    @staticmethod
    def get_empty_schema_dict() -> dict[str, Any]:
        """An application that is none."""
        return {"import_path": "", "runtime_env": {}, "deployments": []}


@settings
class HTTPOptionsSchema(ConfigSchema):
    """See `runtime.serve.config.HTTPOptions`."""

    host: str | None = "0.0.0.0"
    port: int = DEFAULT_HTTP_PORT
    root_path: str = ""
    request_timeout_s: float | None = None
    keep_alive_timeout_s: float = 90
    ssl_keyfile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile_password: str | None = None
    ssl_ca_certs: str | None = None

    def __post_init__(self) -> None:
        if self.host is not None:
            text(self, "host")
        HTTPOptions(**self.model_dump())


@settings
class gRPCOptionsSchema(ConfigSchema):
    """See `runtime.serve.config.gRPCOptions`."""

    port: int = DEFAULT_GRPC_PORT
    grpc_servicer_functions: list[str] | None = None
    request_timeout_s: float | None = None
    enable_reflection: bool = True
    ssl_keyfile: str | None = None
    ssl_certfile: str | None = None
    ssl_ca_certs: str | None = None

    def __post_init__(self) -> None:
        if self.grpc_servicer_functions is None:
            self.grpc_servicer_functions = []
        if not isinstance(self.grpc_servicer_functions, list):
            raise ValueError(f"grpc_servicer_functions must be a list, not {self.grpc_servicer_functions!r}.")
        gRPCOptions(**self.model_dump())


@settings
class ServeDeploySchema(ConfigSchema):
    """All declared applications. HTTP and gRPC options count when serving starts.

    Raises:
        ValueError: a value is invalid; the message has its place, e.g. `applications[0] (text).import_path`.
    """

    proxy_location: ProxyLocation | str = ProxyLocation.EveryNode
    http_options: HTTPOptionsSchema | dict[str, Any] | None = None
    grpc_options: gRPCOptionsSchema | dict[str, Any] | None = None
    controller_options: ControllerOptions | dict[str, Any] | None = None
    logging_config: LoggingConfig | dict[str, Any] | None = None
    tracing_config: dict[str, Any] | None = None
    applications: list[Any] | None = None
    target_capacity: float | None = None

    def __post_init__(self) -> None:
        locations = [each.value for each in ProxyLocation]
        if self.proxy_location not in locations:
            raise ValueError(
                f"proxy_location must be one of {', '.join(locations)}, not {self.proxy_location!r}."
            )
        self.proxy_location = ProxyLocation(self.proxy_location)
        if self.http_options is None:
            self.http_options = HTTPOptionsSchema()
        if self.grpc_options is None:
            self.grpc_options = gRPCOptionsSchema()
        if "applications" not in self._given:
            raise ValueError("applications is missing: list the applications, or [] for none.")
        nested(self, "http_options", HTTPOptionsSchema.model_validate)
        nested(self, "grpc_options", gRPCOptionsSchema.model_validate)
        nested(self, "controller_options", ControllerOptions.model_validate)
        nested(self, "logging_config", LoggingConfig.model_validate)
        nested_list(self, "applications", ServeApplicationSchema.model_validate)
        assert self.applications is not None
        percent = self.target_capacity
        is_number = isinstance(percent, int | float) and not isinstance(percent, bool)
        if percent is not None and not (is_number and 0 <= percent <= 100):
            raise ValueError(f"target_capacity must be a percentage from 0 to 100, not {percent!r}.")
        if self.tracing_config is not None and self.tracing_config.get("enabled", True):
            raise ValueError("tracing_config is not supported: requests pass on the header traceparent.")
        _check_unique("applications", [each.name for each in self.applications])
        _check_unique(
            "route_prefix of applications",
            [each.route_prefix for each in self.applications if each.route_prefix is not None],
        )
        for each in self.applications:
            for name in ("host", "port"):
                if name in each._given:
                    raise ValueError(
                        f"The application {each.name} has {name}: move it to http_options at the top level."
                    )

    @staticmethod
    def get_empty_schema_dict() -> dict[str, Any]:
        """No applications."""
        return {"applications": []}


@settings
class ScaleDeploymentRequest(ConfigSchema):
    """The body of a request that scales a deployment."""

    target_num_replicas: int = -1

    def __post_init__(self) -> None:
        if "target_num_replicas" not in self._given:
            raise ValueError("target_num_replicas is missing.")
        whole(self, "target_num_replicas", 0)


def check_import_path(path: Any) -> None:
    """Raises:
    ValueError: it is no import path.
    """
    parts = path.split(":") if isinstance(path, str) and ":" in path else str(path or "").rsplit(".", 1)
    if len(parts) != 2 or not all(parts):
        raise ValueError(f"import_path must have the form module:name, not {path!r}.")


def _check_unique(what: str, names: list[str]) -> None:
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise ValueError(f"{what}: {', '.join(twice)} is there more than once; each must be unique.")
