"""Instance types: what a machine of a type brings. Pure: descriptions as `DescribeInstanceTypes` gives them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clusterctl.providers import offers

_QUOTAS = (
    (r"(a|c|d|h|i|m|r|t|z|im|is)\d", "L-1216C47A", "L-34B43A08"),
    (r"(g|gr|vt)\d", "L-DB2E81BA", "L-3819A6DF"),
    (r"p\d", "L-417A185B", "L-7212CCBC"),
    (r"inf\d", "L-1945791B", "L-B5D1601B"),
    (r"trn\d", "L-2C3B7624", "L-6B0D517C"),
    (r"f\d", "L-74FC7D96", "L-88CF9481"),
    (r"x\d", "L-7295265B", "L-E3A00192"),
    (r"dl\d", "L-6E869C2A", "L-85EED4F7"),
)
"""Families of types by their names, and the quotas of vCPUs that they count towards: on-demand, spot."""


@dataclass(frozen=True, slots=True)
class InstanceType:
    """One instance type.

    Attributes:
        resources: what a node on it brings, as users count it.
        architecture: x86_64 or arm64.
    """

    name: str
    vcpus: int
    resources: Mapping[str, float]
    architecture: str
    has_gpus: bool = False

    def quota(self, spot: bool) -> str:
        """The code of the quota that its vCPUs count towards; "" when unknown."""
        for pattern, on_demand, on_spot in _QUOTAS:
            if re.match(pattern, self.name):
                return on_spot if spot else on_demand
        return ""


def read(description: Mapping[str, Any]) -> InstanceType:
    """The type that is described."""
    vcpus = int(description["VCpuInfo"]["DefaultVCpus"])
    memory = offers.memory(description["MemoryInfo"]["SizeInMiB"])
    resources = {"CPU": float(vcpus), "memory": memory}
    gpus = [
        gpu for gpu in description.get("GpuInfo", {}).get("Gpus", ()) if gpu.get("Manufacturer") == "NVIDIA"
    ]
    if gpus:
        resources["GPU"] = float(sum(int(gpu["Count"]) for gpu in gpus))
        resources[f"accelerator_type:{gpus[0]['Name'].replace(' ', '-')}"] = 1.0
    architectures = description.get("ProcessorInfo", {}).get("SupportedArchitectures", ())
    return InstanceType(
        name=str(description["InstanceType"]),
        vcpus=vcpus,
        resources=resources,
        architecture="arm64" if "arm64" in architectures else "x86_64",
        has_gpus=bool(gpus),
    )
