"""What a cluster costs now and at most."""

from __future__ import annotations

import pytest

from autoscaler.provider import ON_DEMAND, SPOT, NodeType, Offer
from clusterctl.launcher.costs import Costs, costs

HEAD = NodeType("head")
CPU = NodeType("cpu", min_workers=2, max_workers=10)
GPU = NodeType("gpu", max_workers=4)
OFFERS = {
    "head": [Offer("a", ON_DEMAND, 0.1)],
    "cpu": [Offer("a", SPOT, 0.2), Offer("a", ON_DEMAND, 0.5)],
    "gpu": [Offer("b", ON_DEMAND, 3.0)],
}


def of(
    most: int = 20,
    budget: float | None = None,
    offers: dict[str, list[Offer]] | None = OFFERS,
    note: str = "",
) -> Costs:
    return costs([CPU, HEAD, GPU], "head", most, budget, offers, note)


def test_now_counts_the_head_and_the_minimum_at_the_first_offer() -> None:
    assert of().now == pytest.approx(0.1 + 2 * 0.2)
    assert [(row.role, row.node_type, row.count) for row in of().rows] == [
        ("head", "head", 1),
        ("worker", "cpu", 2),
        ("worker", "gpu", 0),
    ]


def test_at_most_takes_the_dearest_offers_and_types_that_the_limits_allow() -> None:
    assert of().most == pytest.approx(0.1 + 10 * 0.5 + 4 * 3.0)
    assert of(most=5).most == pytest.approx(0.1 + 2 * 0.5 + 3 * 3.0), "the minimum stays, gpu takes the rest"
    assert of(most=2).most == pytest.approx(0.1 + 2 * 0.5)


def test_a_budget_limits_what_workers_may_cost_and_not_what_is_there_from_the_start() -> None:
    assert of(budget=2.0).most == pytest.approx(0.1 + 2.0)
    assert of(budget=0.0).most == of().now


def test_a_price_that_is_not_known_is_named_and_counts_as_nothing() -> None:
    found = of(offers={**OFFERS, "gpu": [Offer("b", ON_DEMAND, 0.0)]})
    assert found.unknown == ("gpu",)
    assert found.most == pytest.approx(0.1 + 10 * 0.5)
    assert found.rows[2].price is None
    partly = of(offers={**OFFERS, "cpu": [Offer("a", SPOT, 0.2), Offer("a", ON_DEMAND, 0.0)]})
    assert partly.unknown == ("cpu",), "the dearest is not known"
    assert partly.now == pytest.approx(0.1 + 2 * 0.2)


def test_what_nobody_offers_is_missing_only_where_it_is_needed() -> None:
    assert of(offers={**OFFERS, "gpu": []}).missing == ()
    assert of(offers={**OFFERS, "cpu": [], "head": []}).missing == ("head", "cpu")


def test_machines_that_cost_nothing_have_no_prices() -> None:
    free = of(offers=None)
    assert free.is_free
    assert not free.missing
    assert (free.now, free.most, free.unknown) == (0.0, 0.0, ())


def test_workers_of_the_heads_type() -> None:
    both = NodeType("both", min_workers=1, max_workers=2)
    found = costs([both], "both", 5, None, {"both": [Offer("a", ON_DEMAND, 1.0)]})
    assert [(row.role, row.count, row.most) for row in found.rows] == [("head", 1, 1), ("worker", 1, 2)]
    assert (found.now, found.most) == (2.0, 3.0)
