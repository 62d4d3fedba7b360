"""From applications in code to a configuration that deploys them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runtime.serve._build import build
from runtime.serve.config import imported
from runtime.serve.deployment import Application, Deployment
from runtime.serve.handle import DeploymentHandle
from runtime.serve.schema import LoggingConfig, ServeDeploySchema


def built_config(import_paths: Sequence[str], services: Sequence[str], reflects: bool) -> dict[str, Any]:
    """A configuration of applications that are called app1, app2, ... A single one has the route prefix "/".

    Raises:
        ImportError: there is none at an import path.
        TypeError: what is there is no application.
        ValueError: an option of a deployment has no form in JSON.
    """
    applications = []
    for index, path in enumerate(import_paths):
        found = imported(path)
        if not isinstance(found, Application):
            raise TypeError(
                f"{path} is no application, but {found!r}: a function that returns one is deployed by a configuration "
                "with its import_path and args."
            )
        name = f"app{index + 1}"
        made = build(found, name, None, DeploymentHandle)
        applications.append(
            {
                "name": name,
                "route_prefix": "/" if len(import_paths) == 1 else f"/{name}",
                "import_path": path,
                "runtime_env": {},
                "deployments": [_options(name, each) for name, each in made.deployments.items()],
            }
        )
    config = {
        "proxy_location": "EveryNode",
        "http_options": {"host": "0.0.0.0", "port": 8000},
        "grpc_options": {
            "port": 9000,
            "grpc_servicer_functions": list(services),
            "enable_reflection": reflects,
        },
        "logging_config": LoggingConfig().model_dump(),
        "applications": applications,
    }
    ServeDeploySchema.model_validate(config)
    return config


def _options(name: str, deployment: Deployment) -> dict[str, Any]:
    """The options that the code gives, as JSON."""
    given = {key: _json(value) for key, value in deployment._given.items()}
    if given.get("num_replicas", 1) is None:
        del given["num_replicas"]
    return {"name": name, **given}


def _json(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        value = value.model_dump(exclude_unset=True)
    if isinstance(value, dict):
        return {str(key): _json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_json(each) for each in value]
    if isinstance(value, bytes):
        raise ValueError("A configuration cannot have a user_config of bytes: use JSON.")
    if callable(value):
        return f"{value.__module__}:{value.__qualname__}"
    return getattr(value, "value", value)
