"""What machines of a node type bring and cost, zone by zone. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autoscaler.provider import ON_DEMAND, SPOT, NodeType, Offer

from . import instances, prices

_SEEN_SHARE = 0.95
"""Of a machine's memory its system keeps a part: what is found there is never less than this."""
_MEMORY_SHARE = 0.7
"""Of what a node finds it offers so much to tasks; the rest is for the object store and the daemons."""
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
        memory = int(self.memory_mib * _SEEN_SHARE * _MEMORY_SHARE) * 2**20
        found = {"CPU": self.cpus, "memory": float(memory)}
        if self.gpus:
            found["GPU"] = float(self.gpus)
        for kind in self.accelerators:
            if kind in _ACCELERATOR_TYPES:
                found[f"accelerator_type:{_ACCELERATOR_TYPES[kind]}"] = 1.0
        return found

    def price(self, region: str, spot: bool) -> float | None:
        return prices.of_machine(
            self.machine_type, self.cpus, self.memory_mib / 1024, self.accelerators, region, spot
        )


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


def offers(node_type: NodeType, there: Mapping[str, Hardware], zones: Sequence[str]) -> list[Offer]:
    """The ways to get a machine of the type, in the zones given, the first one first; spot before on-demand.

    With a `max_price` whatever has no known price is left out: nobody can say that it is below.
    """
    out = []
    markets = (SPOT, ON_DEMAND) if node_type.spot else (ON_DEMAND,)
    spot_anyway = instances.is_spot(node_type.node_config)
    for market in markets:
        for zone in zones:
            if zone not in there:
                continue
            found = there[zone]
            price = found.price(region_of(zone), market == SPOT or spot_anyway)
            limit = node_type.max_price
            if limit is not None and (price is None or price > limit):
                continue
            out.append(Offer(zone, market, price or 0.0, {**found.resources(), **node_type.resources}))
    return out


def region_of(zone: str) -> str:
    return zone.rpartition("-")[0]
