"""What is to run: applications and their deployments, as `run` and the YAML file hand them to the controller."""

from __future__ import annotations

from typing import Any

import msgspec


class DeploymentOptions(msgspec.Struct, frozen=True):
    """The options of `@serve.deployment`, checked. None of `num_replicas` where it scales."""

    num_replicas: int | None = 1
    autoscaling: dict[str, Any] | None = None
    max_ongoing_requests: int = 5
    max_queued_requests: int = -1
    user_config: Any = None
    ray_actor_options: dict[str, Any] = {}
    placement_group_bundles: list[dict[str, float]] | None = None
    placement_group_strategy: str | None = None
    max_replicas_per_node: int | None = None
    graceful_shutdown_wait_loop_s: float = 2.0
    graceful_shutdown_timeout_s: float = 20.0
    health_check_period_s: float = 10.0
    health_check_timeout_s: float = 30.0
    logging_config: dict[str, Any] | None = None
    router: bytes = b""
    """cloudpickle of its RequestRouterConfig, or b""."""
    scaling_policy: bytes = b""
    """cloudpickle of the policy function or class of its autoscaling, or b"" for the default one."""
    placement_group_bundle_label_selector: list[dict[str, str]] | None = None
    max_constructor_retry_count: int = 20
    max_surge_percent: int = 0
    """How many replicas more than wanted there may be while versions change; 0 for the default."""
    backpressure: dict[str, Any] = {}
    """`status_code` and `retry_after_s` of the answer to HTTP requests beyond `max_queued_requests`."""


class DeploymentSpec(msgspec.Struct, frozen=True):
    """One deployment.

    Attributes:
        code: cloudpickle of the class or function.
        init: cloudpickle of `(args, kwargs)`; bound deployments in there have become DeploymentHandles.
        version: two specs with the same one need the same replicas (hash of code, init, actor options, environment).
        code_name: e.g. `module:Class`, for status pages.
    """

    name: str
    code: bytes
    init: bytes
    version: str
    options: DeploymentOptions
    code_name: str = ""


class ApplicationSpec(msgspec.Struct, frozen=True):
    """One application. Its ingress is the deployment of that name.

    Attributes:
        runtime_env: of all its replicas, below that of their own options.
        source: "imperative" (`serve.run`) or "declarative" (YAML, REST).
        config: what the YAML file or the REST request said, for status.
    """

    name: str
    route_prefix: str | None
    ingress: str
    deployments: list[DeploymentSpec]
    runtime_env: dict[str, Any] = {}
    source: str = "imperative"
    config: dict[str, Any] | None = None
    external_scaler: bool = False


class ReplicaReady(msgspec.Struct, frozen=True):
    """What a replica answers to `start`: where it listens (see `published.Target`), and what status pages show."""

    node: str
    unix: str
    host: str
    port: int
    pid: int
    node_ip: str
    worker_id: str
    log_file: str
    zone: str = ""
    docs_path: str | None = None
    has_check: bool = False
    """Whether the user's class defines `check_health`."""
