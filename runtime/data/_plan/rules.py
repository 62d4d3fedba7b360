"""Rules that rewrite plans: functions of a node whose inputs are rewritten already. `optimize` applies them until
nothing changes.

Rules see the datasource by what it offers (`with_columns`, `with_predicate`, `with_limit`, `row_count`) and expressions
by their columns.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from .common import once, together
from .nodes import (
    BY_BLOCK,
    Chain,
    Compute,
    Count,
    Drop,
    Filter,
    Given,
    GivenBlock,
    Limit,
    Node,
    Project,
    Read,
    Rebatch,
    Rename,
    Repartition,
    Shuffle,
    Sort,
    Steps,
    Transform,
    Union,
)
from .sharing import merged, shared

Rule = Callable[[Node], Node]
ROUNDS = 50
"""More rounds than any plan needs: a rule that undoes another is a bug."""


def optimize(node: Node) -> Node:
    """The plan after all logical rules."""
    return _until_stable(_until_stable(merged(node), LOGICAL), (once,))


def fused(node: Node) -> Node:
    """The plan with steps that can run in one task put together, and what has several readers set apart."""
    return _until_stable(shared(node), (fuse,))


def _until_stable(node: Node, rules: Sequence[Rule]) -> Node:
    for _ in range(ROUNDS):
        after = _rewritten(node, rules, {})
        if after is node:
            return node
        node = after
    raise AssertionError("the rules undo each other")


def _rewritten(node: Node, rules: Sequence[Rule], done: dict[int, Node]) -> Node:
    """A node that is read by several is rewritten once."""
    known = done.get(id(node))
    if known is not None:
        return known
    result = node.with_inputs([_rewritten(each, rules, done) for each in node.inputs])
    for rule in rules:
        result = rule(result)
    done[id(node)] = result
    return result


# ---------------------------------------------------------------- predicates


def push_filter(node: Node) -> Node:
    """Filters go before what neither makes their columns nor depends on which rows there are."""
    if not isinstance(node, Filter) or node.compute != Compute():
        return node
    below, wanted = node.source, node.predicate.columns()
    match below:
        case Read(source) if hasattr(source, "with_predicate"):
            narrowed = source.with_predicate(node.predicate)
            if narrowed is None:
                return node
            return dataclasses.replace(below, source=narrowed, predicates=(*below.predicates, node.predicate))
        case Project(columns=columns, keeps_others=keeps_others):
            made = dict(columns)
            plain = {name for name, expr in columns if _is_column(expr, name)}
            if wanted <= plain or (keeps_others and not wanted & made.keys()):
                return _swap(node, below)
        case Sort() | Repartition() | Shuffle(rows_too=False):
            return _swap(node, below)
        case Drop(columns=columns) if not wanted & set(columns):
            return _swap(node, below)
        case Rename(names=names) if not wanted & {*names, *names.values()}:
            return _swap(node, below)
        case Union(sources):
            return Union(tuple(dataclasses.replace(node, source=each) for each in sources))
    return node


def _swap(upper: Any, lower: Any) -> Node:
    """Two nodes with one input each, the other way round."""
    return lower.with_inputs([dataclasses.replace(upper, source=lower.source)])  # type: ignore[no-any-return]


def _is_column(expr: Any, name: str) -> bool:
    return bool(
        getattr(expr, "name", None) == name
        and expr.columns() == {name}
        and type(expr).__name__ == "ColumnExpr"
    )


# ---------------------------------------------------------------- columns


def push_columns(node: Node) -> Node:
    """A selection of columns goes into the source; through filters and limits, whose own columns are read as well."""
    if not isinstance(node, Project) or node.keeps_others or node.compute != Compute():
        return node
    needed: set[str] = set().union(*(expr.columns() for _, expr in node.columns))
    path: list[Node] = []
    below = node.source
    while isinstance(below, (Filter, Limit)):
        if isinstance(below, Filter):
            needed |= below.predicate.columns()
        path.append(below)
        below = below.source
    if not isinstance(below, Read) or not hasattr(below.source, "with_columns") or not needed:
        return node
    ordered = [name for name, expr in node.columns if _is_column(expr, name)]
    columns = tuple(dict.fromkeys([*ordered, *sorted(needed)]))
    if below.columns == columns:
        return node
    narrowed = below.source.with_columns(list(columns))
    if narrowed is None:
        return node
    result: Node = dataclasses.replace(below, source=narrowed, columns=columns)
    if not path and len(ordered) == len(node.columns) == len(columns):
        return result
    for each in reversed(path):
        result = each.with_inputs([result])
    return node.with_inputs([result])


# ---------------------------------------------------------------- limits


def push_limit(node: Node) -> Node:
    """Limits go before what keeps the number of rows, and into sources that can stop early."""
    if not isinstance(node, Limit):
        return node
    below = node.source
    match below:
        case Limit(source, rows):
            return Limit(source, min(rows, node.rows))
        case Project() | Rename() | Drop():
            return below.with_inputs([Limit(below.source, node.rows)])
        case Transform(udf=udf) if udf.kind == "map":
            return below.with_inputs([Limit(below.source, node.rows)])
        case Read(source) if hasattr(source, "with_limit") and (
            below.limit is None or below.limit > node.rows
        ):
            narrowed = source.with_limit(node.rows)
            if narrowed is None:
                return node
            return node.with_inputs([dataclasses.replace(below, source=narrowed, limit=node.rows)])
        case Given(blocks, schema):
            return Given(_first(blocks, node.rows), schema)
    return node


def _first(blocks: Sequence[GivenBlock], rows: int) -> tuple[GivenBlock, ...]:
    kept: list[GivenBlock] = []
    for block in blocks:
        if rows <= 0:
            break
        taken = min(rows, block.rows)
        size_bytes = block.size_bytes * taken // max(1, block.rows)
        kept.append(dataclasses.replace(block, rows=taken, size_bytes=size_bytes))
        rows -= taken
    return tuple(kept)


# ---------------------------------------------------------------- counts


def push_count(node: Node) -> Node:
    """A count does not need what keeps the number of rows."""
    if not isinstance(node, Count):
        return node
    below = node.source
    match below:
        case Project() | Rename() | Drop() | Sort() | Shuffle() | Repartition():
            return Count(below.source)
        case Transform(udf=udf) if udf.kind == "map":
            return node  # the function may fail, and has effects
    return node


def known_rows(node: Node) -> int | None:
    """How many rows a node gives, if that is known without running it."""
    match node:
        case Given(blocks):
            return sum(block.rows for block in blocks)
        case Read(source) if hasattr(source, "row_count"):
            count = source.row_count()
            return None if count is None else int(count)
        case Limit(below, rows):
            count = known_rows(below)
            return None if count is None else min(count, rows)
        case Union(sources):
            counts = [known_rows(each) for each in sources]
            return None if None in counts else sum(count or 0 for count in counts)
        case Project() | Rename() | Drop() | Sort() | Shuffle() | Repartition():
            return known_rows(node.inputs[0])
    return None


# ---------------------------------------------------------------- fusion


def fuse(node: Node) -> Node:
    """Steps that need one block at a time run in the task that makes the block, if they want the same resources."""
    if isinstance(node, BY_BLOCK):
        compute = getattr(node, "compute", Compute())
        return Chain(node.inputs[0], Steps((node,)), compute)
    if isinstance(node, Chain) and isinstance(node.source, Chain):
        below = node.source
        if isinstance(below.steps.nodes[-1], Rebatch):
            return node  # its blocks are to be worked on side by side
        if below.compute.pool is not None and node.compute == Compute():
            return Chain(below.source, Steps((*below.steps.nodes, *node.steps.nodes)), below.compute)
        if node.compute.pool is None and below.compute.pool is None and _agree(below.compute, node.compute):
            compute = node.compute if below.compute == Compute() else below.compute
            return Chain(below.source, Steps((*below.steps.nodes, *node.steps.nodes)), compute)
    return node


def _agree(first: Compute, second: Compute) -> bool:
    return first == second or first == Compute() or second == Compute()


LOGICAL: tuple[Rule, ...] = (push_filter, push_columns, push_limit, push_count, together)
__all__ = ["fuse", "fused", "known_rows", "optimize"]
