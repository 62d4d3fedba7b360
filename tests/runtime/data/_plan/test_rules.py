"""Rules, by the plans before and after them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from runtime.data._plan import nodes
from runtime.data._plan.explain import explain
from runtime.data._plan.nodes import Compute, GivenBlock, Node, Pool, Udf
from runtime.data._plan.rules import fused, known_rows, optimize
from runtime.data.expressions import col


@dataclass(frozen=True)
class Files:
    """A source that takes everything that can be pushed into it."""

    is_filtered: bool = False

    def get_name(self) -> str:
        return "Files"

    def with_columns(self, columns: list[str]) -> Files:
        return self

    def with_predicate(self, predicate: Any) -> Files:
        return replace(self, is_filtered=True)

    def with_limit(self, limit: int) -> Files:
        return self

    def row_count(self) -> int | None:
        return None if self.is_filtered else 100


class Plain:
    """A source that offers nothing."""

    def get_name(self) -> str:
        return "Plain"


def select(source: Node, *names: str) -> Node:
    return nodes.Project(source, tuple((name, col(name)) for name in names))


def doubled(source: Node, **options: Any) -> Node:
    return nodes.Transform(source, Udf("map_batches", len), **options)


FILES = nodes.Read(Files())
PLAIN = nodes.Read(Plain())
BIG = col("a") > 1

GOLDEN = {
    "a filter goes into the source": (
        nodes.Filter(FILES, BIG),
        f"ReadFiles[where {BIG}]",
    ),
    "and through a selection that keeps its column": (
        nodes.Filter(select(FILES, "a", "b"), BIG),
        f"ReadFiles[columns a, b; where {BIG}]",
    ),
    "not through an expression that makes its column": (
        nodes.Filter(nodes.Project(PLAIN, (("a", col("b") + 1),), True), BIG),
        f"Filter[{BIG}]\n+- With[a={col('b') + 1}]\n   +- ReadPlain",
    ),
    "into both sides of a union": (
        nodes.Filter(nodes.Union((FILES, PLAIN)), BIG),
        f"Union\n+- ReadFiles[where {BIG}]\n+- Filter[{BIG}]\n   +- ReadPlain",
    ),
    "before a sort": (
        nodes.Filter(nodes.Sort(PLAIN, ("a",), (False,)), BIG),
        f"Sort[a]\n+- Filter[{BIG}]\n   +- ReadPlain",
    ),
    "not before a function": (
        nodes.Filter(doubled(FILES), BIG),
        f"Filter[{BIG}]\n+- map_batches(len)\n   +- ReadFiles",
    ),
    "a limit goes before what keeps the number of rows": (
        nodes.Limit(select(nodes.Rename(PLAIN, {"x": "a"}), "a"), 5),
        "Project[a]\n+- Rename[x->a]\n   +- Limit[5]\n      +- ReadPlain",
    ),
    "and into the source, but not away": (
        nodes.Limit(nodes.Limit(FILES, 9), 5),
        "Limit[5]\n+- ReadFiles[limit 5]",
    ),
    "not before a filter": (
        nodes.Limit(nodes.Filter(PLAIN, BIG), 5),
        f"Limit[5]\n+- Filter[{BIG}]\n   +- ReadPlain",
    ),
    "a count does without columns and order": (
        nodes.Count(nodes.Sort(select(PLAIN, "a"), ("a",), (True,))),
        "Count\n+- ReadPlain",
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_rules_have_their_golden_plans(name: str) -> None:
    before, after = GOLDEN[name]
    assert explain(optimize(before)) == after


def test_a_plan_that_no_rule_changes_stays_the_same_object() -> None:
    plan = doubled(nodes.Sort(PLAIN, ("a",), (False,)))
    assert optimize(plan) is plan


def test_steps_that_want_the_same_run_in_one_task() -> None:
    on_gpu = Compute({"num_gpus": 1})
    plan = doubled(nodes.Filter(doubled(doubled(PLAIN, compute=on_gpu)), BIG))
    assert explain(fused(plan)) == (
        f"map_batches(len)->map_batches(len)->Filter[{BIG}]->map_batches(len)\n+- ReadPlain"
    )
    pool = Compute(pool=Pool(1, 2, 1))
    assert explain(fused(doubled(doubled(doubled(PLAIN), compute=pool)))) == (
        "map_batches(len)->map_batches(len)\n+- map_batches(len)\n   +- ReadPlain"
    )


def test_limits_of_given_blocks_need_no_task() -> None:
    given = nodes.Given((GivenBlock("a", 10, 100), GivenBlock("b", 10, 100), GivenBlock("c", 10, 100)))
    limited = optimize(nodes.Limit(given, 15))
    assert isinstance(limited, nodes.Given)
    assert [(block.ref, block.rows, block.size_bytes) for block in limited.blocks] == [
        ("a", 10, 100),
        ("b", 5, 50),
    ]


def test_known_numbers_of_rows() -> None:
    assert known_rows(nodes.Limit(nodes.Union((FILES, FILES)), 150)) == 150
    assert known_rows(optimize(nodes.Filter(FILES, BIG))) is None
    assert known_rows(PLAIN) is None
