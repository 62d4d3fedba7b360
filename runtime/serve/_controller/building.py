"""Declared applications: what a configuration says, built in tasks, so that their code never runs in the controller."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import runtime
from runtime.serve._build import build
from runtime.serve._controller.starting import configure
from runtime.serve._core.requests import Configure
from runtime.serve._core.specs import ApplicationSpec
from runtime.serve.config import imported
from runtime.serve.deployment import Application
from runtime.serve.schema import (
    DeploymentSchema,
    HTTPOptionsSchema,
    LoggingConfig,
    ServeDeploySchema,
    gRPCOptionsSchema,
)


def read_config(config: Mapping[str, Any]) -> tuple[Configure, list[dict[str, Any]]]:
    """The options of the ingresses, and the applications with their defaults.

    Raises:
        ValueError: it is invalid.
    """
    parsed = ServeDeploySchema.model_validate(config)
    assert isinstance(parsed.http_options, HTTPOptionsSchema)
    assert isinstance(parsed.grpc_options, gRPCOptionsSchema)
    http, grpc = parsed.http_options.model_dump(), parsed.grpc_options.model_dump()
    start = configure(parsed.proxy_location, http, grpc)
    declared = []
    for each in parsed.applications or ():
        app = {
            "name": "default",
            "route_prefix": "/",
            "runtime_env": {},
            "args": {},
            "deployments": [],
            **each.model_dump(exclude_unset=True),
        }
        if app.get("logging_config") is None and parsed.logging_config is not None:
            app["logging_config"] = LoggingConfig.model_validate(parsed.logging_config).model_dump()
        declared.append(app)
    return start, declared


def announced(declared: Mapping[str, Any]) -> ApplicationSpec:
    """An application before it is built."""
    return ApplicationSpec(
        name=declared["name"],
        route_prefix=declared["route_prefix"],
        ingress="",
        deployments=[],
        source="declarative",
        config=dict(declared),
    )


async def built_in_task(declared: Mapping[str, Any]) -> ApplicationSpec:
    """Builds it with its own `runtime_env`.

    Raises:
        Exception: what its code raises.
    """
    # One call per process: a process that has imported the code would build its old version.
    task = runtime.remote(max_calls=1)(built).options(
        num_cpus=0, runtime_env=dict(declared["runtime_env"] or {}), max_retries=1
    )
    spec: ApplicationSpec = await task.remote(dict(declared))
    return spec


def built(declared: dict[str, Any]) -> ApplicationSpec:
    """Imports and builds an application in this process.

    Raises:
        ImportError: there is none at the import path.
        TypeError: what is there is no application and no function that returns one.
        ValueError: it has no deployment of a name in the configuration, or takes no arguments.
    """
    from runtime.serve.handle import DeploymentHandle

    return build(
        application(imported(declared["import_path"]), declared["args"] or {}, declared["import_path"]),
        declared["name"],
        declared["route_prefix"],
        DeploymentHandle,
        runtime_env=declared["runtime_env"],
        logging_config=declared.get("logging_config"),
        external_scaler=bool(declared.get("external_scaler_enabled")),
        source="declarative",
        config=declared,
        overrides=_overrides(declared["deployments"] or ()),
    ).spec


def application(found: Any, args: Mapping[str, Any], path: str) -> Application:
    """What is at an import path: an application, or a function that makes one of arguments. Of a function whose
    parameter has a pydantic model as its type, the arguments are made one.

    Raises:
        TypeError, ValueError: see `built`.
    """
    if isinstance(found, Application):
        if args:
            raise ValueError(f"{path} is an application and no function: it takes no args.")
        return found
    if not inspect.isfunction(found):
        raise TypeError(f"{path} is no application and no function that returns one, but {found!r}.")
    parameters = list(inspect.signature(found).parameters)
    if len(parameters) > 1:
        raise TypeError(f"{path} must have one parameter, for its args, not {', '.join(parameters)}.")
    if not parameters:
        if args:
            raise ValueError(f"{path} has no parameter: it takes no args.")
        made = found()
    else:
        model: Any = typing.get_type_hints(found).get(parameters[0])
        made = found(model.model_validate(args) if hasattr(model, "model_validate") else dict(args))
    if not isinstance(made, Application):
        raise TypeError(f"{path} returned {made!r}, not an application: it must return Deployment.bind(...).")
    return made


def _overrides(deployments: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {each["name"]: DeploymentSchema.model_validate(each).overrides() for each in deployments}
