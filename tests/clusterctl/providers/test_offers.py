"""What a cloud offers, and in which order."""

from __future__ import annotations

import pytest

from autoscaler.provider import ON_DEMAND, SPOT, NodeType
from clusterctl.providers import offers

MARKETS = (SPOT, ON_DEMAND)
THERE = {zone: {"CPU": 2.0, "memory": offers.memory(8192)} for zone in ("b", "a")}


def price(zone: str, market: str) -> float | None:
    return 0.01 if market == SPOT else 0.05


def test_offers_are_in_the_order_of_markets_and_zones() -> None:
    found = offers.offers(NodeType("w", {"CPU": 1.0}), MARKETS, THERE, price)
    assert [(offer.zone, offer.market, offer.price) for offer in found] == [
        ("b", SPOT, 0.01),
        ("a", SPOT, 0.01),
        ("b", ON_DEMAND, 0.05),
        ("a", ON_DEMAND, 0.05),
    ]
    assert found[0].resources["CPU"] == 1.0, "what the node type says goes before what the machine has"
    assert 0 < found[0].resources["memory"] < 0.7 * 8192 * 2**20, "no more than a node offers"


def test_dearer_offers_are_left_out() -> None:
    found = offers.offers(NodeType("w", max_price=0.04), MARKETS, THERE, price)
    assert {offer.market for offer in found} == {SPOT}


@pytest.mark.parametrize(("asked", "count"), [(None, 0), (0.0, 4)])
def test_under_a_limit_what_nobody_knows_is_left_out_unless_the_platform_keeps_to_it(
    asked: float | None, count: int
) -> None:
    limited = NodeType("w", max_price=100.0)
    assert len(offers.offers(limited, MARKETS, THERE, lambda zone, market: asked)) == count
    assert len(offers.offers(NodeType("w"), MARKETS, THERE, lambda zone, market: asked)) == 4


def test_what_a_limit_rules_out_is_said() -> None:
    limited = NodeType("w", max_price=0.04)
    assert offers.too_dear(NodeType("w"), "big", MARKETS, lambda market: 9.0) == []
    assert offers.too_dear(limited, "big", MARKETS, lambda market: 0.04) == []
    (problem,) = offers.too_dear(limited, "big", MARKETS, lambda market: price("", market))
    assert problem.what == "node type w: big on-demand costs 0.05 per hour; max_price is 0.04"
    assert not problem.fatal
    (problem,) = offers.too_dear(limited, "big", [ON_DEMAND], lambda market: None)
    assert "has a price that nobody here knows" in problem.what
    assert problem.fatal
