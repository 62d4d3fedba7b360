"""What a cloud offers for a node type, market by market and zone by zone. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autoscaler.provider import NodeType, Offer, Problem

_SEEN_SHARE = 0.95
"""Of a machine's memory its own system sees less than what it is sold with. Better a little too small a promise here
than a machine on which the work that it was made for does not fit."""
_MEMORY_SHARE = 0.7
"""Of what a node sees it gives this to `memory`; the rest is for objects and the system."""


def memory(mib: float) -> float:
    """What tasks have of a machine's memory, in bytes."""
    return float(int(mib * 2**20 * _SEEN_SHARE * _MEMORY_SHARE))


def offers(
    node_type: NodeType,
    markets: Sequence[str],
    there: Mapping[str, Mapping[str, float]],
    price: Callable[[str, str], float | None],
) -> list[Offer]:
    """All offers in the order of the markets, then of the zones. With a `max_price`, dearer ones are left out, and so
    are those of which nobody can say that they are not.

    Args:
        there: zone -> what a machine brings there.
        price: of a zone and a market; 0.0: unknown, but the platform itself keeps to `max_price`; None: unknown.
    """
    out, most = [], node_type.max_price
    for market in markets:
        for zone, resources in there.items():
            asked = price(zone, market)
            if most is None or (asked is not None and asked <= most):
                out.append(Offer(zone, market, asked or 0.0, {**resources, **node_type.resources}))
    return out


def too_dear(
    node_type: NodeType, kind: str, markets: Sequence[str], price: Callable[[str], float | None]
) -> list[Problem]:
    """What a node type's `max_price` keeps from being bought.

    Args:
        kind: the platform's name for such machines.
        price: of a market, as in `offers`; asked only where there is a limit.
    """
    most = node_type.max_price
    if most is None:
        return []
    prices = {market: price(market) for market in markets}
    out = {market: asked for market, asked in prices.items() if asked is None or asked > most}
    if not out:
        return []
    said = [
        f"{market} {f'costs {asked:g} per hour' if asked else 'has a price that nobody here knows'}"
        for market, asked in out.items()
    ]
    return [
        Problem(
            f"node type {node_type.name}: {kind} {', '.join(said)}; max_price is {most:g}",
            f"{' and '.join(out).capitalize()} machines of it are never taken. Raise max_price or choose another.",
            fatal=len(out) == len(prices),
        )
    ]
