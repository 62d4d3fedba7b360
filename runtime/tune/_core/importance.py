"""How much a parameter says about a metric. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .svg import is_number

FEWEST = 4
"""Trials; fewer say nothing."""


def importances(configs: Sequence[Mapping[str, Any]], values: Sequence[float]) -> dict[str, float]:
    """The importance of each parameter that differs between trials, the most important first.

    It is the share of the variance of the metric's ranks that groups of the parameter's values explain: 1.0 where the
    parameter alone decides the order of the trials, about 0.0 where it says nothing. A number has quantiles as groups,
    about the square root of the number of trials, at most 8; any other value is a group of its own. The share is
    adjusted for the number of groups (epsilon squared), since many groups explain a part of any noise. Interactions
    of parameters are not seen.

    Args:
        configs: Of the trials, flat.
        values: Of the metric, one for each trial.
    """
    found = {}
    for name in varying(configs):
        having = [index for index, config in enumerate(configs) if name in config]
        groups = _groups([configs[index][name] for index in having])
        found[name] = _explained(groups, _ranks([values[index] for index in having]))
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def varying(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The parameters with different values, in the order in which they come."""
    seen: dict[str, set[str]] = {}
    for config in configs:
        for name, value in config.items():
            seen.setdefault(name, set()).add(repr(value))
    return [name for name, distinct in seen.items() if len(distinct) > 1]


def _groups(values: Sequence[Any]) -> list[int]:
    """The number of the group of each value."""
    most = max(2, min(8, round(len(values) ** 0.5)))
    if not all(is_number(value) for value in values) or len(set(values)) <= most:
        numbers: dict[str, int] = {}
        return [numbers.setdefault(repr(value), len(numbers)) for value in values]
    ranks = _ranks([float(value) for value in values])  # equal values stay together
    return [min(int(rank * most / len(values)), most - 1) for rank in ranks]


def _explained(groups: Sequence[int], ranks: Sequence[float]) -> float:
    """Epsilon squared of the ranks by groups."""
    count, kinds = len(ranks), len(set(groups))
    if count < FEWEST or kinds < 2 or count <= kinds:
        return 0.0
    mean = sum(ranks) / count
    total = sum((rank - mean) ** 2 for rank in ranks)
    if not total:
        return 0.0
    members: dict[int, list[float]] = {}
    for group, rank in zip(groups, ranks, strict=True):
        members.setdefault(group, []).append(rank)
    between = sum(len(own) * (sum(own) / len(own) - mean) ** 2 for own in members.values())
    return max(0.0, 1.0 - (1.0 - between / total) * (count - 1) / (count - kinds))


def _ranks(values: Sequence[float]) -> list[float]:
    """From 0; equal values share the mean of theirs."""
    order = sorted(range(len(values)), key=lambda index: values[index])
    ranks = [0.0] * len(values)
    start = 0
    for end in range(1, len(order) + 1):
        if end == len(order) or values[order[end]] != values[order[start]]:
            for index in order[start:end]:
                ranks[index] = (start + end - 1) / 2
            start = end
    return ranks
