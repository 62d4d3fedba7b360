"""Options of `runtime.serve` under Ray's names: of HTTP and gRPC, autoscaling and routing."""

# ruff: noqa: UP042 - as with Ray, str() of a member shows its class
from __future__ import annotations

import importlib
import json
import os
import warnings
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cached_property
from typing import Any

from runtime.serve._settings import Settings, number, settings, whole

DEFAULT_HTTP_HOST = "127.0.0.1"
DEFAULT_HTTP_PORT = 8000
DEFAULT_GRPC_PORT = 9000
DEFAULT_TARGET_ONGOING_REQUESTS = 2
DEFAULT_POLICY = "runtime.serve.autoscaling_policy:default_autoscaling_policy"
DEFAULT_ROUTER = "runtime.serve.request_router:DefaultRequestRouter"

__all__ = [
    "AggregationFunction",
    "AutoscalingConfig",
    "AutoscalingContext",
    "AutoscalingPolicy",
    "BackpressureConfig",
    "ControllerOptions",
    "DeploymentMode",
    "HTTPOptions",
    "ProxyLocation",
    "RequestRouterConfig",
    "gRPCOptions",
]


class ProxyLocation(str, Enum):
    """Which nodes have an ingress: none, the head node, or each node that has a replica, and the head node."""

    Disabled = "Disabled"
    HeadOnly = "HeadOnly"
    EveryNode = "EveryNode"

    @classmethod
    def _normalize(cls, location: ProxyLocation | str | None) -> ProxyLocation | None:
        if location is None or isinstance(location, cls):
            return location
        if not isinstance(location, str):
            raise TypeError(f"A proxy location is a ProxyLocation or a string, not {location!r}.")
        return cls.Disabled if location == "NoServer" else cls(location)


class DeploymentMode(str, Enum):
    """The older names of `ProxyLocation`."""

    NoServer = "NoServer"
    HeadOnly = "HeadOnly"
    EveryNode = "EveryNode"


class AggregationFunction(str, Enum):
    """How a measure over the look-back period becomes one number."""

    MEAN = "mean"
    MAX = "max"
    MIN = "min"


@settings
class HTTPOptions(Settings):
    """Of the HTTP server of each ingress.

    Attributes:
        host: the address to listen at; None for no HTTP server.
        root_path: prefix that a proxy in front has removed; applications see it as the ASGI root path.
        request_timeout_s: of a whole request; None for no limit.
        keep_alive_timeout_s: after which an idle connection is closed.
        ssl_keyfile, ssl_certfile, ssl_keyfile_password, ssl_ca_certs: files for TLS.

    Raises:
        ValueError: a value is invalid.
    """

    host: str | None = DEFAULT_HTTP_HOST
    port: int = DEFAULT_HTTP_PORT
    middlewares: list[Any] | None = None
    location: ProxyLocation | str | None = None
    num_cpus: float = 0
    root_url: str = ""
    root_path: str = ""
    request_timeout_s: float | None = None
    keep_alive_timeout_s: float = 90
    ssl_keyfile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile_password: str | None = None
    ssl_ca_certs: str | None = None

    def __post_init__(self) -> None:
        whole(self, "port", 0)
        number(self, "keep_alive_timeout_s", positive=False)
        number(self, "request_timeout_s", optional=True)
        if self.location is not None:
            warnings.warn(
                "`location` of HTTPOptions is deprecated: use `proxy_location` of serve.start.",
                DeprecationWarning,
                stacklevel=3,
            )
        self.location = ProxyLocation._normalize(self.location)
        if self.host is None:
            self.location = ProxyLocation.Disabled
        if self.middlewares:
            raise ValueError(
                "HTTPOptions takes no middlewares: add them to the ASGI application of an ingress deployment."
            )
        if self.num_cpus:
            raise ValueError("HTTPOptions takes no num_cpus: an ingress reserves no CPUs.")
        if bool(self.ssl_keyfile) != bool(self.ssl_certfile):
            raise ValueError("ssl_keyfile and ssl_certfile are given together or not at all.")
        for file in (self.ssl_keyfile, self.ssl_certfile, self.ssl_ca_certs):
            if file and not os.path.exists(file):
                raise ValueError(f"The TLS file {file} does not exist.")


