"""Everything about what is served, as plain values with the names of Ray's REST API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from runtime.serve._core.apps import App
from runtime.serve._core.capacity import Capacity
from runtime.serve._core.creation import reserved
from runtime.serve._core.fleet import Fleet
from runtime.serve._core.ingresses import Ingress, Ingresses
from runtime.serve._core.replica import Replica
from runtime.serve._core.world import World
from runtime.serve.config import ProxyLocation


def details(
    apps: Mapping[str, App], ingresses: Ingresses, capacity: Capacity, world: World, now: float
) -> dict[str, Any]:
    """What `GET /api/serve/applications/` shows."""
    options = ingresses.options
    http, grpc, location = options if options is not None else ({}, {}, ProxyLocation.EveryNode.value)
    return {
        "controller_info": {},
        "proxy_location": location,
        "http_options": http,
        "grpc_options": grpc,
        "proxies": {node: _ingress(world, ingress) for node, ingress in ingresses.by_node.items()},
        "applications": {name: _app(world, app, now) for name, app in apps.items()},
        "target_capacity": capacity.percent,
    }


def _ingress(world: World, ingress: Ingress) -> dict[str, Any]:
    node = world.nodes.get(ingress.node)
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


def _app(world: World, app: App, now: float) -> dict[str, Any]:
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
        "deployments": {fleet.name: _deployment(world, fleet, now) for fleet in app.all_fleets},
    }


def _deployment(world: World, fleet: Fleet, now: float) -> dict[str, Any]:
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
        "required_resources": reserved(options),
        "queued_requests": fleet.scaler.history.last.queued if fleet.scaler is not None else None,
        "ongoing_requests": fleet.scaler.history.last.running if fleet.scaler is not None else None,
        "replicas": [_replica(world, replica) for replica in fleet.replicas.values()],
    }


def _replica(world: World, replica: Replica) -> dict[str, Any]:
    ready = replica.record.ready
    node = world.nodes.get(replica.node)
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
