"""`serve.run` and what belongs to it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

import runtime
from runtime.serve._controller import connection
from runtime.serve._controller.starting import configure
from runtime.serve._core.specs import ApplicationSpec
from runtime.serve.config import (
    ControllerOptions,
    HTTPOptions,
    ProxyLocation,
    gRPCOptions,
)
from runtime.serve.deployment import (
    Application,
    Deployment,
    DeploymentChoices,
    check_route_prefix,
    made,
    merged,
)
from runtime.serve.schema import LoggingConfig, ServeStatus

if TYPE_CHECKING:
    from runtime.serve.handle import DeploymentHandle

log = logging.getLogger(__name__)
DEFAULT_APP = "default"

__all__ = [
    "Application",
    "Deployment",
    "RunTarget",
    "delete",
    "deployment",
    "get_app_handle",
    "get_deployment_handle",
    "run",
    "run_many",
    "shutdown",
    "shutdown_async",
    "start",
    "status",
]


def deployment(
    _func_or_class: Callable[..., Any] | None = None,
    name: str | None = None,
    **given: Unpack[DeploymentChoices],
) -> Any:
    """Makes a `Deployment` of a class or function, as a decorator with or without arguments.

    Args:
        name: unique in the application; default: that of the class or function.
        num_replicas: how many (default 1); "auto" scales from 1 to 100 by load.
        ray_actor_options: of the actor of each replica: num_cpus (default 1), num_gpus, memory, resources,
            accelerator_type, runtime_env, label_selector.
        placement_group_bundles: resources of a placement group for each replica, which runs in the first bundle; what
            it starts runs in the group, too. With `placement_group_strategy` (default PACK) and
            `placement_group_bundle_label_selector`.
        max_replicas_per_node: on one node.
        user_config: JSON that the method `reconfigure` gets, also when it changes, without a restart.
        max_ongoing_requests: how many requests a replica runs at one time (default 5).
        max_queued_requests: how many wait in one caller (default -1: any number); more are refused with
            `BackPressureError`, over HTTP as `backpressure_config` says.
        autoscaling_config: instead of `num_replicas`: see `AutoscalingConfig`.
        graceful_shutdown_timeout_s: how long a replica that stops may answer its requests (default 20).
        graceful_shutdown_wait_loop_s: without effect: replicas stop when their last request has ended.
        health_check_period_s, health_check_timeout_s: of `check_health` (defaults 10 and 30); a replica that fails
            three times in a row is replaced.
        logging_config: see `LoggingConfig`.
        request_router_config: see `RequestRouterConfig`.
        max_constructor_retry_count: the deployment fails after so many failed starts, or three per replica if that is
            less (default 20).
        max_surge_percent: how many replicas more than wanted there may be while versions change, in percent (default:
            half of them).
        rolling_update_percentage: without effect: replicas are replaced once others serve.

    Raises:
        ValueError, TypeError: an option is invalid.
        NotImplementedError: `gang_scheduling_config` or `deployment_actors` is given.
    """
    options = merged({}, given)

    def decorate(code: Callable[..., Any]) -> Deployment:
        return made(code, name, options)

    if _func_or_class is None:
        return decorate
    return decorate(_func_or_class)


@dataclass(frozen=True)
class RunTarget:
    """One application of `run_many`; see `run`."""

    target: Application
    name: str = DEFAULT_APP
    route_prefix: str | None = "/"
    logging_config: dict[str, Any] | LoggingConfig | None = None
    external_scaler_enabled: bool = False


def run(
    target: Application,
    blocking: bool = False,
    name: str = DEFAULT_APP,
    route_prefix: str | None = "/",
    logging_config: dict[str, Any] | LoggingConfig | None = None,
    _local_testing_mode: bool = False,
    external_scaler_enabled: bool = False,
    controller_options: dict[str, Any] | ControllerOptions | None = None,
) -> DeploymentHandle[Any]:
    """Runs an application, or updates the one of that name, and returns once it runs.

    Args:
        blocking: returns only when it is interrupted.
        route_prefix: of HTTP requests to it; None: none reach it.
        logging_config: of its deployments without one.
        _local_testing_mode: runs it in this process, without a cluster.
        external_scaler_enabled: its deployments are scaled by others.
        controller_options: of the controller, if this call creates it.

    Returns:
        A handle of its ingress deployment.

    Raises:
        TypeError: `target` is no application, or cannot be pickled.
        RuntimeError: a deployment could not be deployed; the message has the traceback of its code.
        RayServeException: another application has this route prefix.
    """
    one = RunTarget(target, name, route_prefix, logging_config, external_scaler_enabled)
    return run_many(
        [one], blocking, _local_testing_mode=_local_testing_mode, controller_options=controller_options
    )[0]


def run_many(
    targets: Sequence[RunTarget],
    blocking: bool = False,
    wait_for_ingress_deployment_creation: bool = True,
    wait_for_applications_running: bool = True,
    _local_testing_mode: bool = False,
    controller_options: dict[str, Any] | ControllerOptions | None = None,
) -> list[DeploymentHandle[Any]]:
    """Runs applications together; see `run`.

    Args:
        wait_for_ingress_deployment_creation: without effect: handles work before it.
        wait_for_applications_running: whether to return only once all of them run.
    """
    if not targets:
        raise ValueError("No applications are given.")
    for each in targets:
        _check(each)
    if _local_testing_mode:
        from runtime.serve._local_testing import run_locally

        return [run_locally(each.target, each.name) for each in targets]
    from runtime.serve.handle import DeploymentHandle

    options = ControllerOptions.model_validate(controller_options or {})
    controller = connection.connect(options.runtime_env)
    built = [built_spec(each) for each in targets]
    start = configure(None, None, None)
    names = [spec.name for spec in built]
    connection.ask(controller.deploy.remote(built, start, wait_for_applications_running), names)
    for spec in built:
        where = "" if spec.route_prefix is None else f" at {spec.route_prefix}"
        log.info("Application %s is deployed%s.", spec.name, where)
    handles: list[DeploymentHandle[Any]] = [DeploymentHandle(spec.ingress, spec.name) for spec in built]
    if blocking:
        wait_for_interrupt()
    return handles


def built_spec(target: RunTarget) -> ApplicationSpec:
    """What the controller gets of an application of this program."""
    from runtime.serve._build import build
    from runtime.serve.handle import DeploymentHandle

    config = target.logging_config
    return build(
        target.target,
        target.name,
        target.route_prefix,
        DeploymentHandle,
        runtime_env=dict(runtime.get_runtime_context().runtime_env or {}),
        logging_config=None if config is None else LoggingConfig.model_validate(config).model_dump(),
        external_scaler=target.external_scaler_enabled,
    ).spec


def start(
    proxy_location: str | ProxyLocation | None = None,
    http_options: dict[str, Any] | HTTPOptions | None = None,
    grpc_options: dict[str, Any] | gRPCOptions | None = None,
    logging_config: dict[str, Any] | LoggingConfig | None = None,
    controller_options: dict[str, Any] | ControllerOptions | None = None,
    **deprecated: Any,
) -> None:
    """Starts serving: the controller, and an ingress where `proxy_location` says (default: `EveryNode`). Options count
    until `shutdown`; later ones are ignored.

    Args:
        logging_config: checked, and without effect: deployments and applications have their own.

    Raises:
        RayServeException: the ingress cannot listen.
        ValueError: an option is invalid.
    """
    if deprecated:
        raise ValueError(f"serve.start has no option {', '.join(sorted(deprecated))}.")
    if logging_config is not None:
        LoggingConfig.model_validate(logging_config)
    asked = configure(proxy_location, http_options, grpc_options)
    options = ControllerOptions.model_validate(controller_options or {})
    connection.ask(connection.connect(options.runtime_env).start.remote(asked))


def delete(name: str, _blocking: bool = True) -> None:
    """Deletes an application, once its replicas have answered what they run.

    Raises:
        RayServeException: nothing is served.
    """
    connection.ask(connection.running().delete.remote([name], _blocking), [name])


def status() -> ServeStatus:
    """Of all applications, their deployments, and the ingresses."""
    controller = connection.find()
    if controller is None:
        return ServeStatus()
    return ServeStatus.of(runtime.get(controller.details.remote(), timeout=connection.TIMEOUT_S))


def shutdown() -> None:
    """Ends all applications, the ingresses and the controller."""
    local = sys.modules.get("runtime.serve._local_testing")
    if local is not None:
        local.stop_all()
    controller = connection.find()
    if controller is None:
        log.info("Nothing is served, so there is nothing to shut down.")
        return
    runtime.get(controller.shutdown.remote())
    with contextlib.suppress(runtime.exceptions.RayActorError):
        runtime.kill(controller)


async def shutdown_async() -> None:
    """See `shutdown`."""
    await asyncio.to_thread(shutdown)


def get_app_handle(name: str) -> DeploymentHandle[Any]:
    """A handle of the application's ingress deployment.

    Raises:
        RayServeException: there is no such application, or nothing is served.
    """
    from runtime.serve.exceptions import RayServeException
    from runtime.serve.handle import DeploymentHandle

    ingress = connection.ask(connection.running().find.remote(name))
    if ingress is None:
        raise RayServeException(f"Application {name!r} does not exist.")
    return DeploymentHandle(ingress, name)


def get_deployment_handle(
    deployment_name: str,
    app_name: str | None = None,
    _check_exists: bool = True,
    _record_telemetry: bool = True,
) -> DeploymentHandle[Any]:
    """A handle of a deployment.

    Args:
        app_name: its application; in a replica, default: that of the replica.

    Raises:
        RayServeException: there is no such deployment, nothing is served, or no application is named outside of one.
    """
    from runtime.serve.context import get_replica_context
    from runtime.serve.exceptions import RayServeException
    from runtime.serve.handle import DeploymentHandle

    if app_name is None:
        try:
            app_name = get_replica_context().app_name
        except RayServeException:
            raise RayServeException(
                "Outside of an application, get_deployment_handle needs app_name."
            ) from None
    if _check_exists and connection.ask(connection.running().find.remote(app_name, deployment_name)) is None:
        raise RayServeException(f"Application {app_name!r} has no deployment {deployment_name!r}.")
    return DeploymentHandle(deployment_name, app_name)


def wait_for_interrupt() -> None:
    """Until SIGINT or SIGTERM; then everything that is served ends."""
    ended = threading.Event()
    with contextlib.suppress(ValueError):  # not the main thread: the program's own handlers count
        signal.signal(signal.SIGTERM, lambda *_: ended.set())
    try:
        while not ended.wait(3600.0):
            pass
    except KeyboardInterrupt:
        pass
    shutdown()


def _check(target: RunTarget) -> None:
    from runtime.serve.exceptions import RayServeException

    if not target.name:
        raise RayServeException("The name of an application must be a non-empty string.")
    if "#" in target.name or "\0" in target.name:
        raise ValueError(f"The name of an application must not contain '#' or NUL: {target.name!r}.")
    if not isinstance(target.target, Application):
        raise TypeError(
            f"serve.run takes an application, which Deployment.bind() returns, not {target.target!r}."
        )
    check_route_prefix(target.route_prefix)