@settings
class gRPCOptions(Settings):
    """Of the gRPC server of each ingress. Without `grpc_servicer_functions` there is none.

    Attributes:
        grpc_servicer_functions: import paths of the generated `add_..._to_server` functions.
        request_timeout_s: of a whole request; None for no limit.
        enable_reflection: whether tools may list the services.
        ssl_keyfile, ssl_certfile: PEM files for TLS. Without them the server speaks plain text.
        ssl_ca_certs: PEM file of authorities, one of which must have signed the certificate of a client.
    """

    port: int = DEFAULT_GRPC_PORT
    grpc_servicer_functions: list[str] | None = None
    request_timeout_s: float | None = None
    enable_reflection: bool = True
    ssl_keyfile: str | None = None
    ssl_certfile: str | None = None
    ssl_ca_certs: str | None = None

    def __post_init__(self) -> None:
        whole(self, "port", 0)
        number(self, "request_timeout_s", optional=True)
        if bool(self.ssl_keyfile) != bool(self.ssl_certfile):
            raise ValueError("ssl_keyfile and ssl_certfile are given together or not at all.")
        self.grpc_servicer_functions = list(self.grpc_servicer_functions or ())

    @property
    def grpc_servicer_func_callable(self) -> list[Callable[..., Any]]:
        """The functions.

        Raises:
            ModuleNotFoundError: the module of one cannot be imported.
            ValueError: one is no function.
        """
        found = [imported(path) for path in self.grpc_servicer_functions or ()]
        for path, function in zip(self.grpc_servicer_functions or (), found, strict=True):
            if not callable(function):
                raise ValueError(f"{path} is no function that adds a servicer to a server.")
        return found


@settings
class ControllerOptions(Settings):
    """Of the controller's process. `runtime_env` may have `env_vars` only."""

    STRICT = True

    runtime_env: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        env = self.runtime_env
        if env is None:
            return
        if not isinstance(env, dict):
            raise ValueError(f"runtime_env must be a dict, not {env!r}.")
        if set(env) - {"env_vars"}:
            raise ValueError(
                f"The runtime_env of ControllerOptions takes env_vars only, not {sorted(set(env) - {'env_vars'})}: "
                "give deployments theirs in ray_actor_options."
            )
        variables = env.get("env_vars", {})
        if not isinstance(variables, dict) or not all(
            isinstance(name, str) and name and isinstance(value, str) for name, value in variables.items()
        ):
            raise ValueError(f"env_vars must be a dict of strings, not {variables!r}.")


@settings
class BackpressureConfig(Settings):
    """The answer to HTTP requests beyond `max_queued_requests`: its status, and the header Retry-After."""

    STRICT = True

    status_code: int = 503
    retry_after_s: float | None = None

    def __post_init__(self) -> None:
        if self.status_code not in (503, 429):
            raise ValueError(f"status_code of BackpressureConfig is 503 or 429, not {self.status_code!r}.")
        number(self, "retry_after_s", positive=False, optional=True)


@settings
class RequestRouterConfig(Settings):
    """How callers choose a replica.

    Attributes:
        request_router_class: a subclass of `request_router.RequestRouter`, or its import path.
        request_router_kwargs: arguments of its `initialize_state`; JSON.
        request_routing_stats_period_s, request_routing_stats_timeout_s: without effect: each replica calls its
            `record_routing_stats` at a fixed interval.
        initial_backoff_s, backoff_multiplier, max_backoff_s: pauses of a custom router that found no replica.
    """

    request_router_class: str | Callable[..., Any] = DEFAULT_ROUTER
    request_router_kwargs: dict[str, Any] | None = None
    request_routing_stats_period_s: float = 10.0
    request_routing_stats_timeout_s: float = 30.0
    initial_backoff_s: float = 0.025
    backoff_multiplier: float = 2.0
    max_backoff_s: float = 0.5

    def __post_init__(self) -> None:
        for name in (
            "request_routing_stats_period_s",
            "request_routing_stats_timeout_s",
            "initial_backoff_s",
            "backoff_multiplier",
            "max_backoff_s",
        ):
            number(self, name)
        self.request_router_kwargs = _json("request_router_kwargs", self.request_router_kwargs)

    @property
    def is_default(self) -> bool:
        """Whether it says nothing."""
        return self.request_router_class == DEFAULT_ROUTER

    def get_request_router_class(self) -> Any:
        """The class.

        Raises:
            ImportError: there is none at the import path.
        """
        chosen = self.request_router_class
        return imported(chosen) if isinstance(chosen, str) else chosen


