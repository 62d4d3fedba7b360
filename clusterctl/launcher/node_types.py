"""The spec's node types as the autoscaler's, and hashes that say what a change of the spec touches. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from autoscaler.config import HASH_VERSION, AutoscalerConfig, Budgets, Cause, Consolidation
from autoscaler.provider import MachineTags, NodeType
from clusterctl.spec import ray_start
from clusterctl.spec.definition import ClusterSpec
from clusterctl.spec.load import cluster_limit, worker_limit, zones
from clusterctl.spec.node_dir import node_dir

from .containers import container_of
from .plan import Change


def node_types(spec: ClusterSpec, defaults: Mapping[str, float]) -> tuple[NodeType, ...]:
    """All node types.

    Args:
        defaults: what a machine brings when its type says nothing; resources that a type leaves out and that
        every
            machine has ("memory") come from here too.
    """
    return tuple(_node_type(spec, name, defaults) for name in spec.available_node_types)


def head_type(spec: ClusterSpec, defaults: Mapping[str, float]) -> NodeType:
    """The head's node type."""
    return next(kind for kind in node_types(spec, defaults) if kind.name == spec.head_node_type)


def _node_type(spec: ClusterSpec, name: str, defaults: Mapping[str, float]) -> NodeType:
    kind = spec.available_node_types[name]
    is_head = name == spec.head_node_type
    start = ray_start.parse_start(spec.head_start_ray_commands if is_head else spec.worker_start_ray_commands)
    resources = {**defaults, **start.resources, **kind.resources}
    return NodeType(
        name=name,
        resources=resources,
        labels={**start.labels, **kind.labels},
        min_workers=kind.min_workers,
        max_workers=worker_limit(spec, name),
        idle_timeout_s=kind.idle_timeout_s,
        node_config=dict(kind.node_config),
        spot=kind.spot,
        zones=zones(spec, name),
        max_price=kind.max_price,
        setup=_worker_commands(spec, name),
    )


def _worker_commands(spec: ClusterSpec, name: str) -> dict[str, list[str]]:
    """The commands of workers of the type. As with Ray, a type's own are instead of all that set up the others."""
    kind = spec.available_node_types[name]
    common, own = spec.setup_commands, spec.worker_setup_commands
    if kind.worker_setup_commands is not None:
        common, own = [], kind.worker_setup_commands
    first = kind.initialization_commands
    return {
        "initialization_commands": list(spec.initialization_commands if first is None else first),
        "setup_commands": list(common),
        "worker_setup_commands": list(own),
    }


def autoscaler_config(
    spec: ClusterSpec, cluster_id: str, defaults: Mapping[str, float], log_dir: str
) -> AutoscalerConfig:
    """What the autoscaler is told of a spec."""
    return AutoscalerConfig(
        cluster_id=cluster_id,
        cluster_name=spec.cluster_name,
        node_types=node_types(spec, defaults),
        head_type=spec.head_node_type,
        max_workers=cluster_limit(spec),
        upscaling_speed=spec.upscaling_speed,
        idle_timeout_s=spec.idle_timeout_minutes * 60,
        config_hashes={name: worker_hash(spec, name) for name in spec.available_node_types},
        log_dir=log_dir,
        budgets=_budgets(spec),
        consolidation=_consolidation(spec),
    )


def _budgets(spec: ClusterSpec) -> Budgets:
    given = spec.budgets
    by_cause = {cause: getattr(given.max_disrupted_by, cause.value, None) for cause in Cause}
    return Budgets(
        max_hourly_price=given.max_hourly_price,
        max_disrupted=given.max_disrupted,
        max_disrupted_by={cause: most for cause, most in by_cause.items() if most is not None},
    )


def _consolidation(spec: ClusterSpec) -> Consolidation | None:
    given = spec.consolidation
    return None if given is None else Consolidation(given.after_minutes * 60, given.max_used)


def worker_hash(spec: ClusterSpec, name: str) -> str:
    """Changes when workers of the type would be made differently; not when only their numbers change, or where they are
    bought (spot, zones, max_price): those that run are as good as the next."""
    kind = spec.available_node_types[name]
    container = container_of(spec, name, is_head=False)
    digest = _digest(
        [
            spec.provider.of_node,
            spec.runtime,
            container.digest if container else "",
            kind.resources,
            kind.labels,
            kind.node_config,
            spec.file_mounts,
            spec.rsync_exclude,
            spec.rsync_filter,
            _worker_commands(spec, name),
            spec.worker_start_ray_commands,
            *filter(None, [node_dir(spec, name)]),
        ]
    )
    return f"{HASH_VERSION}-{digest}"


def head_change(before: ClusterSpec, after: ClusterSpec) -> Change:
    """What a new spec means for a head that was made by another."""
    for change, parts in ((Change.MACHINE, _machine), (Change.RESTART, _daemons), (Change.SETUP, _setup)):
        if parts(before) != parts(after):
            return change
    return Change.NOTHING


def head_hash(spec: ClusterSpec) -> str:
    """Changes when the head would be made differently."""
    return _digest([_machine(spec), _daemons(spec), _setup(spec)])


def _machine(spec: ClusterSpec) -> list[object]:
    """What decides the head's machine."""
    kind = spec.available_node_types[spec.head_node_type]
    container = container_of(spec, spec.head_node_type, is_head=True)
    return [
        spec.provider.of_node,
        spec.runtime,
        spec.provider.of_head,
        spec.head_node_type,
        kind.node_config,
        container.digest if container else "",
        *filter(None, [node_dir(spec, spec.head_node_type)]),
    ]


def _daemons(spec: ClusterSpec) -> list[object]:
    """What the head's daemons are started with."""
    kind = spec.available_node_types[spec.head_node_type]
    return [spec.ports, kind.resources, kind.labels, spec.head_start_ray_commands]


def _setup(spec: ClusterSpec) -> list[object]:
    """What is done on the head's machine before they are started."""
    return [
        spec.file_mounts,
        spec.rsync_exclude,
        spec.rsync_filter,
        spec.initialization_commands,
        spec.setup_commands,
        spec.head_setup_commands,
    ]


def tags(spec: ClusterSpec, cluster_id: str, name: str = "") -> dict[str, str]:
    """The tags of workers of a type; "": of the head's machine."""
    return {
        MachineTags.CLUSTER_ID: cluster_id,
        MachineTags.CLUSTER_NAME: spec.cluster_name,
        MachineTags.ROLE: MachineTags.WORKER if name else MachineTags.HEAD,
        MachineTags.CONFIG_HASH: worker_hash(spec, name) if name else head_hash(spec),
        MachineTags.HASH_VERSION: HASH_VERSION,
    }


def _digest(parts: object) -> str:
    return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()[:16]
