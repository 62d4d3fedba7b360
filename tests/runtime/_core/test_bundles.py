from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime._core.bundles import STRATEGIES, base_name, without_groups
from runtime._core.placement import (
    NodeView,
    bundles_feasible,
    group_resources,
    is_group_resource,
    place_bundles,
    rewrite_for_group,
)
from runtime._core.resources import UNIT, fits, subtract, to_units

PG = "ab" * 18


def node(
    name: str,
    total: dict[str, float],
    free: dict[str, float] | None = None,
    labels: dict[str, str] | None = None,
    schedulable: bool = True,
) -> NodeView:
    return NodeView(
        name.encode(), to_units(total), to_units(total if free is None else free), labels or {}, schedulable
    )


def place(bundles: list[dict[str, float]], strategy: str, nodes: list[NodeView], **options: Any) -> Any:
    return place_bundles(
        [to_units(bundle) for bundle in bundles], strategy, nodes, rng=random.Random(1), **options
    )


CPU = {"CPU": 1.0}


class TestTarget:
    def test_it_goes_first(self) -> None:
        nodes = [node("a", {"CPU": 2}), node("b", {"CPU": 8})]
        assert place([CPU] * 2, "STRICT_PACK", nodes, target=b"b") == [b"b"] * 2
        assert place([CPU] * 2, "STRICT_PACK", nodes) == [b"a"] * 2

    @pytest.mark.parametrize("target", [b"a", b"gone"])
    def test_another_does_when_it_has_no_room(self, target: bytes) -> None:
        nodes = [node("a", {"CPU": 2}, {"CPU": 1}), node("b", {"CPU": 8})]
        assert place([CPU] * 2, "STRICT_PACK", nodes, target=target) == [b"b"] * 2


class TestDomain:
    def nodes(self) -> list[NodeView]:
        racks = {"a": "x", "b": "x", "c": "y", "d": "y", "e": "y"}
        return [node(name, {"CPU": 2}, labels={"rack": rack}) for name, rack in racks.items()] + [
            node("f", {"CPU": 9})
        ]

    def test_all_in_one(self) -> None:
        assert set(place([CPU] * 6, "PACK", self.nodes(), domain="rack")) == {b"c", b"d", b"e"}
        assert place([CPU] * 7, "PACK", self.nodes(), domain="rack") is None
        assert place([CPU] * 7, "PACK", self.nodes()) is not None

    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_the_strategy_holds_within(self, strategy: str) -> None:
        found = place([CPU] * 2, strategy, self.nodes(), domain="rack")
        assert set(found) <= {b"a", b"b"} or set(found) <= {b"c", b"d", b"e"}
        if strategy == "STRICT_SPREAD":
            assert len(set(found)) == 2

    def test_the_rest_follows_what_is_placed(self) -> None:
        for placed, rack in ((b"b", {b"a", b"b"}), (b"e", {b"c", b"d", b"e"})):
            found = place([CPU] * 3, "SPREAD", self.nodes(), placed=[placed, b"", b""], domain="rack")
            assert set(found) <= rack

    def test_feasible_only_within_one(self) -> None:
        wanted = [to_units(CPU)] * 7
        assert not bundles_feasible(wanted, "PACK", self.nodes(), domain="rack")
        assert bundles_feasible(wanted[:6], "PACK", self.nodes(), domain="rack")


class TestPack:
    def test_on_one_node_if_it_can(self) -> None:
        nodes = [node("a", {"CPU": 2}), node("b", {"CPU": 4})]
        assert place([CPU] * 3, "PACK", nodes) == [b"b"] * 3

    def test_the_tightest_node(self) -> None:
        nodes = [node("a", {"CPU": 8}), node("b", {"CPU": 8}, {"CPU": 2})]
        assert place([CPU] * 2, "PACK", nodes) == [b"b"] * 2

    def test_on_few_nodes_if_it_must(self) -> None:
        nodes = [node(name, {"CPU": 2}) for name in "abc"]
        counts = Counter(place([CPU] * 4, "PACK", nodes))
        assert sorted(counts.values()) == [2, 2]

    def test_none_when_full(self) -> None:
        assert place([CPU] * 5, "PACK", [node("a", {"CPU": 4})]) is None

    def test_biggest_first(self) -> None:
        nodes = [node("a", {"CPU": 4}), node("b", {"CPU": 3})]
        assert place([CPU, {"CPU": 2}, {"CPU": 4}], "PACK", nodes) == [b"b", b"b", b"a"]

    def test_avoids_gpu_nodes(self) -> None:
        nodes = [node("a", {"CPU": 4, "GPU": 1}), node("b", {"CPU": 8})]
        assert place([CPU] * 2, "PACK", nodes) == [b"b"] * 2


