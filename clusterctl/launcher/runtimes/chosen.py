"""Chooses the runtime of a cluster."""

from __future__ import annotations

from clusterctl.spec.definition import ClusterSpec, EngineRuntime, RayRuntime

from .engine import Engine
from .protocol import NodeRuntime
from .ray import Ray

_RUNTIMES: dict[type[EngineRuntime | RayRuntime], NodeRuntime] = {EngineRuntime: Engine(), RayRuntime: Ray()}


def runtime_of(spec: ClusterSpec) -> NodeRuntime:
    """The runtime that a spec names."""
    return _RUNTIMES[type(spec.runtime)]
