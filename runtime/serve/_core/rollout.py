"""Which replicas of a deployment to start, update and stop next. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

import msgspec


class Seen(msgspec.Struct, frozen=True):
    """A replica that is not stopping.

    Attributes:
        is_current: it has the wanted version, and its node stays.
        has_options: it has taken the wanted options, or is taking them.
        serves: callers are told of it.
        settles: it starts, recovers, or takes options.
    """

    id: str
    rank: int
    is_current: bool
    has_options: bool
    serves: bool
    settles: bool


class Plan(msgspec.Struct, frozen=True):
    """`start`: how many. `stop`, `update`: ids."""

    start: int = 0
    stop: tuple[str, ...] = ()
    update: tuple[str, ...] = ()


STARTS_PER_REPLICA = 3
"""How many failed starts per wanted replica fail a deployment."""
FIRST_RETRY_S = 0.1
LONGEST_RETRY_S = 64.0


def most_failures(limit: int, wanted: int) -> int:
    """How many failed starts fail a deployment.

    Args:
        limit: its max_constructor_retry_count.
    """
    return max(1, min(limit, STARTS_PER_REPLICA * max(1, wanted)))


def retry_delay_s(streak: int, wanted: int) -> float:
    """How long to wait after the last of so many failures in a row: twice as long after each round of `wanted`."""
    rounds = (streak - 1) // max(1, wanted)
    return float(min(LONGEST_RETRY_S, FIRST_RETRY_S * 2 ** min(rounds, 20)))


def surge(wanted: int, percent: int = 0) -> int:
    """How many replicas more than wanted there may be while versions change: by default half of them, and one at
    least."""
    return max(1, math.ceil(wanted * (percent or 50) / 100))


def plan(replicas: Iterable[Seen], wanted: int, extra: int, squeeze: int = 0) -> Plan:
    """The next moves towards `wanted` replicas of the current version and options.

    Replicas of the current version are started before others are stopped: what is stopped leaves `wanted` that serve,
    if there were as many.

    Args:
        extra: see `surge`.
        squeeze: so many new replicas wait for resources that replicas of the old version hold: as many of those stop.
    """
    seen = list(replicas)
    current = [one for one in seen if one.is_current]
    old = [one for one in seen if not one.is_current]
    stop: list[Seen] = []
    if len(current) > wanted:
        surplus = sorted(current, key=lambda one: (one.serves, -one.rank))[: len(current) - wanted]
        stop += surplus
        current = [one for one in current if one not in surplus]
    stop += [one for one in old if not one.serves]
    serving_old = sorted((one for one in old if one.serves), key=lambda one: -one.rank)
    ready = sum(one.serves for one in current)
    removable = max(0, ready + len(serving_old) - wanted, min(squeeze, len(serving_old)))
    stop += serving_old[:removable]
    left = len(serving_old) - min(removable, len(serving_old))
    room = wanted + (extra if left else 0) - len(current) - left
    start = max(0, min(wanted - len(current), room))
    settling = sum(one.settles and one.serves for one in current)
    stale = [one for one in current if one.serves and not one.has_options and not one.settles]
    update = stale[: max(0, extra - settling)]
    return Plan(start, tuple(one.id for one in stop), tuple(one.id for one in update))


def free_ranks(taken: Collection[int], count: int) -> list[int]:
    """The lowest ranks that are not taken."""
    ranks: list[int] = []
    rank = 0
    while len(ranks) < count:
        if rank not in taken:
            ranks.append(rank)
        rank += 1
    return ranks


def node_for(
    nodes: Mapping[str, Mapping[str, float]],
    replicas: Mapping[str, int],
    most: int,
    demand: Mapping[str, float],
) -> str | None:
    """The node for one more replica, where a node may have `most`: the one with the fewest of those that could ever
    have it. None if there is none.

    Args:
        nodes: total resources of each.
        replicas: how many each has, those that stop included.
    """
    fits = [
        node
        for node, total in nodes.items()
        if replicas.get(node, 0) < most
        and all(total.get(name, 0.0) >= amount for name, amount in demand.items())
    ]
    return min(fits, key=lambda node: (replicas.get(node, 0), node), default=None)
