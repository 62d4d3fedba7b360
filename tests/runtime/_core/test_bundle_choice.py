"""Which bundle a request for any bundle of a group takes, on a node and among nodes."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from runtime._core.bundle_choice import any_bundle, preference
from runtime._core.ledger import Allocation, Ledger
from runtime._core.placement import Choice, Fit, NodeView, Request, choose_node, rewrite_for_group
from runtime._core.resources import subtract, to_units

PG = bytes(range(18))
HEX = PG.hex()

Bundles = Sequence[Mapping[str, float]]
CPU = {"CPU": 1.0}
GPU = {"CPU": 1.0, "GPU": 1.0}


class Nodes:
    """Nodes that hold the bundles of one group, and what their placer knows of them."""

    def __init__(self, *bundles_by_node: Bundles) -> None:
        self.ledgers: dict[bytes, Ledger] = {}
        index = 0
        for number, bundles in enumerate(bundles_by_node):
            ledger = Ledger(to_units({"CPU": 100, "GPU": 100, "memory": 100, "widget": 100}))
            for bundle in bundles:
                assert ledger.reserve_bundles(PG, [(index, to_units(dict(bundle)))])
                index += 1
            self.ledgers[bytes([number])] = ledger
        self.views = [
            NodeView(node_id, dict(ledger.total), dict(ledger.available))
            for node_id, ledger in self.ledgers.items()
        ]

    def choose(self, needs: Mapping[str, float], index: int = -1) -> Choice:
        request = rewrite_for_group(to_units(dict(needs)), HEX, index)
        return choose_node(Request(request), self.views, local=b"\x00", rng=random.Random(0))

    def place(self, needs: Mapping[str, float], index: int = -1) -> int | None:
        """Places it as the control store does, which deducts before the node reports. The bundle it got."""
        choice = self.choose(needs, index)
        if choice.fit is not Fit.AVAILABLE:
            return None
        request = rewrite_for_group(to_units(dict(needs)), HEX, index)
        allocation = self.ledgers[choice.node_id].allocate(request)
        assert allocation is not None, "the placer thought that there was room"
        subtract(self.views[choice.node_id[0]].available, request)
        assert allocation.bundle is not None
        return allocation.bundle[1]


def test_cpu_work_leaves_the_bundle_with_the_gpu_alone() -> None:
    for bundles in ([GPU, CPU], [CPU, GPU]):
        nodes = Nodes(bundles)
        assert nodes.place(CPU) == bundles.index(CPU)
        assert nodes.place(GPU) == bundles.index(GPU)


def test_so_it_does_on_other_nodes() -> None:
    for bundles in ([GPU, CPU], [CPU, GPU]):
        nodes = Nodes(*([bundle] for bundle in bundles))
        assert nodes.place(CPU) == bundles.index(CPU)
        assert nodes.place(GPU) == bundles.index(GPU)


def test_it_takes_the_bundle_with_the_gpu_when_nothing_else_is_left() -> None:
    nodes = Nodes([GPU, CPU])
    assert [nodes.place(CPU) for _ in range(3)] == [1, 0, None]


def test_accelerators_count_more_than_other_resources() -> None:
    assert Nodes([GPU, {"CPU": 1, "memory": 1, "widget": 1}]).place(CPU) == 1
    assert Nodes([{"CPU": 1, "widget": 1}, CPU]).place(CPU) == 1


def test_work_without_resources_leaves_the_gpu_alone_too() -> None:
    nodes = Nodes([GPU, CPU])
    assert [nodes.place({}) for _ in range(3)] == [1, 1, 1]


def test_the_best_fit_among_equals() -> None:
    for bundles in ([{"CPU": 4}, {"CPU": 1}], [{"CPU": 1}, {"CPU": 4}]):
        for nodes in (Nodes(bundles), Nodes(*([bundle] for bundle in bundles))):
            assert nodes.place(CPU) == bundles.index({"CPU": 1})
            assert nodes.place({"CPU": 4}) == bundles.index({"CPU": 4})


def test_arguments_matter_more_than_the_best_fit_and_less_than_a_gpu() -> None:
    for bundle, expected in (({"CPU": 4.0}, b"\x01"), (GPU, b"\x00")):
        nodes = Nodes([CPU], [bundle])
        request = Request(rewrite_for_group(to_units(CPU), HEX, -1))
        choice = choose_node(request, nodes.views, locality={b"\x01": 1000}, rng=random.Random(0))
        assert choice.node_id == expected


def test_a_node_whose_bundles_are_too_full_one_by_one_is_left_out() -> None:
    nodes = Nodes([CPU, CPU], [{"CPU": 2}])
    assert nodes.place({"CPU": 2}) == 2
    assert nodes.choose({"CPU": 2}).fit is Fit.WAITING


def test_what_was_placed_since_the_last_report_counts() -> None:
    nodes = Nodes([GPU, CPU], [CPU])
    assert {nodes.place(CPU), nodes.place(CPU)} == {1, 2}
    assert nodes.place(GPU) == 0


def test_a_named_bundle_is_the_one() -> None:
    nodes = Nodes([GPU, CPU])
    assert nodes.place(CPU, index=0) == 0
    assert nodes.place(CPU, index=0) is None


def test_which_requests_are_for_any_bundle() -> None:
    assert any_bundle({"CPU": 1}) is None
    assert any_bundle(rewrite_for_group({"CPU": 1}, HEX, 0)) is None
    assert any_bundle(rewrite_for_group({"CPU": 1, "GPU": 2}, HEX, -1)) == ({"CPU": 1, "GPU": 2}, HEX)


amounts = st.dictionaries(st.sampled_from(["CPU", "GPU", "memory", "widget"]), st.integers(1, 3), max_size=3)
groups = st.lists(st.lists(amounts.filter(bool), min_size=1, max_size=3), min_size=1, max_size=3)


@given(groups, st.lists(amounts, max_size=6))
def test_nothing_takes_more_kinds_than_it_must(
    bundles_by_node: list[list[dict[str, float]]], requests: list[dict[str, float]]
) -> None:
    """As nobody leaves, a placer that has not heard of the last placements sees the same as one that has."""
    nodes = Nodes(*bundles_by_node)
    bundles = [dict(bundle) for on_node in bundles_by_node for bundle in on_node]
    left = [dict(bundle) for bundle in bundles]
    for needs in requests:
        needed = {name: amount for name, amount in needs.items() if amount}
        able = [
            index
            for index, free in enumerate(left)
            if all(free.get(name, 0) >= amount for name, amount in needed.items())
        ]
        request = rewrite_for_group(to_units(needs), HEX, -1)
        choice = choose_node(Request(request), _views(nodes), rng=random.Random(0))
        if choice.fit is not Fit.AVAILABLE:
            assert not able
            continue
        allocation = nodes.ledgers[choice.node_id].allocate(request)
        assert allocation is not None
        index = _bundle(allocation)
        taken = bundles[index].keys()
        assert not [other for other in able if needed.keys() <= bundles[other].keys() < taken]
        for name, amount in needed.items():
            left[index][name] -= amount


@given(amounts.filter(bool), amounts.filter(bool))
def test_less_is_always_better(needs: dict[str, int], more: dict[str, int]) -> None:
    bigger = {**needs, **more}
    if bigger.keys() > needs.keys():
        assert preference(needs, needs, needs) < preference(needs, bigger, bigger)


def _views(nodes: Nodes) -> list[NodeView]:
    return [NodeView(node_id, one.total, one.available) for node_id, one in nodes.ledgers.items()]


def _bundle(allocation: Allocation) -> int:
    assert allocation.bundle is not None
    return allocation.bundle[1]
