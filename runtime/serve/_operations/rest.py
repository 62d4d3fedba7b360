"""The requests of Ray Serve's REST API, answered by a program that is connected to the cluster."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import runtime
from runtime.serve import api
from runtime.serve._controller import connection
from runtime.serve._core.states import ApplicationStatus
from runtime.serve.exceptions import RayServeException
from runtime.serve.schema import APIType, ScaleDeploymentRequest, ServeDeploySchema, ServeInstanceDetails

log = logging.getLogger(__name__)
APPLICATIONS = "/api/serve/applications/"
_SCALE = re.compile(r"/api/v1/applications/([^/]+)/deployments/([^/]+)/scale")
_PRIVATE = ("host", "port", "grpc_port", "message")
_PRIVATE_HTTP = ("root_url", "ssl_keyfile_password")


@dataclass(frozen=True, slots=True)
class Answer:
    """`body`: JSON if it is no string."""

    status: int
    body: Any = ""

    @property
    def text(self) -> str:
        """The body as it is sent."""
        return self.body if isinstance(self.body, str) else json.dumps(self.body, default=str)

    @property
    def content_type(self) -> str:
        """Of the body."""
        return "text/plain" if isinstance(self.body, str) else "application/json"


def answer(method: str, path: str, query: Mapping[str, str], body: bytes) -> Answer:
    """Answers a request. It blocks until the controller has accepted it, or for DELETE until everything has ended."""
    try:
        if path.rstrip("/") == APPLICATIONS.rstrip("/"):
            if method == "GET":
                return get_applications(query.get("api_type", ""))
            if method == "PUT":
                return put_applications(json.loads(body))
            if method == "DELETE":
                api.shutdown()
                return Answer(200)
        found = _SCALE.fullmatch(path)
        if found and method == "POST":
            return scale(found[1], found[2], json.loads(body))
    except json.JSONDecodeError as error:
        return Answer(400, f"The body is no JSON: {error}")
    except Exception as error:
        log.exception("%s %s failed.", method, path)
        return Answer(503, f"Serving does not answer: {error}")
    return Answer(404, f"There is nothing at {method} {path}.")


def get_applications(api_type: str = "") -> Answer:
    """Everything that is served; `api_type`: applications of that kind only."""
    kinds = [kind.value for kind in APIType if kind is not APIType.UNKNOWN]
    if api_type and api_type.lower() not in kinds:
        return Answer(400, f"Invalid 'api_type' value: '{api_type}'. Must be one of: {', '.join(kinds)}")
    controller = connection.find()
    if controller is None:
        return Answer(200, ServeInstanceDetails.get_empty_schema_dict())
    details = runtime.get(controller.details.remote(), timeout=connection.TIMEOUT_S)
    return Answer(200, shown(details, api_type.lower()))


def put_applications(values: Any) -> Answer:
    """Deploys a configuration, and deletes the declared applications that it does not name."""
    try:
        config = ServeDeploySchema.model_validate(values)
    except (ValueError, TypeError) as error:
        return Answer(400, str(error))
    try:
        deploy(config)
    except RayServeException as error:
        return Answer(400, str(error))
    return Answer(200)


def deploy(config: ServeDeploySchema) -> None:
    """Returns once the controller has accepted it.

    Raises:
        RayServeException: it contradicts what is deployed.
    """
    options: Any = config.controller_options
    controller = connection.connect(options.runtime_env if options is not None else None)
    connection.ask(controller.deploy_config.remote(config.model_dump(exclude_unset=True)))


def scale(app: str, deployment: str, values: Any) -> Answer:
    """Sets the number of replicas of a deployment whose application has `external_scaler_enabled`."""
    try:
        wanted = ScaleDeploymentRequest.model_validate(values)
    except (ValueError, TypeError) as error:
        return Answer(400, {"error": f"Invalid request body: {error}"})
    controller = connection.find()
    if controller is None:
        return Answer(503, {"error": "Serve controller is not available"})
    details = runtime.get(controller.details.remote(), timeout=connection.TIMEOUT_S)
    found = details["applications"].get(app)
    if found is None or deployment not in found["deployments"]:
        return Answer(404, {"error": "Application or Deployment not found"})
    if found["status"] == ApplicationStatus.DELETING.value:
        return Answer(412, {"error": "Deployment is deleted"})
    try:
        connection.ask(controller.set_replicas.remote(app, deployment, wanted.target_num_replicas))
    except RayServeException as error:
        return Answer(412, {"error": str(error)})
    return Answer(200, {"message": "Scaling request received. Deployment will get scaled asynchronously."})


def shown(details: Mapping[str, Any], source: str = "") -> dict[str, Any]:
    """What the controller tells of everything, in the shape of Ray's REST API.

    Args:
        source: "imperative" or "declarative"; "": applications of both kinds.
    """
    applications = {
        name: app for name, app in details["applications"].items() if not source or app["source"] == source
    }
    for app in applications.values():
        for deployment in app["deployments"].values():
            deployment["recent_dead_replicas"] = []
    proxies = {
        node: {key: value for key, value in each.items() if key not in _PRIVATE}
        for node, each in details["proxies"].items()
    }
    return {
        **details,
        "http_options": {
            key: each for key, each in details["http_options"].items() if key not in _PRIVATE_HTTP
        },
        "proxies": proxies,
        "applications": applications,
        "target_groups": _target_groups(details),
    }


def _target_groups(details: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Where a load balancer may send requests: the ingresses that are healthy."""
    healthy = [each for each in details["proxies"].values() if each["status"] == "HEALTHY"]
    groups = []
    for protocol, port in (("HTTP", "port"), ("gRPC", "grpc_port")):
        targets = [
            {"ip": each["node_ip"], "port": each[port], "instance_id": "", "name": each["actor_name"]}
            for each in healthy
            if each[port]
        ]
        if targets:
            groups.append({"targets": targets, "route_prefix": "/", "protocol": protocol, "app_name": ""})
    return groups
