"""Rows on their way between operators, and the work that operators have to do. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from runtime._controllers.controller import Key

Order = tuple[int, ...]
"""The place of rows in the result. What is made of a piece of work at (3,) lies at (3, 0), (3, 1) and so on."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """Some rows of one block.

    `key`: of the block; several bundles may be parts of one. `source`: what stands for the block among the arguments
    of a task: a `ResultOf`, a reference, or a table. `size_bytes`: of these rows. `start`: the first of them in the
    block. `metadata`: what the task that made the block has sent along.
    """

    key: Key
    source: Any
    rows: int
    size_bytes: int
    order: Order = ()
    start: int = 0
    metadata: Mapping[str, Any] = field(default_factory=dict)
    is_given: bool = False

    def part(self, start: int, rows: int) -> Bundle:
        """`rows` of these rows, from `start` on."""
        size_bytes = self.size_bytes * rows // self.rows if self.rows else 0
        return replace(self, start=self.start + start, rows=rows, size_bytes=size_bytes)

    def at(self, order: Order) -> Bundle:
        """The same rows at another place of the result."""
        return replace(self, order=order)


@dataclass(frozen=True, slots=True)
class Work:
    """One task of a stage. `args`: what it gets besides its inputs; small. `skip`: blocks that an earlier attempt has
    delivered. `tries`: attempts that failed because a process or node died. `is_parked`: its inputs do not count as
    held: a barrier has collected them."""

    order: Order
    inputs: tuple[Bundle, ...] = ()
    args: tuple[Any, ...] = ()
    skip: int = 0
    tries: int = 0
    is_parked: bool = False

    @property
    def told(self) -> str:
        """What the task gets, in words."""
        metadata = getattr(self.args[0], "metadata", None) if self.args and not self.inputs else None
        files = getattr(metadata, "input_files", None)
        if files:
            return f"reads {files[0]}" + (f" and {len(files) - 1} more files" if len(files) > 1 else "")
        if not self.inputs:
            return f"is number {self.order[0]} of those that read"
        rows, size_bytes = (
            sum(getattr(each, name) for each in self.inputs) for name in ("rows", "size_bytes")
        )
        return f"has {rows} rows ({size_bytes >> 20} MiB) of input"
