"""Leaves the first rows of a plan's result out without reading them, as far as numbers of rows are known. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from runtime.data.io.skipping import WithoutFirst

from .nodes import Drop, Given, GivenBlock, Node, Project, Read, Rename, Transform


def without_first_rows(node: Node, rows: int) -> tuple[Node, int]:
    """The plan without the first rows of its result, and how many of these it still gives.

    Args:
        node: after the logical rules.
    """
    if not rows:
        return node, 0
    match node:
        case Given(blocks, schema):
            return Given(_after(blocks, rows), schema), 0
        case Read(source, limit=None) if WithoutFirst.can_skip(source):
            return dataclasses.replace(node, source=WithoutFirst(source, rows)), 0
        case Project() | Rename() | Drop():
            source, left = without_first_rows(node.source, rows)
            return node.with_inputs([source]), left
        case Transform(udf=udf) if udf.kind == "map":
            source, left = without_first_rows(node.source, rows)
            return node.with_inputs([source]), left
    return node, rows


def _after(blocks: Sequence[GivenBlock], rows: int) -> tuple[GivenBlock, ...]:
    kept: list[GivenBlock] = []
    for block in blocks:
        dropped = min(rows, block.rows)
        rows -= dropped
        if dropped < block.rows or not block.rows:
            left = block.rows - dropped
            size_bytes = block.size_bytes * left // max(1, block.rows)
            kept.append(
                dataclasses.replace(block, start=block.start + dropped, rows=left, size_bytes=size_bytes)
            )
    return tuple(kept)