class TestSpread:
    def test_apart_while_there_are_nodes(self) -> None:
        nodes = [node(name, {"CPU": 4}) for name in "abc"]
        assert sorted(place([CPU] * 3, "SPREAD", nodes)) == [b"a", b"b", b"c"]

    def test_together_when_there_are_not(self) -> None:
        nodes = [node(name, {"CPU": 4}) for name in "ab"]
        counts = Counter(place([CPU] * 4, "SPREAD", nodes))
        assert set(counts) == {b"a", b"b"}

    def test_least_loaded_first(self) -> None:
        nodes = [node("a", {"CPU": 4}, {"CPU": 1}), node("b", {"CPU": 4})]
        assert place([CPU], "SPREAD", nodes) == [b"b"]


class TestPicky:
    @pytest.mark.parametrize("strategy", ["PACK", "SPREAD"])
    def test_whoever_has_least_choice_does_not_lose_its_node_to_a_bigger_one(self, strategy: str) -> None:
        nodes = [node("a", {"CPU": 3}, labels={"zone": "a"}), node("b", {"CPU": 4})]
        wanted = [to_units({"CPU": 3}), to_units(CPU)]
        for seed in range(10):
            found = place_bundles(
                wanted, strategy, nodes, rng=random.Random(seed), selectors=[{}, {"zone": "a"}]
            )
            assert found == [b"b", b"a"]


class TestStrictPack:
    def test_one_node(self) -> None:
        nodes = [node("a", {"CPU": 2}), node("b", {"CPU": 4})]
        assert place([CPU] * 3, "STRICT_PACK", nodes) == [b"b"] * 3

    def test_or_none(self) -> None:
        nodes = [node("a", {"CPU": 2}), node("b", {"CPU": 2})]
        assert place([CPU] * 3, "STRICT_PACK", nodes) is None

    def test_stays_where_the_rest_is(self) -> None:
        nodes = [node("a", {"CPU": 2}), node("b", {"CPU": 8})]
        assert place([CPU] * 2, "STRICT_PACK", nodes, placed=[b"a", b""]) == [b"a", b"a"]

    def test_does_not_leave_the_rest(self) -> None:
        nodes = [node("a", {"CPU": 2}, {}), node("b", {"CPU": 8})]
        assert place([CPU] * 2, "STRICT_PACK", nodes, placed=[b"a", b""]) is None


class TestStrictSpread:
    def test_each_on_its_own(self) -> None:
        nodes = [node(name, {"CPU": 9}) for name in "abc"]
        assert sorted(place([CPU] * 3, "STRICT_SPREAD", nodes)) == [b"a", b"b", b"c"]

    def test_or_none(self) -> None:
        assert place([CPU] * 3, "STRICT_SPREAD", [node("a", {"CPU": 9}), node("b", {"CPU": 9})]) is None

    def test_finds_the_only_assignment(self) -> None:
        """A greedy choice that gives "both" to the first bundle would leave the second without a node."""
        nodes = [node("cpu", {"CPU": 4}), node("both", {"CPU": 4, "x": 1}), node("x", {"x": 1})]
        bundles: list[dict[str, float]] = [{"CPU": 1}, {"CPU": 1, "x": 1}, {"x": 1}]
        assert place(bundles, "STRICT_SPREAD", nodes) == [b"cpu", b"both", b"x"]

    def test_keeps_off_nodes_of_the_rest(self) -> None:
        nodes = [node("a", {"CPU": 9}), node("b", {"CPU": 9})]
        assert place([CPU] * 2, "STRICT_SPREAD", nodes, placed=[b"a", b""]) == [b"a", b"b"]


class TestCommon:
    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_nothing_to_place(self, strategy: str) -> None:
        assert place([CPU], strategy, [], placed=[b"a"]) == [b"a"]

    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_no_nodes(self, strategy: str) -> None:
        assert place([CPU], strategy, []) is None

    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_unschedulable_nodes_are_absent(self, strategy: str) -> None:
        assert place([CPU], strategy, [node("a", {"CPU": 9}, schedulable=False)]) is None

    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_selectors(self, strategy: str) -> None:
        nodes = [node("a", {"CPU": 9}), node("b", {"CPU": 9}, labels={"zone": "y"})]
        assert place([CPU], strategy, nodes, selectors=[{"zone": "y"}]) == [b"b"]
        assert place([CPU], strategy, nodes, selectors=[{"zone": "z"}]) is None

    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_feasible_looks_at_totals(self, strategy: str) -> None:
        full = [node("a", {"CPU": 1}, {})]
        assert place([CPU], strategy, full) is None
        assert bundles_feasible([to_units(CPU)], strategy, full)
        assert not bundles_feasible([to_units({"CPU": 2})], strategy, full)

    def test_unknown_strategy(self) -> None:
        with pytest.raises(ValueError, match="STRICT_SPREAD"):
            place([CPU], "TIGHT", [])


