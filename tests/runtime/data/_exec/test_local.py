"""Which plans run in this process, as a whole or after their functions have run as tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from runtime.data._exec import local
from runtime.data._plan import nodes
from runtime.data._plan.nodes import GivenBlock, Node, Udf
from runtime.data.context import DataContext

SMALL = nodes.Given((GivenBlock("small", 10, 100),))
LARGE = nodes.Given((GivenBlock("large", 10, 1 << 50),))
CONTEXT = DataContext()


def mapped(source: Node) -> Node:
    return nodes.Transform(source, Udf("map", len))


def joined(left: Node, right: Node) -> Node:
    return nodes.Join(left, right, ("a",), ("a",), "inner")


def gathered(node: Node) -> list[Node]:
    return local.gathered(node, CONTEXT)


def test_functions_run_as_tasks_and_joins_of_their_rows_here() -> None:
    left, right = mapped(SMALL), nodes.Aggregate(mapped(SMALL), ("a",), ())
    plan = nodes.Limit(nodes.Sort(joined(left, joined(SMALL, right)), ("a",), (False,)), 10)
    assert not local.can_run(plan, CONTEXT)
    assert gathered(plan) == [left, right]


def test_not_without_joins_nor_with_much_input_nor_above_functions() -> None:
    assert gathered(nodes.Sort(mapped(SMALL), ("a",), (False,))) == []
    assert gathered(joined(mapped(LARGE), SMALL)) == []
    assert gathered(mapped(joined(SMALL, SMALL))) == []
    assert gathered(joined(SMALL, SMALL)) == []
    context = DataContext(local_bytes_per_core=0)
    assert local.gathered(joined(mapped(SMALL), SMALL), context) == []


def test_a_function_that_both_sides_need_runs_once_so_not_here() -> None:
    both = mapped(SMALL)
    assert gathered(joined(both, mapped(both))) == []


def test_a_part_that_is_read_twice_runs_once(monkeypatch: Any) -> None:
    reads: list[str] = []

    def given(blocks: tuple[GivenBlock, ...]) -> Iterator[pa.Table]:
        reads.append(blocks[0].ref)
        yield pa.table({"a": [3, 1, 2]})

    monkeypatch.setattr(local, "_given", given)
    ordered = nodes.Sort(SMALL, ("a",), (False,))
    tables = local.tables(nodes.Union((ordered, nodes.Limit(ordered, 1))), CONTEXT)
    assert [value for table in tables for value in table["a"].to_pylist()] == [1, 2, 3, 1]
    assert reads == ["small"]
