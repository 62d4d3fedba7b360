"""What a cluster costs per hour: now, and at most within its limits. Pure, but for `estimate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoscaler.provider import NodeType, Offer, Provider, ProviderError
from clusterctl.errors import from_provider
from clusterctl.spec.definition import ClusterSpec
from clusterctl.spec.load import cluster_limit


@dataclass(frozen=True, slots=True)
class Row:
    """The machines of one role and node type.

    Attributes:
        count: how many there are from the start.
        most: how many there may be.
        zone, market: where the provider would take them first.
        price: of one per hour, there; None when it is not known.
        dearest: of one per hour, wherever it may be taken; None when that is not known of any offer.
        is_offered: the provider has such machines at all.
    """

    role: str
    node_type: str
    count: int
    most: int
    zone: str = ""
    market: str = ""
    price: float | None = None
    dearest: float | None = None
    is_offered: bool = True


@dataclass(frozen=True, slots=True)
class Costs:
    """The machines of a cluster and their prices.

    Attributes:
        is_free: the provider's machines cost nothing by the hour; the rows have no prices then.
        now: per hour with what there is from the start, as far as prices are known.
        most: per hour with all that the limits allow, as far as prices are known.
        unknown: node types whose price is not known.
        source: where the prices come from, and how old they are.
    """

    rows: tuple[Row, ...]
    is_free: bool
    now: float = 0.0
    most: float = 0.0
    unknown: tuple[str, ...] = ()
    source: str = ""

    @property
    def missing(self) -> tuple[str, ...]:
        """Node types that are needed from the start and that nobody offers."""
        return tuple(row.node_type for row in self.rows if row.count and not row.is_offered)


def estimate(spec: ClusterSpec, provider: Provider, kinds: Sequence[NodeType]) -> Costs:
    """What a cluster costs, by the provider's offers of today.

    Raises:
        CliError: the provider does not tell them.
    """
    has_prices = provider.capabilities.prices
    wanted = [kind for kind in kinds if kind.max_workers or kind.name == spec.head_node_type]
    try:
        offers = {kind.name: provider.offers(kind) for kind in wanted} if has_prices else None
    except ProviderError as error:
        raise from_provider(error) from error
    most, budget = cluster_limit(spec), spec.budgets.max_hourly_price
    source = provider.capabilities.price_source  # of the offers that were made just now
    return costs(kinds, spec.head_node_type, most, budget, offers, source)


def costs(
    kinds: Sequence[NodeType],
    head_type: str,
    max_workers: int,
    budget: float | None,
    offers: Mapping[str, Sequence[Offer]] | None,
    source: str = "",
) -> Costs:
    """What the head and the workers of `kinds` cost.

    Args:
        max_workers: of all types together.
        budget: the most that all workers may cost per hour.
        offers: by node type, best first; None when the provider's machines cost nothing.
    """
    rows = []
    for kind in sorted(kinds, key=lambda kind: kind.name != head_type):
        found = None if offers is None else offers.get(kind.name, ())
        if kind.name == head_type:
            rows.append(_row("head", kind.name, 1, 1, found))
        if kind.name != head_type or kind.max_workers:
            limit = min(kind.max_workers, max_workers)
            rows.append(_row("worker", kind.name, kind.min_workers, limit, found))
    if offers is None:
        return Costs(tuple(rows), True)
    now = sum(row.count * (row.price or 0.0) for row in rows)
    head = sum(row.dearest or 0.0 for row in rows if row.role == "head")
    workers = _dearest([row for row in rows if row.role == "worker"], max_workers)
    unknown = {row.node_type: None for row in rows if row.most and row.is_offered and row.dearest is None}
    most = head + (workers if budget is None else min(workers, budget))
    return Costs(tuple(rows), False, now, max(now, most), tuple(unknown), source)


def _row(role: str, name: str, count: int, most: int, offers: Sequence[Offer] | None) -> Row:
    if offers is None:
        return Row(role, name, count, most)
    if not offers:
        return Row(role, name, count, most, is_offered=False)
    first = offers[0]
    prices = [offer.price for offer in offers]
    dearest = max(prices) if all(prices) else None
    return Row(role, name, count, most, first.zone, first.market, first.price or None, dearest)


def _dearest(rows: Sequence[Row], max_workers: int) -> float:
    """The most that workers can cost: every type's minimum, and the dearest types for the rest."""
    total = sum(row.count * (row.dearest or 0.0) for row in rows)
    room = max_workers - sum(row.count for row in rows)
    for row in sorted(rows, key=lambda row: -(row.dearest or 0.0)):
        more = max(0, min(row.most - row.count, room))
        total += more * (row.dearest or 0.0)
        room -= more
    return total
