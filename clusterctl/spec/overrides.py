"""Another name and other limits for a cluster than its YAML says: what options of the command line mean. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from clusterctl.errors import UsageProblem

from .definition import ClusterSpec, NodeType
from .load import cluster_limit, worker_limit

MOST = "--max-workers"
LEAST = "--min-workers"
_EXAMPLE = "8 or gpu=2"


def renamed(spec: ClusterSpec, name: str | None) -> ClusterSpec:
    """The spec as that of a cluster of another name.

    Raises:
        UsageProblem: it is no name for a cluster.
    """
    if name is None:
        return spec
    try:
        return msgspec.convert({**msgspec.to_builtins(spec), "cluster_name": name}, ClusterSpec)
    except msgspec.ValidationError:
        raise UsageProblem(
            f"'{name}' is no name for a cluster", "Take letters, digits, - and _, at most 63."
        ) from None


def resized(spec: ClusterSpec, most: Sequence[str] = (), least: Sequence[str] = ()) -> ClusterSpec:
    """The spec with other limits.

    Args:
        most: "8" for all workers together, "gpu=2" for those of a type, whose minimum gives way to it.
        least: "gpu=2" for a type; "2" where there is only one type of workers.

    Raises:
        UsageProblem: a limit cannot be read, or the limits contradict each other.
    """
    for limit in most:
        name, count = _count(limit, MOST)
        if not name:
            spec = msgspec.structs.replace(spec, max_workers=count)
            continue
        kind = _kind(spec, name, MOST)
        kind = msgspec.structs.replace(kind, max_workers=count, min_workers=min(kind.min_workers, count))
        spec = _with(spec, name, kind)
    for limit in least:
        name, count = _count(limit, LEAST)
        name = name or _only_type(spec)
        kind = msgspec.structs.replace(_kind(spec, name, LEAST), min_workers=count)
        spec = _with(spec, name, kind)
        if count > worker_limit(spec, name):
            raise UsageProblem(
                f"{LEAST} {limit}: node type '{name}' has at most {worker_limit(spec, name)} workers",
                f"Raise that as well: {MOST} {name}={count}.",
            )
    wanted = sum(kind.min_workers for kind in spec.available_node_types.values())
    if wanted > cluster_limit(spec):
        advice = f"Lower a type's maximum as well: {MOST} TYPE=N."
        if least:
            advice = f"Raise the cluster's maximum as well: {MOST} {wanted}."
        raise UsageProblem(
            f"{MOST} {cluster_limit(spec)}: the types' min_workers are {wanted} together", advice
        )
    return spec


def split(text: str, option: str, example: str) -> tuple[str, float]:
    """`gpu=4` -> ("gpu", 4.0); `4` -> ("", 4.0).

    Raises:
        UsageProblem: it is neither.
    """
    name, _, number = text.rpartition("=")
    try:
        value = float(number)
    except ValueError:
        raise _unreadable(text, option, example) from None
    if not (math.isfinite(value) and value >= 0):
        raise _unreadable(text, option, example)
    return name, value


def must_exist(name: str, known: Iterable[str], option: str) -> None:
    """Raises `UsageProblem` unless there is such a node type."""
    names = list(known)
    if name not in names:
        raise UsageProblem(
            f"{option}: there is no node type '{name}'", f"The cluster has {', '.join(names)}."
        )


def _count(limit: str, option: str) -> tuple[str, int]:
    name, number = split(limit, option, _EXAMPLE)
    if not number.is_integer():
        raise _unreadable(limit, option, _EXAMPLE)
    return name, int(number)


def _kind(spec: ClusterSpec, name: str, option: str) -> NodeType:
    must_exist(name, spec.available_node_types, option)
    return spec.available_node_types[name]


def _with(spec: ClusterSpec, name: str, kind: NodeType) -> ClusterSpec:
    return msgspec.structs.replace(spec, available_node_types={**spec.available_node_types, name: kind})


def _only_type(spec: ClusterSpec) -> str:
    """The type whose minimum a bare number means."""
    names = [
        name
        for name, kind in spec.available_node_types.items()
        if name != spec.head_node_type or kind.max_workers
    ]
    if len(names) == 1:
        return names[0]
    if not names:
        raise UsageProblem(f"{LEAST}: the cluster has no node type for workers", "Add one to the YAML.")
    raise UsageProblem(
        f"{LEAST}: workers of which type? The cluster has {', '.join(names)}",
        f"Say which, for example {LEAST} {names[0]}=1.",
    )


def _unreadable(text: str, option: str, example: str) -> UsageProblem:
    return UsageProblem(f"{option} {text} cannot be read", f"For example {option} {example}.")
