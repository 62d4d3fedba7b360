from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime._core.placement import Choice, Fit, NodeView, Request, choose_node
from runtime._core.resources import fits, subtract, to_units


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


def choose(needs: dict[str, float], nodes: list[NodeView], seed: int = 0, **options: Any) -> Choice:
    choosing = {key: options.pop(key) for key in ("local", "locality", "spread_after") if key in options}
    return choose_node(Request(to_units(needs), **options), nodes, rng=random.Random(seed), **choosing)


def chosen(*args: Any, **kwargs: Any) -> str:
    choice = choose(*args, **kwargs)
    assert choice.fit is Fit.AVAILABLE
    return choice.node_id.decode()


class TestFit:
    def test_no_nodes(self) -> None:
        assert choose({"CPU": 1}, []) == Choice(Fit.INFEASIBLE)

    def test_room(self) -> None:
        assert choose({"CPU": 1}, [node("a", {"CPU": 1})]) == Choice(Fit.AVAILABLE, b"a")

    def test_full(self) -> None:
        assert choose({"CPU": 1}, [node("a", {"CPU": 1}, {})]) == Choice(Fit.WAITING)

    def test_too_big(self) -> None:
        assert choose({"CPU": 2}, [node("a", {"CPU": 1})]) == Choice(Fit.INFEASIBLE)

    def test_unknown_resource(self) -> None:
        assert choose({"TPU": 1}, [node("a", {"CPU": 1})]) == Choice(Fit.INFEASIBLE)

    def test_nothing_goes_anywhere(self) -> None:
        assert chosen({}, [node("a", {"CPU": 1}, {})]) == "a"

    def test_an_unschedulable_node_is_absent(self) -> None:
        assert choose({"CPU": 1}, [node("a", {"CPU": 1}, schedulable=False)]) == Choice(Fit.INFEASIBLE)

    def test_oversubscribed_nodes_have_no_room(self) -> None:
        view = node("a", {"CPU": 2})
        view.available["CPU"] = -10_000
        assert choose({"CPU": 0.1}, [view]).fit is Fit.WAITING

    def test_fractions_are_exact(self) -> None:
        view = node("a", {"CPU": 0.3})
        for _ in range(3):
            assert choose({"CPU": 0.1}, [view]).fit is Fit.AVAILABLE
            subtract(view.available, to_units({"CPU": 0.1}))
        assert choose({"CPU": 0.0001}, [view]).fit is Fit.WAITING


class TestHybrid:
    def test_packs_below_half(self) -> None:
        nodes = [node("a", {"CPU": 8}, {"CPU": 5}), node("b", {"CPU": 8})]
        assert chosen({"CPU": 1}, nodes) == "a"

    def test_spreads_above_half(self) -> None:
        nodes = [node("a", {"CPU": 8}, {"CPU": 3}), node("b", {"CPU": 8}, {"CPU": 4})]
        assert chosen({"CPU": 1}, nodes) == "b"

    def test_prefers_local_while_it_packs(self) -> None:
        nodes = [node(name, {"CPU": 8}) for name in "abc"]
        assert chosen({"CPU": 1}, nodes, local=b"b") == "b"

    def test_leaves_local_when_it_is_full(self) -> None:
        nodes = [node("a", {"CPU": 8}), node("b", {"CPU": 8}, {})]
        assert chosen({"CPU": 1}, nodes, local=b"b") == "a"

    def test_leaves_local_when_it_is_more_than_half_full(self) -> None:
        nodes = [node("a", {"CPU": 8}), node("b", {"CPU": 8}, {"CPU": 2})]
        assert chosen({"CPU": 1}, nodes, local=b"b") == "a"

    def test_memory_counts_as_load(self) -> None:
        nodes = [
            node("a", {"CPU": 8, "memory": 100}, {"CPU": 8, "memory": 10}),
            node("b", {"CPU": 8, "memory": 100}, {"CPU": 4, "memory": 100}),
        ]
        assert chosen({"CPU": 1}, nodes) == "b"

    def test_cpu_work_avoids_gpu_nodes(self) -> None:
        nodes = [node("a", {"CPU": 8, "GPU": 1}), node("b", {"CPU": 8}, {"CPU": 1})]
        assert chosen({"CPU": 1}, nodes, local=b"a") == "b"

    def test_cpu_work_takes_gpu_nodes_when_it_must(self) -> None:
        nodes = [node("a", {"CPU": 8, "GPU": 1}), node("b", {"CPU": 8}, {})]
        assert chosen({"CPU": 1}, nodes) == "a"

    def test_gpu_work_goes_to_gpu_nodes(self) -> None:
        nodes = [node("a", {"CPU": 8}), node("b", {"CPU": 8, "GPU": 1})]
        assert chosen({"GPU": 1}, nodes, local=b"a") == "b"

    def test_draws_among_the_best_few_of_many(self) -> None:
        nodes = [node(f"{number:02}", {"CPU": 8}, {"CPU": 2}) for number in range(50)]
        drawn = {chosen({"CPU": 1}, nodes, seed) for seed in range(60)}
        assert 3 < len(drawn) <= 10

    def test_never_draws_a_worse_one(self) -> None:
        nodes = [node(f"{number:02}", {"CPU": 8}, {"CPU": 2}) for number in range(20)]
        nodes[7].available = to_units({"CPU": 3})
        assert {chosen({"CPU": 1}, nodes, seed) for seed in range(30)} == {"07"}


