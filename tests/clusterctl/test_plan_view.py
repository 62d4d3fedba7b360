"""What `up` shows before it begins."""

from __future__ import annotations

import json

from autoscaler.provider import ON_DEMAND, SPOT, NodeType, Offer
from clusterctl.launcher.costs import costs
from clusterctl.launcher.plan import Action, Step
from clusterctl.plan_view import as_builtins, changes, money, render

STEPS = (Step(Action.END_MACHINES, ("i-1", "i-2")), Step(Action.CREATE_HEAD))
KINDS = [NodeType("head"), NodeType("cpu", min_workers=2, max_workers=3), NodeType("gpu", max_workers=1)]
OFFERS = {
    "head": [Offer("us-1a", ON_DEMAND, 0.096)],
    "cpu": [Offer("us-1b", SPOT, 1.5)],
    "gpu": [Offer("us-1a", ON_DEMAND)],
}
PRICED = costs(KINDS, "head", 4, None, OFFERS, "a table of 2025-06-01, 5 months old")


def test_steps_machines_prices_and_where_these_come_from() -> None:
    text = "\n".join(render("c", STEPS, PRICED, ["max_workers: 2 -> 4"]))
    for part in (
        "1. end machines: i-1, i-2",
        "max_workers: 2 -> 4",
        "us-1b",
        "spot",
        "$0.0960",
        "$1.50",
        "price unknown",
        "per hour $3.10 now, $4.60 at most, and what gpu costs, which is not known",
        "5 months old",
    ):
        assert part in text


def test_free_machines_have_no_price_columns() -> None:
    text = "\n".join(render("c", STEPS, costs(KINDS, "head", 4, None, None), []))
    assert "nothing is paid" in text
    assert "$" not in text
    assert "zone" not in text


def test_a_type_that_nobody_offers_is_said() -> None:
    text = "\n".join(render("c", STEPS, costs(KINDS, "head", 4, None, {**OFFERS, "gpu": []}), []))
    assert "no offer in the allowed zones and prices" in text


def test_nothing_to_do() -> None:
    assert "nothing to do" in render("c", (), None, [])[0]


def test_for_programs() -> None:
    value = json.loads(json.dumps(as_builtins("c", STEPS, PRICED, ["x"])))
    assert value["costs"]["per_hour_at_most"] == 4.596
    assert value["costs"]["unknown"] == ["gpu"]
    assert [node["price"] for node in value["costs"]["nodes"]] == [0.096, 1.5, None]
    assert value["changes"] == ["x"]
    assert "costs" not in as_builtins("c", (), None, [])


def test_changes_name_the_key() -> None:
    before = {"max_workers": None, "types": {"a": {"min_workers": 1}, "b": {}}, "same": [1]}
    after = {"max_workers": 4, "types": {"a": {"min_workers": 2}, "c": {}}, "same": [1]}
    assert changes(before, after) == [
        "max_workers: nothing -> 4",
        "types.a.min_workers: 1 -> 2",
        "types.b: {} -> nothing",
        "types.c: nothing -> {}",
    ]
    assert len(changes({"k": ""}, {"k": "x" * 500})[0]) < 100


def test_money() -> None:
    assert [money(amount) for amount in (0, 0.0312, 1.5)] == ["$0.00", "$0.0312", "$1.50"]