@settings
class AutoscalingPolicy(Settings):
    """A policy of one's own: a function of an `AutoscalingContext` that returns the wanted number of replicas and the
    state for the next call; a class is made with `policy_kwargs` and its instances are called."""

    policy_function: str | Callable[..., Any] = DEFAULT_POLICY
    policy_kwargs: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self.policy_kwargs = _json("policy_kwargs", self.policy_kwargs)

    def is_default_policy_function(self) -> bool:
        """Whether replicas follow the number of requests."""
        return self.policy_function == DEFAULT_POLICY

    def get_policy(self) -> Any:
        """The function or class.

        Raises:
            ImportError: there is none at the import path.
        """
        chosen = self.policy_function
        return imported(chosen) if isinstance(chosen, str) else chosen


@settings
class AutoscalingConfig(Settings):
    """How many replicas a deployment has, by its load.

    Attributes:
        min_replicas, initial_replicas, max_replicas: bounds, and the number at the first deployment (default: the
            minimum).
        target_ongoing_requests: per replica, running and queued.
        look_back_period_s: over which load is averaged.
        upscale_delay_s, downscale_delay_s, downscale_to_zero_delay_s: how long more or fewer replicas must be wanted
            before it is done.
        upscaling_factor, downscaling_factor: share of the difference that one decision makes up for.
        smoothing_factor, upscale_smoothing_factor, downscale_smoothing_factor: older names for these factors.
        aggregation_function: see `AggregationFunction`.
        metrics_interval_s: without effect: loads are told when they change.
        policy: see `AutoscalingPolicy`.
    """

    min_replicas: int = 1
    initial_replicas: int | None = None
    max_replicas: int = 1
    target_ongoing_requests: float = DEFAULT_TARGET_ONGOING_REQUESTS
    metrics_interval_s: float = 10.0
    look_back_period_s: float = 30.0
    smoothing_factor: float = 1.0
    upscale_smoothing_factor: float | None = None
    downscale_smoothing_factor: float | None = None
    upscaling_factor: float | None = None
    downscaling_factor: float | None = None
    downscale_delay_s: float = 600.0
    downscale_to_zero_delay_s: float | None = None
    upscale_delay_s: float = 30.0
    aggregation_function: AggregationFunction | str = AggregationFunction.MEAN
    policy: AutoscalingPolicy | dict[str, Any] | None = None

    def __post_init__(self) -> None:
        whole(self, "min_replicas", 0)
        whole(self, "initial_replicas", 0, optional=True)
        whole(self, "max_replicas", 1)
        for name in (
            "target_ongoing_requests",
            "metrics_interval_s",
            "look_back_period_s",
            "smoothing_factor",
        ):
            number(self, name)
        for name in ("upscale_delay_s", "downscale_delay_s"):
            number(self, name, positive=False)
        number(self, "downscale_to_zero_delay_s", positive=False, optional=True)
        for name in (
            "upscale_smoothing_factor",
            "downscale_smoothing_factor",
            "upscaling_factor",
            "downscaling_factor",
        ):
            number(self, name, optional=True)
        if not isinstance(self.aggregation_function, AggregationFunction):
            self.aggregation_function = AggregationFunction(str(self.aggregation_function).lower())
        self.policy = AutoscalingPolicy.model_validate(self.policy if self.policy is not None else {})
        self._check_bounds()

    def _check_bounds(self) -> None:
        if self.max_replicas < self.min_replicas:
            raise ValueError(
                f"max_replicas ({self.max_replicas}) must be greater than or equal to min_replicas "
                f"({self.min_replicas})!"
            )
        initial = self.initial_replicas
        if initial is not None and initial < self.min_replicas:
            raise ValueError(
                f"min_replicas ({self.min_replicas}) must be less than or equal to initial_replicas ({initial})!"
            )
        if initial is not None and initial > self.max_replicas:
            raise ValueError(
                f"max_replicas ({self.max_replicas}) must be greater than or equal to initial_replicas ({initial})!"
            )

    @classmethod
    def default(cls) -> AutoscalingConfig:
        """What `num_replicas="auto"` means."""
        return cls(target_ongoing_requests=DEFAULT_TARGET_ONGOING_REQUESTS, min_replicas=1, max_replicas=100)

    def get_upscaling_factor(self) -> float:
        """The share of a difference upwards."""
        return self.upscaling_factor or self.upscale_smoothing_factor or self.smoothing_factor

    def get_downscaling_factor(self) -> float:
        """The share of a difference downwards."""
        return self.downscaling_factor or self.downscale_smoothing_factor or self.smoothing_factor

    def get_target_ongoing_requests(self) -> float:
        """Per replica."""
        return self.target_ongoing_requests