class TestLocality:
    def test_goes_where_the_bytes_are(self) -> None:
        nodes = [node(name, {"CPU": 8}) for name in "abc"]
        assert chosen({"CPU": 1}, nodes, local=b"a", locality={b"b": 10, b"c": 20}) == "c"

    def test_next_best_when_the_holder_is_full(self) -> None:
        nodes = [node("a", {"CPU": 8}), node("b", {"CPU": 8}), node("c", {"CPU": 8}, {})]
        assert chosen({"CPU": 1}, nodes, local=b"a", locality={b"b": 10, b"c": 20}) == "b"

    def test_unknown_holders_do_not_matter(self) -> None:
        nodes = [node(name, {"CPU": 8}) for name in "ab"]
        assert chosen({"CPU": 1}, nodes, local=b"b", locality={b"z": 10}) == "b"

    def test_local_wins_a_tie(self) -> None:
        nodes = [node(name, {"CPU": 8}) for name in "ab"]
        assert chosen({"CPU": 1}, nodes, local=b"b", locality={b"a": 10, b"b": 10}) == "b"


class TestSpread:
    def test_goes_round(self) -> None:
        nodes = [node(name, {"CPU": 8}) for name in "abc"]
        after, seen = b"", []
        for _ in range(6):
            after = choose({}, nodes, kind="SPREAD", spread_after=after).node_id
            seen.append(after.decode())
        assert seen == ["a", "b", "c", "a", "b", "c"]

    def test_full_nodes_miss_their_turn(self) -> None:
        nodes = [node("a", {"CPU": 8}), node("b", {"CPU": 8}, {}), node("c", {"CPU": 8}, {"CPU": 1})]
        assert chosen({"CPU": 1}, nodes, kind="SPREAD", spread_after=b"a") == "c"

    def test_evens_out(self) -> None:
        nodes = [node(name, {"CPU": 4}) for name in "abcd"]
        counts: Counter[bytes] = Counter()
        after = b""
        for _ in range(16):
            after = choose({"CPU": 1}, nodes, kind="SPREAD", spread_after=after).node_id
            counts[after] += 1
            subtract(next(n for n in nodes if n.node_id == after).available, to_units({"CPU": 1}))
        assert set(counts.values()) == {4}


