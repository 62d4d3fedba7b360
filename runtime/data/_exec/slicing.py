"""Parts of given blocks by numbers of rows. Pure."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from runtime.data._plan.nodes import GivenBlock


def between(blocks: Sequence[GivenBlock], start: int, end: int) -> tuple[GivenBlock, ...]:
    """The rows from `start` to `end` of all blocks together."""
    parts: list[GivenBlock] = []
    at = 0
    for block in blocks:
        low, high = max(start, at), min(end, at + block.rows)
        if low < high:
            size_bytes = block.size_bytes * (high - low) // block.rows
            parts.append(
                dataclasses.replace(
                    block, start=block.start + low - at, rows=high - low, size_bytes=size_bytes
                )
            )
        at += block.rows
    return tuple(parts)


def in_parts(blocks: Sequence[GivenBlock], borders: Sequence[int]) -> list[tuple[GivenBlock, ...]]:
    """The rows between each two neighbouring borders."""
    return [between(blocks, start, end) for start, end in itertools.pairwise(borders)]
