"""The text of what `up` is about to do, what it costs, and what changed. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clusterctl.launcher.costs import Costs, Row
from clusterctl.launcher.plan import Step
from clusterctl.output import table


def render(name: str, steps: Sequence[Step], costs: Costs | None, changes: Sequence[str]) -> list[str]:
    """All lines. `costs`: None when nothing is made that could cost something."""
    if not steps:
        return ["nothing to do: the cluster is up as the YAML says"]
    lines = [f"cluster '{name}'"]
    lines += [f"  {number}. {step.describe()}" for number, step in enumerate(steps, 1)]
    if changes:
        lines += ["what the YAML says otherwise than before", *(f"  {change}" for change in changes)]
    return lines + (costs_lines(costs) if costs is not None else [])


def as_builtins(
    name: str, steps: Sequence[Step], costs: Costs | None, changes: Sequence[str]
) -> dict[str, Any]:
    """The same for programs."""
    value: dict[str, Any] = {
        "cluster": name,
        "steps": [step.describe() for step in steps],
        "changes": list(changes),
    }
    return value if costs is None else {**value, **costs_as_builtins(costs)}


def costs_as_builtins(costs: Costs) -> dict[str, Any]:
    """Machines and prices for programs."""
    return {
        "costs": {
            "is_free": costs.is_free,
            "per_hour_now": round(costs.now, 4),
            "per_hour_at_most": round(costs.most, 4),
            "unknown": list(costs.unknown),
            "prices": costs.source,
            "nodes": [
                {
                    "role": row.role,
                    "node_type": row.node_type,
                    "count": row.count,
                    "at_most": row.most,
                    "zone": row.zone,
                    "market": row.market,
                    "price": row.price,
                }
                for row in costs.rows
            ],
        }
    }


def changes(before: Mapping[str, Any], after: Mapping[str, Any], path: str = "") -> list[str]:
    """What differs between two specs as plain values: `max_workers: 2 -> 5`."""
    found = []
    for key in [*before, *(key for key in after if key not in before)]:
        here = f"{path}.{key}" if path else key
        old, new = before.get(key), after.get(key)
        if old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            found += changes(old, new, here)
        else:
            found.append(f"{here}: {_short(old)} -> {_short(new)}")
    return found


def _short(value: object) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def costs_lines(costs: Costs, without_prices: bool = False) -> list[str]:
    """Machines and prices. `without_prices`: nobody was asked for them."""
    header: tuple[str, ...] = ("node type", "role", "now", "at most")
    if not costs.is_free:
        header += ("zone", "market", "per hour each")
    rows = [_cells(row, costs.is_free) for row in costs.rows]
    lines = ["machines", *(f"  {line}" for line in table(header, rows))]
    if without_prices:
        return lines
    if costs.is_free:
        return [*lines, "nothing is paid for these machines by the hour"]
    beyond = f", and what {', '.join(costs.unknown)} costs, which is not known" if costs.unknown else ""
    lines.append(f"per hour {money(costs.now)} now, {money(costs.most)} at most{beyond}")
    return [*lines, f"prices: {costs.source}"] if costs.source else lines


def _cells(row: Row, is_free: bool) -> tuple[object, ...]:
    cells: tuple[object, ...] = (row.node_type, row.role, row.count, row.most)
    if is_free:
        return cells
    if not row.is_offered:
        return (*cells, "", "", "no offer in the allowed zones and prices")
    price = "price unknown" if row.price is None else money(row.price)
    return (*cells, row.zone, row.market, price)


def money(amount: float) -> str:
    """Dollars; small amounts with the digits that matter."""
    return f"${amount:.2f}" if amount >= 1 or not amount else f"${amount:.4f}"
