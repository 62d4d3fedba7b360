"""Everything about what is served, as plain values with the names of Ray's REST API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from runtime.serve._core.fleet import Fleet
from runtime.serve._core.ingresses import Ingress
from runtime.serve._core.replica import Replica
from runtime.serve.config import ProxyLocation

if TYPE_CHECKING:
    from runtime.serve._core.controller import App, ServeController


def details(controller: ServeController, now: float) -> dict[str, Any]:
    """What `GET /api/serve/applications/` shows."""
    options = controller.ingresses.options
    http, grpc, location = options if options is not None else ({}, {}, ProxyLocation.EveryNode.value)
    return {
        "controller_info": {},
        "proxy_location": location,
        "http_options": http,
        "grpc_options": grpc,
        "proxies": {
            node: _ingress(controller, ingress) for node, ingress in controller.ingresses.by_node.items()
        },
        "applications": {name: _app(controller, app, now) for name, app in controller.apps.items()},
        "target_capacity": None,
    }


def _ingress(controller: ServeController, ingress: Ingress) -> dict[str, Any]:
    node = controller.world.nodes.get(ingress.node)
    return {
        "node_id": ingress.node,
        "node_ip": node.host if node is not None else None,
        "actor_name": ingress.actor_name,
        "status": ingress.status.value,
        "message": ingress.message,
        "worker_id": ingress.listens.get("worker_id"),
        "log_file_path": ingress.listens.get("log_file"),
        **{name: ingress.listens.get(name) for name in ("host", "port", "grpc_port")},
    }


def _app(controller: ServeController, app: App, now: float) -> dict[str, Any]:
    ingress = app.fleets.get(app.spec.ingress)
    return {
        "name": app.spec.name,
        "route_prefix": app.spec.route_prefix,
        "docs_path": ingress.docs_path if ingress is not None else None,
        "status": app.state.status.value,
        "message": app.state.message,
        "last_deployed_time_s": app.deployed_s,
        "deployed_app_config": app.spec.config,
        "source": app.spec.source,
        "external_scaler_enabled": app.spec.external_scaler,
        "ingress": app.spec.ingress,
        "deployments": {fleet.name: _deployment(controller, fleet, now) for fleet in app.all_fleets},
    }


def _deployment(controller: ServeController, fleet: Fleet, now: float) -> dict[str, Any]:
    options = fleet.spec.options
    shown = msgspec.structs.asdict(options)
    for private in ("router", "scaling_policy", "backpressure", "autoscaling"):
        del shown[private]
    return {
        "name": fleet.name,
        "status": fleet.state.status.value,
        "status_trigger": fleet.state.trigger.value,
        "message": fleet.message(now),
        "code": fleet.spec.code_name,
        "deployment_config": {"name": fleet.name, **shown, "autoscaling_config": options.autoscaling},
        "target_num_replicas": fleet.wanted,
        "required_resources": fleet.demand,
        "queued_requests": fleet.scaler.history.last.queued if fleet.scaler is not None else None,
        "ongoing_requests": fleet.scaler.history.last.running if fleet.scaler is not None else None,
        "replicas": [_replica(controller, replica) for replica in fleet.replicas.values()],
    }


def _replica(controller: ServeController, replica: Replica) -> dict[str, Any]:
    ready = replica.record.ready
    node = controller.world.nodes.get(replica.node)
    return {
        "replica_id": replica.id,
        "state": replica.state.value,
        "actor_name": replica.record.actor_name,
        "node_id": replica.node or None,
        "node_ip": node.host if node is not None else None,
        "pid": ready.pid if ready is not None else None,
        "worker_id": ready.worker_id if ready is not None else None,
        "log_file_path": ready.log_file if ready is not None else None,
        "start_time_s": replica.record.started_s,
        "rank": replica.record.rank,
    }
