"""What would keep machines from being made, found before any is. Pure: the answers of the platform are given."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from autoscaler.provider import NodeType, Problem

from . import instances
from .machine_types import Hardware

_FAMILY_METRICS = {
    "n2": "N2_CPUS",
    "n2d": "N2D_CPUS",
    "c2": "C2_CPUS",
    "c2d": "C2D_CPUS",
    "c3": "C3_CPUS",
    "c3d": "C3D_CPUS",
    "m1": "M1_CPUS",
    "a2": "A2_CPUS",
    "g2": "CPUS",
}
_CPUS_ANYWHERE, _GPUS_ANYWHERE = "CPUS_ALL_REGIONS", "GPUS_ALL_REGIONS"
"""Quotas of the project. New ones may have no GPU anywhere, whatever a region says."""
_GPU_METRICS = {
    "nvidia-tesla-k80": "NVIDIA_K80_GPUS",
    "nvidia-tesla-p4": "NVIDIA_P4_GPUS",
    "nvidia-tesla-p100": "NVIDIA_P100_GPUS",
    "nvidia-tesla-v100": "NVIDIA_V100_GPUS",
    "nvidia-tesla-t4": "NVIDIA_T4_GPUS",
    "nvidia-l4": "NVIDIA_L4_GPUS",
    "nvidia-tesla-a100": "NVIDIA_A100_GPUS",
    "nvidia-a100-80gb": "NVIDIA_A100_80GB_GPUS",
    "nvidia-h100-80gb": "NVIDIA_H100_GPUS",
}


def zones(
    node_type: NodeType, there: Mapping[str, Hardware], wanted: Sequence[str], region: str
) -> list[Problem]:
    """Whether the machine type is to be had."""
    kind = instances.machine_type(node_type.node_config)
    where = f"node type {node_type.name}"
    foreign = [zone for zone in node_type.zones if not zone.startswith(f"{region}-")]
    if foreign:
        return [
            Problem(
                f"{where}: zone {', '.join(foreign)} is not in {region}", "Name zones of provider.region."
            )
        ]
    if not any(zone in there for zone in wanted):
        some = ", ".join(sorted(there)[:5]) or "no zone"
        return [
            Problem(
                f"{where}: there is no machine type {kind} in {', '.join(wanted) or region}",
                f"Correct node_config.machineType or the zones; {some} has it."
                if there
                else "Correct node_config.machineType.",
            )
        ]
    return []


def service_account(project: Mapping[str, Any], named: str, head_config: Mapping[str, Any]) -> list[Problem]:
    """Whether the head can make workers."""
    if named != "default" or "serviceAccounts" in head_config or project.get("defaultServiceAccount"):
        return []
    return [
        Problem(
            f"project {project.get('name')} has no default service account, by which the head could make workers",
            "Name one as provider.service_account.",
        )
    ]


def accelerator(
    node_type: NodeType, kind: str, there: Collection[str], wanted: Sequence[str]
) -> list[Problem]:
    """Whether an accelerator is to be had in one of the wanted zones."""
    if any(zone in there for zone in wanted):
        return []
    some = ", ".join(sorted(there)[:5]) or "no zone"
    return [
        Problem(
            f"node type {node_type.name}: there is no accelerator {kind} in {', '.join(wanted)}",
            f"Correct guestAccelerators of node_config or the zones; {some} has it.",
        )
    ]


def needs(hardware: Hardware, count: int, spot: bool) -> dict[str, float]:
    """What so many machines take of the quotas of the region and of the project."""
    family = hardware.machine_type.partition("-")[0]
    cpus = hardware.cpus * count
    out = {_FAMILY_METRICS.get(family, "CPUS"): cpus, _CPUS_ANYWHERE: cpus, "INSTANCES": float(count)}
    if hardware.gpus:
        out[_GPUS_ANYWHERE] = float(hardware.gpus * count)
    for kind, each in hardware.accelerators.items():
        metric = _GPU_METRICS.get(kind)
        if metric:
            out[f"PREEMPTIBLE_{metric}" if spot else metric] = float(each * count)
    return out


def quotas(
    limited: Mapping[str, Any], least: Mapping[str, float], most: Mapping[str, float], name: str
) -> list[Problem]:
    """Whether the quotas of a region, or of the project, suffice.

    Args:
        least: what the head and all `min_workers` need, by metric.
        most: what all `max_workers` need.
    """
    out = []
    for quota in limited.get("quotas", ()):
        metric = str(quota.get("metric"))
        free = float(quota.get("limit", 0)) - float(quota.get("usage", 0))
        advice = f"Ask for more {metric} in {name} (IAM & Admin > Quotas), or ask for less."
        if least.get(metric, 0) > free:
            out.append(Problem(f"{least[metric]:g} {metric} are needed in {name}, {free:g} are left", advice))
        elif most.get(metric, 0) > free:
            what = f"all workers together need {most[metric]:g} {metric} in {name}, {free:g} are left"
            out.append(Problem(what, advice, fatal=False))
    return out
