"""Expressions that a step uses twice are evaluated once: into a column of their own, before the step.

Only those are taken out that give the same again (`is_idempotent`): not functions of the user, nor random numbers.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

from .nodes import Drop, Filter, Node, Project

PREFIX = "__common_"
"""What the names of the columns begin with."""


def together(node: Node) -> Node:
    """Columns that are made one after another, and do not read each other, are made in one step."""
    if not isinstance(node, Project) or not isinstance(node.source, Project):
        return node
    below = node.source
    if not (node.keeps_others and below.keeps_others and node.compute == below.compute):
        return node
    made, names = {name for name, _ in below.columns}, {name for name, _ in node.columns}
    read = {column for _, expr in (*node.columns, *below.columns) for column in expr.columns()}
    if made & (names | read) or names & read:
        return node
    return dataclasses.replace(below, columns=(*below.columns, *node.columns))


def once(node: Node) -> Node:
    """A step without an expression that it uses twice."""
    match node:
        case Project(source, columns, keeps_others):
            found, values = _taken_out([expr for _, expr in columns])
            if not found:
                return node
            names = [name for name, _ in columns]
            made = dataclasses.replace(
                node,
                source=_with(source, found, node.compute),
                columns=tuple(zip(names, values, strict=True)),
            )
            return Drop(made, tuple(name for name, _ in found)) if keeps_others else made
        case Filter(source, predicate):
            found, (value,) = _taken_out([predicate])
            if not found:
                return node
            kept = dataclasses.replace(node, source=_with(source, found, node.compute), predicate=value)
            return Drop(kept, tuple(name for name, _ in found))
    return node


def _with(source: Node, found: Sequence[tuple[str, Any]], compute: Any) -> Node:
    """A step for each column, as one may read another."""
    for column in found:
        source = Project(source, (column,), True, compute)
    return source


def _taken_out(expressions: list[Any]) -> tuple[list[tuple[str, Any]], list[Any]]:
    """Columns for what occurs twice, in the order in which they are made, and the expressions that read them."""
    from runtime.data.expressions import col

    values = expressions
    found: list[tuple[str, Any]] = []
    while (repeated := _repeated([*values, *(expr for _, expr in found)])) is not None:
        name, key = f"{PREFIX}{len(found)}", repeated.fingerprint()
        values = [_replaced(expr, key, col(name)) for expr in values]
        found = [(other, _replaced(expr, key, col(name))) for other, expr in found]
        found.insert(0, (name, repeated))  # those found before may read it
    return found, values


def _repeated(expressions: list[Any]) -> Any:
    """A largest part that occurs twice; None if there is none."""
    counts: Counter[Hashable] = Counter()
    for expr in expressions:
        _count(expr, counts)
    return next((each for expr in expressions if (each := _largest(expr, counts)) is not None), None)


def _is_worth_it(expr: Any) -> bool:
    """Whether it computes something of columns, and the same each time. An alias has no value of its own."""
    return expr.name is None and bool(expr.children()) and bool(expr.columns()) and bool(expr.is_idempotent())


def _count(expr: Any, counts: Counter[Hashable]) -> None:
    if _is_worth_it(expr):
        counts[expr.fingerprint()] += 1
    for each in expr.children():
        _count(each, counts)


def _largest(expr: Any, counts: Counter[Hashable]) -> Any:
    """The first part of an expression that occurs twice, and is no part of another such part."""
    if _is_worth_it(expr) and counts[expr.fingerprint()] > 1:
        return expr
    return next((each for child in expr.children() if (each := _largest(child, counts)) is not None), None)


def _replaced(expr: Any, key: Hashable, by: Any) -> Any:
    if expr.fingerprint() == key:
        return by
    children = expr.children()
    return expr.with_children([_replaced(each, key, by) for each in children]) if children else expr