class AutoscalingContext:
    """What a policy sees of a deployment. Callables among the arguments are called when they are read.

    Attributes:
        total_num_requests: running and queued, over the look-back period.
        total_queued_requests: those of them that wait for a replica.
        aggregated_metrics, raw_metrics: of `record_autoscaling_stats`, by name and replica; a number, or
            `(time, number)` pairs.
        current_time, last_scale_up_time, last_scale_down_time: in seconds since the epoch, as are the times of pairs;
            None: never.
        policy_state: what the policy returned last.
    """

    def __init__(
        self,
        deployment_id: Any,
        deployment_name: str,
        app_name: str | None,
        current_num_replicas: int,
        target_num_replicas: int,
        running_replicas: list[Any],
        total_num_requests: float | Callable[[], float],
        total_queued_requests: float | Callable[[], float] | None,
        aggregated_metrics: Any,
        raw_metrics: Any,
        capacity_adjusted_min_replicas: int,
        capacity_adjusted_max_replicas: int,
        policy_state: dict[str, Any],
        last_scale_up_time: float | None,
        last_scale_down_time: float | None,
        current_time: float | None,
        config: Any,
    ) -> None:
        self.deployment_id = deployment_id
        self.deployment_name = deployment_name
        self.app_name = app_name
        self.current_num_replicas = current_num_replicas
        self.target_num_replicas = target_num_replicas
        self.running_replicas = running_replicas
        self.capacity_adjusted_min_replicas = capacity_adjusted_min_replicas
        self.capacity_adjusted_max_replicas = capacity_adjusted_max_replicas
        self.policy_state = policy_state
        self.last_scale_up_time = last_scale_up_time
        self.last_scale_down_time = last_scale_down_time
        self.current_time = current_time
        self.config = config
        self._requests = total_num_requests
        self._queued = total_queued_requests
        self._aggregated = aggregated_metrics
        self._raw = raw_metrics

    @cached_property
    def total_num_requests(self) -> float:
        return float(_called(self._requests))

    @cached_property
    def total_queued_requests(self) -> float:
        return float(_called(self._queued) or 0.0)

    @property
    def total_running_requests(self) -> float:
        """Those that run."""
        return max(0.0, self.total_num_requests - self.total_queued_requests)

    @cached_property
    def aggregated_metrics(self) -> Any:
        return _called(self._aggregated)

    @cached_property
    def raw_metrics(self) -> Any:
        return _called(self._raw)


def imported(path: str) -> Any:
    """What `module:name` or `module.name` names. Ray's modules are those of this package.

    Raises:
        ImportError: there is no such module or name.
    """
    module, _, name = path.rpartition(":" if ":" in path else ".")
    if module == "ray" or module.startswith("ray."):
        module = f"runtime{module[3:]}"
    if not module or not name:
        raise ImportError(f"{path!r} is no import path: write module:name.")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        if not hasattr(found, part):
            raise ImportError(f"The module {module} has no {name}.")
        found = getattr(found, part)
    return found


def _called(value: Any) -> Any:
    return value() if callable(value) else value


def _json(name: str, value: Mapping[str, Any] | None) -> dict[str, Any]:
    value = dict(value or {})
    try:
        json.dumps(value)
    except TypeError as error:
        raise ValueError(f"{name} must be JSON: {error}.") from None
    return value
