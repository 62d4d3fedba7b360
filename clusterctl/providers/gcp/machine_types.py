"""What machines of a node type bring and cost, zone by zone. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clusterctl.providers import offers

from . import instances, prices

_ACCELERATOR_TYPES = {
    "nvidia-tesla-k80": "K80",
    "nvidia-tesla-p4": "P4",
    "nvidia-tesla-p100": "P100",
    "nvidia-tesla-v100": "V100",
    "nvidia-tesla-t4": "T4",
    "nvidia-l4": "L4",
    "nvidia-tesla-a100": "A100",
    "nvidia-a100-80gb": "A100",
    "nvidia-h100-80gb": "H100",
}
"""As nodes call them, and tasks that ask for one."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """A machine type with the accelerators that are added to it.

    Attributes:
        accelerators: short name -> how many, built in ones included.
    """

    machine_type: str
    cpus: float
    memory_mib: float
    accelerators: Mapping[str, int]

    @property
    def gpus(self) -> int:
        return sum(self.accelerators.values())

    def resources(self) -> dict[str, float]:
        """As users count them."""
        found = {"CPU": self.cpus, "memory": offers.memory(self.memory_mib)}
        if self.gpus:
            found["GPU"] = float(self.gpus)
        for kind in self.accelerators:
            if kind in _ACCELERATOR_TYPES:
                found[f"accelerator_type:{_ACCELERATOR_TYPES[kind]}"] = 1.0
        return found

    def parts(self) -> dict[str, float]:
        """What one pays for, and how much of it."""
        return prices.parts_of(self.machine_type, self.cpus, self.memory_mib / 1024, self.accelerators)


def hardware(listed: Sequence[Mapping[str, Any]], node_config: Mapping[str, Any]) -> dict[str, Hardware]:
    """Zone -> what a machine has there.

    Args:
        listed: the machine type as the zones list it.
    """
    out = {}
    for entry in listed:
        total = dict(instances.accelerators(node_config))
        for built_in in entry.get("accelerators", ()):
            kind = str(built_in["guestAcceleratorType"])
            total[kind] = total.get(kind, 0) + int(built_in["guestAcceleratorCount"])
        zone = str(entry["zone"]).rpartition("/")[2]
        out[zone] = Hardware(str(entry["name"]), float(entry["guestCpus"]), float(entry["memoryMb"]), total)
    return out


def region_of(zone: str) -> str:
    return zone.rpartition("-")[0]
