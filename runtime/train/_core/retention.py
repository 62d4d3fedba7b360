"""Which checkpoints are kept. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def to_delete(
    committed: Sequence[tuple[str, Mapping[str, Any]]], num_to_keep: int, attribute: str | None, order: str
) -> list[str]:
    """The names of those that are not kept.

    Args:
        committed: names and metrics, oldest first. The last one is kept in any case.
        num_to_keep: how many.
        attribute: the metric that ranks them; None: the later the better. Those without it are the worst.
        order: "max" or "min".
    """
    sign = 1 if order == "max" else -1

    def score(index: int) -> tuple[float, int]:
        value = committed[index][1].get(attribute) if attribute is not None else 0.0
        is_number = isinstance(value, int | float) and value == value
        return (sign * float(value) if is_number and value is not None else float("-inf")), index

    ranked = sorted(range(len(committed) - 1), key=score, reverse=True)
    best = sorted(range(len(committed)), key=score, reverse=True)[:num_to_keep]
    kept = {*best, len(committed) - 1}
    return [committed[index][0] for index in sorted(ranked) if index not in kept]
