"""Resource arithmetic in integers of 1/10 000 unit, so that 0.1 + 0.2 is 0.3 and nothing leaks.

A resource set is a plain `dict[str, int]` without zeros. "CPU", "GPU", "memory" (bytes) and "object_store_memory"
(bytes) have their own meaning; every other name is the user's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

UNIT = 10_000
"""Wire units per one of a resource."""
_MOST_UNITS = 2**63 - 1  # what the wire carries

Resources = dict[str, int]


def to_units(amounts: Mapping[str, float]) -> Resources:
    """User-facing floats -> wire units; zeros vanish.

    Raises:
        TypeError: a name is no string.
        ValueError: an amount is negative, infinite, finer than 0.0001, or more than can be counted.
    """
    out: Resources = {}
    for name, amount in amounts.items():
        if not isinstance(name, str):
            raise TypeError(f"The name of a resource must be a string, not {name!r}.")
        if amount < 0:
            raise ValueError(f"The quantity of resource {name} cannot be negative, and it is {amount}.")
        if not math.isfinite(amount):
            raise ValueError(f"The quantity of resource {name} must be finite, and it is {amount}.")
        units = round(amount * UNIT)
        if amount > 0 and units == 0:
            raise ValueError(
                f"The precision of the fractional quantity of resource {name} cannot go beyond 0.0001, and it is "
                f"{amount}."
            )
        if units > _MOST_UNITS:
            raise ValueError(
                f"The quantity of resource {name} cannot be more than {_MOST_UNITS // UNIT}, and it is {amount}."
            )
        if units:
            out[name] = units
    return out


def to_floats(units: Mapping[str, int]) -> dict[str, float]:
    """Wire units -> what users see."""
    return {name: amount / UNIT for name, amount in units.items()}


def fits(request: Mapping[str, int], available: Mapping[str, int]) -> bool:
    """Whether `available` covers all of `request`."""
    for name, amount in request.items():  # noqa: SIM110 - asked of every node, and a loop is twice as fast
        if available.get(name, 0) < amount:
            return False
    return True


def add(target: Resources, amounts: Mapping[str, int]) -> None:
    """target += amounts, in place."""
    for name, amount in amounts.items():
        total = target.get(name, 0) + amount
        if total:
            target[name] = total
        else:
            target.pop(name, None)


def subtract(target: Resources, amounts: Mapping[str, int]) -> None:
    """target -= amounts, in place; may go negative (a woken task takes its CPUs back)."""
    for name, amount in amounts.items():
        total = target.get(name, 0) - amount
        if total:
            target[name] = total
        else:
            target.pop(name, None)


def describe(
    units: Mapping[str, int],
    labels: Mapping[str, str] | None = None,
    fallbacks: Iterable[Mapping[str, str]] = (),
) -> str:
    """`{CPU: 1, GPU: 0.5} with labels {zone: a} or {zone: b}` for 1/10 000 units, a label selector and its fallbacks,
    names sorted."""
    parts = (f"{name}: {amount / UNIT:g}" for name, amount in sorted(units.items()) if amount)
    text = "{" + ", ".join(parts) + "}"
    if labels:
        text += " with labels " + " or ".join(_selector(one) for one in (labels, *fallbacks))
    return text


def _selector(labels: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in sorted(labels.items())) + "}"


def why_infeasible(labels: Mapping[str, str]) -> str:
    """Why no present node can ever hold the resources in `describe`."""
    if labels:
        return "No available node types can fulfill resource request with these labels"
    return "No available node types can fulfill resource request"
