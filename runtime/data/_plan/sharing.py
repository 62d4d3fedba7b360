"""What a plan uses twice is computed once: `merged` makes equal sub-plans one node, `shared` marks the nodes that have
several readers, so that no reader takes their steps into its own tasks.

A node is only shared where that needs no more memory than computing it again: where its readers collect all of their
input anyway (joins, sorts, groups), or where its sources are small (`SPOOLED_BYTES`). Functions of the user may give
other results each time, so two nodes that apply one are never merged; a node that is used twice runs it once.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from .nodes import (
    Aggregate,
    Compute,
    Filter,
    Given,
    Join,
    MapGroups,
    Node,
    Pool,
    Project,
    Read,
    Repartition,
    Sample,
    Shared,
    Shuffle,
    Sort,
    Transform,
    Write,
    Zip,
)

SPOOLED_BYTES = 256 << 20
"""Sources of so many bytes are small."""
COLLECTING = (Zip, Repartition, Shuffle, Sort, Aggregate, MapGroups, Join)
"""Nodes that keep all of their input before they give anything."""


def merged(node: Node) -> Node:
    """The plan with one node for all equal ones."""
    known: dict[Hashable, Node] = {}
    done: dict[int, Node] = {}

    def visit(node: Node) -> Node:
        if id(node) not in done:
            made = node.with_inputs([visit(each) for each in node.inputs])
            done[id(node)] = known.setdefault(_key(made), made) if _is_repeatable(made) else made
        return done[id(node)]

    return visit(node)


def _is_repeatable(node: Node) -> bool:
    """Whether a node over the same rows gives the same rows again."""
    if isinstance(node, Transform | MapGroups | Write):
        return False
    if isinstance(node, Sample | Shuffle):
        return node.seed is not None
    if isinstance(node, Project):
        return all(expr.is_idempotent() for _, expr in node.columns)
    return not isinstance(node, Filter) or bool(node.predicate.is_idempotent())


def _key(value: Any) -> Hashable:
    """Equal for equal things; for what cannot be compared the thing itself counts."""
    if hasattr(value, "fingerprint"):
        return ("expression", value.fingerprint())
    if isinstance(value, tuple | list):
        if value and all(isinstance(each, Node) for each in value):
            return ("nodes", *map(id, value))
        return (type(value).__name__, *map(_key, value))
    if isinstance(value, Mapping):
        return ("mapping", *((name, _key(each)) for name, each in value.items()))
    if isinstance(value, str | int | float | bool | None):
        return (type(value).__name__, value)
    if isinstance(value, Node | Compute | Pool):
        parts = (getattr(value, each.name) for each in dataclasses.fields(value))
        return (type(value).__name__, *(id(part) if isinstance(part, Node) else _key(part) for part in parts))
    return ("identity", id(value))


def used_twice(node: Node) -> frozenset[int]:
    """The ids of the nodes that have several readers."""
    uses = Counter[int]()
    seen: set[int] = set()

    def count(node: Node) -> None:
        if id(node) in seen:
            return
        seen.add(id(node))
        for each in node.inputs:
            uses[id(each)] += 1
            count(each)

    count(node)
    return frozenset(key for key, number in uses.items() if number > 1)


def shared(node: Node) -> Node:
    """The plan with a `Shared` over each node that is worth it."""
    twice = used_twice(node)
    in_order: set[int] = (
        set()
    )  # read on the way to the consumer, with nothing between that collects its input

    def follow(node: Node) -> None:
        for each in () if isinstance(node, COLLECTING) else node.inputs:
            if id(each) not in in_order:
                in_order.add(id(each))
                follow(each)

    follow(node)

    def mark(node: Node, made: Node) -> Node:
        if id(node) not in twice or isinstance(node, Given | Shared):
            return made
        if id(node) not in in_order:
            return Shared(made)
        is_small = (source_bytes(node) or SPOOLED_BYTES) < SPOOLED_BYTES
        return Shared(made, keeps=True) if is_small and _computes(node) else made

    return _mapped(node, mark)


def _mapped(node: Node, change: Callable[[Node, Node], Node]) -> Node:
    """The plan with each node replaced by what `change` makes of it and of its copy with changed inputs."""
    done: dict[int, Node] = {}

    def visit(node: Node) -> Node:
        if id(node) not in done:
            done[id(node)] = change(node, node.with_inputs([visit(each) for each in node.inputs]))
        return done[id(node)]

    return visit(node)


def replaced(node: Node, by: Mapping[int, Node]) -> Node:
    """The plan with other nodes in place of some, by their ids."""
    return by[id(node)] if id(node) in by else node.with_inputs([replaced(each, by) for each in node.inputs])


def source_bytes(node: Node) -> int | None:
    """The bytes of all sources of a node, if they are known."""
    if isinstance(node, Given):
        return sum(block.size_bytes for block in node.blocks)
    if isinstance(node, Read):
        size = getattr(node.source, "estimate_inmemory_data_size", lambda: None)()
        return None if size is None else int(size)
    sizes = [source_bytes(each) for each in node.inputs]
    return None if None in sizes else sum(size or 0 for size in sizes)


def _computes(node: Node) -> bool:
    """Whether more is done than reading and choosing columns or rows."""
    return isinstance(node, (Transform, *COLLECTING)) or any(map(_computes, node.inputs))


__all__ = ["SPOOLED_BYTES", "merged", "replaced", "shared", "source_bytes", "used_twice"]