class TestAffinity:
    nodes = staticmethod(
        lambda: [
            node("a", {"CPU": 2}),
            node("full", {"CPU": 2}, {}),
            node("gone", {"CPU": 2}, schedulable=False),
        ]
    )

    @pytest.mark.parametrize(
        ("target", "needs", "soft", "expected"),
        [
            ("a", 1, False, Choice(Fit.AVAILABLE, b"a")),
            ("a", 1, True, Choice(Fit.AVAILABLE, b"a")),
            ("a", 3, False, Choice(Fit.IMPOSSIBLE)),
            ("a", 3, True, Choice(Fit.INFEASIBLE)),
            ("full", 1, False, Choice(Fit.WAITING)),
            ("full", 1, True, Choice(Fit.WAITING)),
            ("gone", 1, False, Choice(Fit.IMPOSSIBLE)),
            ("gone", 1, True, Choice(Fit.AVAILABLE, b"a")),
            ("unknown", 1, False, Choice(Fit.IMPOSSIBLE)),
            ("unknown", 1, True, Choice(Fit.AVAILABLE, b"a")),
        ],
    )
    def test_verdicts(self, target: str, needs: float, soft: bool, expected: Choice) -> None:
        choice = choose(
            {"CPU": needs}, self.nodes(), kind="NODE_AFFINITY", node_id=target.encode(), soft=soft
        )
        assert choice == expected

    def test_labels_hold_too(self) -> None:
        nodes = [node("a", {"CPU": 1}, labels={"zone": "x"})]
        options = {"kind": "NODE_AFFINITY", "node_id": b"a"}
        assert choose({"CPU": 1}, nodes, labels={"zone": "x"}, **options).fit is Fit.AVAILABLE
        assert choose({"CPU": 1}, nodes, labels={"zone": "y"}, **options).fit is Fit.IMPOSSIBLE

    def test_a_bundle_that_is_not_there_yet_may_come(self) -> None:
        wanted = Request({f"CPU_group_{'0' * 36}": 10_000}, "NODE_AFFINITY", b"a")
        assert choose_node(wanted, [node("a", {"CPU": 1})], rng=random.Random(0)).fit is Fit.WAITING


class TestLabels:
    @pytest.mark.parametrize("kind", ["DEFAULT", "SPREAD"])
    def test_only_matching_nodes(self, kind: str) -> None:
        nodes = [node("a", {"CPU": 1}, labels={"zone": "x"}), node("b", {"CPU": 1}, labels={"zone": "y"})]
        assert chosen({"CPU": 1}, nodes, kind=kind, labels={"zone": "y"}) == "b"
        assert chosen({"CPU": 1}, nodes, kind=kind, labels={"zone": "!y"}) == "a"
        assert choose({"CPU": 1}, nodes, kind=kind, labels={"zone": "z"}).fit is Fit.INFEASIBLE

    def test_a_full_match_waits(self) -> None:
        nodes = [node("a", {"CPU": 1}), node("b", {"CPU": 1}, {}, labels={"zone": "y"})]
        assert choose({"CPU": 1}, nodes, labels={"zone": "y"}).fit is Fit.WAITING

    def test_preferred_nodes_go_first(self) -> None:
        nodes = [node("a", {"CPU": 1}), node("b", {"CPU": 1}, labels={"zone": "y"})]
        assert chosen({"CPU": 1}, nodes, preferred={"zone": "y"}, local=b"a") == "b"
        assert chosen({"CPU": 1}, nodes, preferred={"zone": "z"}, local=b"a") == "a"

    def test_others_do_while_the_preferred_are_full(self) -> None:
        nodes = [node("a", {"CPU": 1}), node("b", {"CPU": 1}, {}, labels={"zone": "y"})]
        assert chosen({"CPU": 1}, nodes, preferred={"zone": "y"}) == "a"

    def test_fallbacks_are_tried_in_order(self) -> None:
        nodes = [node(name, {"CPU": 1}, labels={"zone": name}) for name in "abc"]
        assert (
            chosen({"CPU": 1}, nodes, labels={"zone": "x"}, fallbacks=({"zone": "y"}, {"zone": "b"})) == "b"
        )
        assert chosen({"CPU": 1}, nodes, labels={"zone": "a"}, fallbacks=({"zone": "b"},)) == "a"

    def test_a_fallback_serves_while_the_first_choice_is_full(self) -> None:
        nodes = [node("a", {"CPU": 1}, {}, labels={"zone": "a"}), node("b", {"CPU": 1}, labels={"zone": "b"})]
        assert chosen({"CPU": 1}, nodes, labels={"zone": "a"}, fallbacks=({"zone": "b"},)) == "b"
        assert chosen({"CPU": 1}, nodes, labels={"zone": "a"}, fallbacks=({},)) == "b"

    def test_with_fallbacks_it_waits_while_any_could_hold_it(self) -> None:
        full = [node("b", {"CPU": 1}, {}, labels={"zone": "b"})]
        wanted = {"labels": {"zone": "a"}, "fallbacks": ({"zone": "b"},)}
        assert choose({"CPU": 1}, full, **wanted).fit is Fit.WAITING
        assert choose({"CPU": 2}, full, **wanted).fit is Fit.INFEASIBLE


