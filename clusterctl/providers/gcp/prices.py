"""What machines cost per hour, in US dollars: list prices of us-central1 on demand, and factors for regions and spot.

A table that is written down by hand, not asked of the platform: it says when, is for plans and choices between offers
and no invoice, and leaves out disks, addresses, traffic and discounts. Spot prices change every month; here they are a
share of the list price. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

AS_OF = "2025-06"
"""Of the table."""
SOURCE = f"list prices of {AS_OF}, written down by hand; those of spot machines are estimates"

# Family -> price of a CPU and of a GiB of memory.
_FAMILIES: Mapping[str, tuple[float, float]] = {
    "e2": (0.021812, 0.002923),
    "n1": (0.031611, 0.004237),
    "n2": (0.031611, 0.004237),
    "n2d": (0.027502, 0.003686),
    "n4": (0.030821, 0.003505),
    "t2d": (0.027502, 0.003686),
    "c2": (0.033982, 0.004550),
    "c2d": (0.029563, 0.003959),
    "c3": (0.033980, 0.004560),
    "c3d": (0.029563, 0.003959),
    "m1": (0.034800, 0.005100),
    "g2": (0.024988, 0.002927),
    "a2": (0.031611, 0.004237),
    "a3": (0.029382, 0.002557),
}
# Of shared cores one pays for a part.
_WHOLE: Mapping[str, float] = {
    "e2-micro": 0.008376,
    "e2-small": 0.016751,
    "e2-medium": 0.033503,
    "f1-micro": 0.007600,
    "g1-small": 0.025700,
}
_ACCELERATORS: Mapping[str, float] = {
    "nvidia-tesla-k80": 0.45,
    "nvidia-tesla-p4": 0.60,
    "nvidia-tesla-p100": 1.46,
    "nvidia-tesla-v100": 2.48,
    "nvidia-tesla-t4": 0.35,
    "nvidia-l4": 0.56,
    "nvidia-tesla-a100": 2.934,
    "nvidia-a100-80gb": 3.93,
    "nvidia-h100-80gb": 9.80,
}
_REGIONS: Mapping[str, float] = {
    "us-central1": 1.0,
    "us-east1": 1.0,
    "us-west1": 1.0,
    "us-east4": 1.13,
    "us-west2": 1.2,
    "us-west4": 1.13,
    "europe-west1": 1.1,
    "europe-west2": 1.29,
    "europe-west3": 1.29,
    "europe-west4": 1.1,
    "asia-east1": 1.16,
    "asia-northeast1": 1.28,
    "asia-southeast1": 1.23,
    "australia-southeast1": 1.42,
}
_SPOT_SHARE = 0.35
_FAMILY = re.compile(r"([a-z]+\d+[a-z]*)-")
_CUSTOM_FAMILY = "n1"


def of_machine(
    machine_type: str,
    cpus: float,
    memory_gib: float,
    accelerators: Mapping[str, float],
    region: str,
    spot: bool,
) -> float | None:
    """A machine's price; None where the table does not say.

    Args:
        accelerators: kind -> how many, built in ones included.
    """
    whole = _WHOLE.get(machine_type)
    if whole is None:
        family = _FAMILY.match(machine_type)
        parts = _FAMILIES.get(family[1] if family else _CUSTOM_FAMILY)
        if parts is None:
            return None
        whole = cpus * parts[0] + memory_gib * parts[1]
    for kind, count in accelerators.items():
        if kind not in _ACCELERATORS:
            return None
        whole += count * _ACCELERATORS[kind]
    factor = _REGIONS.get(region)
    if factor is None:
        return None
    return round(whole * factor * (_SPOT_SHARE if spot else 1.0), 6)