sizes = st.dictionaries(st.sampled_from(["CPU", "GPU", "x"]), st.integers(1, 3), min_size=1, max_size=2)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[dict[str, int]], list[NodeView]]:
    bundles = draw(st.lists(sizes, min_size=1, max_size=4))
    nodes = [
        NodeView(bytes([number]), total, dict(total))
        for number, total in enumerate(draw(st.lists(sizes, max_size=4)))
    ]
    return bundles, nodes


def is_valid(
    bundles: list[dict[str, int]], strategy: str, nodes: list[NodeView], result: tuple[bytes, ...]
) -> bool:
    if strategy == "STRICT_PACK" and len(set(result)) != 1:
        return False
    if strategy == "STRICT_SPREAD" and len(set(result)) != len(result):
        return False
    left = {n.node_id: dict(n.available) for n in nodes}
    for bundle, node_id in zip(bundles, result, strict=True):
        if not fits(bundle, left[node_id]):
            return False
        subtract(left[node_id], bundle)
    return True


@settings(max_examples=150, deadline=None)
@given(worlds(), st.sampled_from(STRATEGIES), st.integers(0, 3))
def test_whatever_is_placed_fits(
    world: tuple[list[dict[str, int]], list[NodeView]], strategy: str, seed: int
) -> None:
    bundles, nodes = world
    before = [dict(n.available) for n in nodes]
    result = place_bundles(bundles, strategy, nodes, rng=random.Random(seed))
    assert [n.available for n in nodes] == before
    if result is not None:
        assert is_valid(bundles, strategy, nodes, tuple(result))


@settings(max_examples=150, deadline=None)
@given(worlds(), st.sampled_from(["STRICT_PACK", "STRICT_SPREAD"]))
def test_strict_strategies_find_every_solution(
    world: tuple[list[dict[str, int]], list[NodeView]], strategy: str
) -> None:
    bundles, nodes = world
    ids = [n.node_id for n in nodes]
    exists = any(
        is_valid(bundles, strategy, nodes, attempt) for attempt in itertools.product(ids, repeat=len(bundles))
    )
    assert (place_bundles(bundles, strategy, nodes, rng=random.Random(0)) is not None) == exists


class TestNames:
    def test_what_a_bundle_offers(self) -> None:
        assert group_resources({"CPU": 20_000}, PG, 3) == {
            f"CPU_group_3_{PG}": 20_000,
            f"CPU_group_{PG}": 20_000,
            f"bundle_group_3_{PG}": 1000 * UNIT,
            f"bundle_group_{PG}": 1000 * UNIT,
        }

    def test_a_request_for_one_bundle(self) -> None:
        assert rewrite_for_group({"CPU": 5}, PG, 0) == {f"CPU_group_0_{PG}": 5, f"CPU_group_{PG}": 5}

    def test_a_request_for_any_bundle(self) -> None:
        assert rewrite_for_group({"CPU": 5}, PG, -1) == {f"CPU_group_{PG}": 5}

    @pytest.mark.parametrize("index", [-1, 0])
    def test_a_request_for_nothing_is_tied_to_the_group(self, index: int) -> None:
        wanted = rewrite_for_group({"CPU": 0}, PG, index)
        assert wanted
        assert all(name.startswith("bundle_group_") and amount > 0 for name, amount in wanted.items())
        offered = group_resources({"CPU": 1}, PG, 0)
        assert fits(wanted, offered)

    @given(sizes, st.integers(0, 99))
    def test_a_bundle_holds_what_it_is_made_of(self, bundle: dict[str, int], index: int) -> None:
        offered = group_resources(bundle, PG, index)
        assert fits(rewrite_for_group(bundle, PG, index), offered)
        assert fits(rewrite_for_group(bundle, PG, -1), offered)
        assert all(is_group_resource(name) for name in offered)

    @pytest.mark.parametrize(
        "name", ["CPU", "memory", "my_group_x", "CPU_group_", f"CPU_group_{PG}x", "node:10.0.0.1"]
    )
    def test_other_names(self, name: str) -> None:
        assert not is_group_resource(name)


def test_names_without_their_group() -> None:
    offered = group_resources(to_units({"CPU": 1, "my_group_x": 2}), PG, 1)
    assert {base_name(name) for name in offered} == {"CPU", "my_group_x", "bundle"}
    assert base_name("my_group_x") == "my_group_x"
    held = {f"CPU_group_{PG}": 1.0, f"CPU_group_0_{PG}": 1.0, f"bundle_group_{PG}": 0.001, "custom": 2.0}
    assert without_groups(held) == {"CPU": 1.0, "custom": 2.0}
