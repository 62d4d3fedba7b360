"""What Google's machines cost per hour, in US dollars: one pays for CPUs, memory and accelerators.

The Cloud Billing catalogue tells the prices of these. Where it is not to be had a table that comes along serves, with
factors for regions and spot machines. Disks, addresses, traffic and discounts are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from autoscaler.provider import ON_DEMAND, SPOT
from clusterctl.providers.prices import Prices

Json = dict[str, Any]
_FAMILY = re.compile(r"([a-z]+\d+[a-z]*)-")
_CUSTOM_FAMILY = "n1"
_SHARED_CPUS = {"e2-micro": 0.25, "e2-small": 0.5, "e2-medium": 1.0}
"""Of shared cores one pays for a part."""
_MARKETS = {"OnDemand": ON_DEMAND, "Preemptible": SPOT}
_HOURLY = ("h", "GiBy.h")
_SPOT_WORDS = re.compile(r"^(Spot )?Preemptible |attached to Spot Preemptible VMs ")
_GPU = re.compile(r"Nvidia (.+) GPU running in ")
_PART = re.compile(r"(.+?)(?: Predefined| AMD| Arm)?(?: Instance)? (Core|Ram) running in ")
_PARTS = {"Core": "cpu", "Ram": "memory"}
_FAMILIES = {"Compute optimized": "c2", "Memory-optimized": "m1"}
"""What the catalogue calls families by another name than their machine types."""


class Table(msgspec.Struct, frozen=True):
    """The table that comes along.

    Attributes:
        as_of: when it was written down.
        parts: what one pays for -> its price in us-central1, on demand.
        regions, spot_share: factors.
    """

    as_of: str
    source: str
    parts: dict[str, float]
    regions: dict[str, float]
    spot_share: float


@cache
def table() -> Table:
    """The table."""
    return msgspec.json.decode(resources.files(__package__).joinpath("prices.json").read_bytes(), type=Table)


def of_table(parts: Mapping[str, float], region: str, market: str) -> float | None:
    """What so much of each part costs by the table; None where it does not say. Pure."""
    known = table()
    if region not in known.regions or not parts.keys() <= known.parts.keys():
        return None
    listed = sum(amount * known.parts[name] for name, amount in parts.items()) * known.regions[region]
    return round(listed * (known.spot_share if market == SPOT else 1.0), 6)


def parts_of(
    machine_type: str, cpus: float, memory_gib: float, accelerators: Mapping[str, float]
) -> dict[str, float]:
    """What one pays for, and how much of it. Pure.

    Args:
        accelerators: kind -> how many, built in ones included.
    """
    if machine_type in table().parts:
        return {machine_type: 1.0, **accelerators}
    match = _FAMILY.match(machine_type)
    family = match[1] if match else _CUSTOM_FAMILY
    shared = _SHARED_CPUS.get(machine_type, cpus)
    return {f"{family} cpu": shared, f"{family} memory": memory_gib, **accelerators}


def of_catalog(skus: Iterable[Mapping[str, Any]], region: str) -> dict[str, float]:
    """The prices of "MARKET PART" in a region, by entries of the catalogue. Those of commitments, sole tenants and
    custom machines are none of ours. Pure."""
    found = {}
    for sku in skus:
        market = _MARKETS.get(sku["category"]["usageType"])
        part = _part_of(sku["description"])
        if market and part and region in sku["serviceRegions"] and sku["pricingInfo"]:
            expression = sku["pricingInfo"][-1]["pricingExpression"]
            if expression["usageUnit"] in _HOURLY:
                price = expression["tieredRates"][-1]["unitPrice"]
                found[f"{market} {part}"] = int(price.get("units", 0)) + price.get("nanos", 0) / 1e9
    return found


def _part_of(description: str) -> str:
    """The part that an entry of the catalogue is about, as in `parts_of`; "": another one."""
    words = _SPOT_WORDS.sub("", description)
    if match := _GPU.match(words):
        return f"nvidia-{match[1].lower().replace(' ', '-')}".replace("tesla-a100-80gb", "a100-80gb")
    if match := _PART.match(words):
        family = _FAMILIES.get(match[1], match[1].lower())
        return f"{family} {_PARTS[match[2]]}" if _FAMILY.fullmatch(f"{family}-") else ""
    return ""


class GcpPrices:
    """The prices of one region.

    Args:
        place: where the catalogue is, and the region.
        skus: the catalogue's entries.
        folder: where its prices are kept.
    """

    def __init__(
        self, place: tuple[str, str], skus: Callable[[], Iterable[Mapping[str, Any]]], folder: Path
    ) -> None:
        self._region = place[1]
        self._topic = " ".join(filter(None, place))
        self._told = Prices(folder / "gcp-prices.json", lambda _: of_catalog(skus(), self._region))

    def of(self, parts: Mapping[str, float], market: str) -> float | None:
        """What so much of each part costs per hour; None where nobody knows."""
        told = self._told.of(self._topic)
        try:
            return round(sum(amount * told[f"{market} {name}"] for name, amount in parts.items()), 6)
        except KeyError:
            return of_table(parts, self._region, market)

    def source(self) -> str:
        """Where the prices came from, in words."""
        by_hand = (
            f"list prices of {table().as_of}, written down by hand; those of spot machines are estimates"
        )
        return self._told.source("Google's catalogue", by_hand)

    def files(self) -> tuple[Path, ...]:
        """Where the prices are kept."""
        return (self._told.file,)