class TestBusyAffinity:
    def nodes(self) -> list[NodeView]:
        return [node("a", {"CPU": 1}, {}), node("b", {"CPU": 1})]

    def test_it_spills(self) -> None:
        affinity = {"kind": "NODE_AFFINITY", "node_id": b"a", "soft": True}
        assert choose({"CPU": 1}, self.nodes(), **affinity).fit is Fit.WAITING
        assert chosen({"CPU": 1}, self.nodes(), busy="SPILL", **affinity) == "b"
        assert choose({"CPU": 1}, self.nodes()[:1], busy="SPILL", **affinity).fit is Fit.WAITING

    def test_it_fails(self) -> None:
        affinity = {"kind": "NODE_AFFINITY", "node_id": b"a", "busy": "FAIL"}
        assert choose({"CPU": 1}, self.nodes(), **affinity).fit is Fit.IMPOSSIBLE


amounts = st.dictionaries(st.sampled_from(["CPU", "GPU", "memory", "x"]), st.integers(0, 40_000), max_size=3)


@st.composite
def clusters(draw: st.DrawFn) -> list[NodeView]:
    views = []
    for number in range(draw(st.integers(0, 8))):
        total = draw(amounts)
        free = {name: draw(st.integers(-1, amount)) for name, amount in total.items()}
        views.append(NodeView(bytes([number]), total, free, {}, draw(st.booleans())))
    return views


@given(amounts, clusters(), st.sampled_from(["DEFAULT", "SPREAD"]), st.integers(0, 9))
def test_the_verdict_is_always_true(
    needs: dict[str, int], nodes: list[NodeView], kind: str, seed: int
) -> None:
    choice = choose_node(Request(needs, kind), nodes, rng=random.Random(seed))
    open_nodes = [n for n in nodes if n.schedulable and fits(needs, n.available)]
    feasible = [n for n in nodes if n.schedulable and fits(needs, n.total)]
    if choice.fit is Fit.AVAILABLE:
        assert choice.node_id in {n.node_id for n in open_nodes}
    else:
        assert not open_nodes
        assert choice.fit is (Fit.WAITING if feasible else Fit.INFEASIBLE)


@given(amounts, clusters(), st.integers(0, 7), st.booleans())
def test_affinity_never_goes_astray(
    needs: dict[str, int], nodes: list[NodeView], target: int, soft: bool
) -> None:
    request = Request(needs, "NODE_AFFINITY", bytes([target]), soft)
    choice = choose_node(request, nodes, rng=random.Random(0))
    if choice.fit is Fit.AVAILABLE and not soft:
        assert choice.node_id == bytes([target])
    if soft:
        assert choice.fit is not Fit.IMPOSSIBLE


@given(amounts, clusters())
def test_placement_changes_no_view(needs: dict[str, int], nodes: list[NodeView]) -> None:
    before = [(dict(n.total), dict(n.available)) for n in nodes]
    choose_node(Request(needs), nodes, rng=random.Random(0))
    assert [(n.total, n.available) for n in nodes] == before
