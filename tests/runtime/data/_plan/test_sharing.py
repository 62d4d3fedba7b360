"""What a plan uses twice is computed once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from runtime.data._plan import nodes
from runtime.data._plan.explain import explain
from runtime.data._plan.nodes import GivenBlock, Node, Udf
from runtime.data._plan.rules import fused, optimize
from runtime.data._plan.sharing import SPOOLED_BYTES, merged
from runtime.data.expressions import col, random


class Files:
    """A source of so many bytes."""

    def __init__(self, size_bytes: int | None) -> None:
        self.size_bytes = size_bytes

    def get_name(self) -> str:
        return "Files"

    def estimate_inmemory_data_size(self) -> int | None:
        return self.size_bytes


SMALL, LARGE = nodes.Read(Files(1000)), nodes.Read(Files(SPOOLED_BYTES))
BIG = col("a") > 1


def mapped(source: Node) -> Node:
    return nodes.Transform(source, Udf("map", len))


def joined(left: Node, right: Node) -> Node:
    return nodes.Join(left, right, ("a",), ("a",), "inner")


DECODED = mapped(LARGE)
FEW = mapped(SMALL)

GOLDEN: dict[str, tuple[Node, str]] = {
    "both sides of a join": (
        joined(DECODED, nodes.Filter(DECODED, BIG)),
        "Join[inner on a]\n+- Shared #1\n   +- map(len)\n      +- ReadFiles\n"
        f"+- Filter[{BIG}]\n   +- Shared #1",
    ),
    "a group beside its rows would have to keep them": (
        nodes.Union((nodes.Aggregate(DECODED, ("a",), ()), DECODED)),
        "Union\n+- Aggregate[a: ]\n   +- map(len)\n      +- ReadFiles\n+- map(len)\n   +- ReadFiles",
    ),
    "which few rows may be": (
        nodes.Union((mapped(FEW), mapped(FEW))),
        "Union\n+- map(len)\n   +- Shared #1\n      +- map(len)\n         +- ReadFiles\n"
        "+- map(len)\n   +- Shared #1",
    ),
    "reading again is as good as keeping": (
        nodes.Union((mapped(SMALL), nodes.Filter(SMALL, BIG))),
        f"Union\n+- map(len)->ReadFiles\n+- Filter[{BIG}]\n   +- ReadFiles".replace(
            "map(len)->", "map(len)\n   +- "
        ),
    ),
    "equal sorts are one": (
        joined(nodes.Sort(LARGE, ("a",), (False,)), nodes.Sort(LARGE, ("a",), (False,))),
        "Join[inner on a]\n+- Shared #1\n   +- Sort[a]\n      +- ReadFiles\n+- Shared #1",
    ),
    "functions may give other results each time": (
        joined(mapped(LARGE), mapped(LARGE)),
        "Join[inner on a]\n+- map(len)\n   +- Shared #1\n      +- ReadFiles\n+- map(len)\n   +- Shared #1",
    ),
    "blocks that exist need no sharing": (
        joined(*2 * (nodes.Given((GivenBlock("ref", 1, 8),)),)),
        "Join[inner on a]\n+- Given[1 blocks]\n+- Given[1 blocks]",
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_sharing_has_its_golden_stages(name: str) -> None:
    before, after = GOLDEN[name]
    assert explain(fused(optimize(before))) == after


def test_random_nodes_are_not_merged() -> None:
    def twice(make: Any) -> bool:
        both = merged(nodes.Union((make(), make())))
        return both.inputs[0] is both.inputs[1]

    assert twice(lambda: nodes.Filter(LARGE, BIG))
    assert twice(lambda: nodes.Sample(LARGE, 0.5, seed=1))
    assert twice(lambda: replace(LARGE, blocks=3))
    assert not twice(lambda: nodes.Sample(LARGE, 0.5))
    assert not twice(lambda: nodes.Project(LARGE, (("x", random()),)))
    assert not twice(lambda: nodes.Read(Files(1000)))
