"""Expressions that a step uses twice are evaluated once."""

from __future__ import annotations

import pyarrow as pa
import pytest

from runtime.data._exec import local
from runtime.data._plan import nodes
from runtime.data._plan.explain import explain
from runtime.data._plan.nodes import GivenBlock, Node
from runtime.data._plan.rules import optimize
from runtime.data.context import DataContext
from runtime.data.expressions import col, lit, random

GIVEN = nodes.Given((GivenBlock("ref", 3, 24),))
SUM = col("a") + col("b")
DOUBLE = SUM * 2


def made(source: Node, **columns: object) -> Node:
    return nodes.Project(source, tuple(columns.items()), True)


GOLDEN: dict[str, tuple[Node, str]] = {
    "in one column": (
        made(GIVEN, x=SUM * SUM),
        "Drop[__common_0]\n+- With[x=(col('__common_0') * col('__common_0'))]\n"
        f"   +- With[__common_0={SUM}]\n      +- Given[1 blocks]",
    ),
    "in two columns, with what they have in common with it": (
        made(GIVEN, x=DOUBLE + 1, y=DOUBLE - 1, z=SUM),
        "Drop[__common_1, __common_0]\n"
        "+- With[x=(col('__common_0') + 1), y=(col('__common_0') - 1), z=col('__common_1')]\n"
        "   +- With[__common_0=(col('__common_1') * 2)]\n"
        f"      +- With[__common_1={SUM}]\n         +- Given[1 blocks]",
    ),
    "in columns that are made one after another": (
        made(made(GIVEN, x=SUM), y=SUM - 1),
        "Drop[__common_0]\n+- With[x=col('__common_0'), y=(col('__common_0') - 1)]\n"
        f"   +- With[__common_0={SUM}]\n      +- Given[1 blocks]",
    ),
    "not if the second reads the first": (
        made(made(GIVEN, a=SUM), y=SUM),
        f"With[y={SUM}]\n+- With[a={SUM}]\n   +- Given[1 blocks]",
    ),
    "in a selection": (
        nodes.Project(GIVEN, (("x", SUM), ("y", SUM))),
        "Project[x=col('__common_0'), y=col('__common_0')]\n"
        f"+- With[__common_0={SUM}]\n   +- Given[1 blocks]",
    ),
    "in a filter": (
        nodes.Filter(GIVEN, (SUM > 1) & (SUM < 5)),
        "Drop[__common_0]\n+- Filter[((col('__common_0') > 1) & (col('__common_0') < 5))]\n"
        f"   +- With[__common_0={SUM}]\n      +- Given[1 blocks]",
    ),
    "not random numbers, nor what has no columns": (
        made(GIVEN, x=random() + random(), y=(lit(1) + 1) * (lit(1) + 1)),
        f"With[x={random() + random()}, y={(lit(1) + 1) * (lit(1) + 1)}]\n+- Given[1 blocks]",
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_common_expressions_have_their_golden_plans(name: str) -> None:
    before, after = GOLDEN[name]
    assert explain(optimize(before)) == after


def test_the_values_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"a": [1, 2, 3], "b": [1, 1, 1]})
    monkeypatch.setattr(local, "_given", lambda blocks: iter([rows]))
    plan = nodes.Filter(made(made(GIVEN, x=DOUBLE + 1, y=DOUBLE - 1, z=SUM), w=SUM), (SUM > 2) & (SUM < 5))
    (table,) = local.tables(optimize(plan), DataContext())
    assert table.to_pydict() == {
        "a": [2, 3], "b": [1, 1], "x": [7, 9], "y": [5, 7], "z": [3, 4], "w": [3, 4],
    }  # fmt: skip
