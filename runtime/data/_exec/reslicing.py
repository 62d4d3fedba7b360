"""Operations that only cut or reorder blocks: repartitioning into so many blocks, zips, blocks in random order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .bundles import Bundle, Work
from .steps import Attempt, Ready, Tables

if TYPE_CHECKING:
    import pyarrow as pa


def sliced(bundles: Sequence[Bundle], start: int, end: int) -> list[Bundle]:
    """The rows from `start` to `end` of all bundles together."""
    result: list[Bundle] = []
    at = 0
    for bundle in bundles:
        low, high = max(start, at), min(end, at + bundle.rows)
        if low < high:
            result.append(bundle.part(low - at, high - low))
        at += bundle.rows
    return result


@dataclass(frozen=True)
class Evenly:
    """The same rows, in order, in so many blocks of nearly equal size."""

    blocks: int

    def __call__(self, inputs: Sequence[Sequence[Bundle]]) -> list[Work]:
        bundles = inputs[0]
        rows = sum(bundle.rows for bundle in bundles)
        if not bundles:
            return []
        empty = (bundles[0].part(0, 0),)
        return [
            Work(
                (i,), tuple(sliced(bundles, rows * i // self.blocks, rows * (i + 1) // self.blocks)) or empty
            )
            for i in range(self.blocks)
        ]


@dataclass(frozen=True)
class Grouped:
    """Neighbouring blocks together, up to so many bytes: small ones are not worth a task each."""

    target_bytes: int

    def __call__(self, inputs: Sequence[Sequence[Bundle]]) -> list[Work]:
        works: list[Work] = []
        group: list[Bundle] = []
        total = 0
        for bundle in inputs[0]:
            if group and total + bundle.size_bytes > self.target_bytes:
                works.append(Work((len(works),), tuple(group)))
                group, total = [], 0
            group.append(bundle)
            total += bundle.size_bytes
        return [*works, Work((len(works),), tuple(group))] if group else works


@dataclass(frozen=True)
class Reordered:
    """The same blocks in random order."""

    seed: int | None

    def __call__(self, inputs: Sequence[Sequence[Bundle]]) -> list[Work]:
        import random

        bundles = list(inputs[0])
        random.Random(self.seed).shuffle(bundles)
        return [Work((i,), (bundle,)) for i, bundle in enumerate(bundles)]


def unequal(rows: Sequence[int]) -> str:
    """What is wrong with a zip."""
    return f"zip needs data sets of the same number of rows, not {', '.join(map(str, rows))}."


def zipped(inputs: Sequence[Sequence[Bundle]]) -> list[Work]:
    """Pieces of all inputs with the same rows, cut as the first input is.

    Raises:
        ValueError: they have different numbers of rows.
    """
    totals = [sum(bundle.rows for bundle in bundles) for bundles in inputs]
    if len(set(totals)) > 1:
        raise ValueError(unequal(totals))
    works: list[Work] = []
    at = 0
    for bundle in inputs[0]:
        pieces = [sliced(bundles, at, at + bundle.rows) for bundles in inputs]
        at += bundle.rows
        if bundle.rows:
            counts = tuple(len(each) for each in pieces)
            works.append(Work((len(works),), tuple(b for each in pieces for b in each), (counts,)))
    return works


class OneBlock:
    """All tables of a task as one."""

    def __call__(self, tables: Tables, attempt: Attempt) -> Any:
        from runtime.data._block.schema_diff import concat

        yield Ready(concat(list(tables)))


class ZipStep:
    """Tables of several inputs side by side; `attempt.args`: how many tables each input has."""

    def __call__(self, tables: Tables, attempt: Attempt) -> Any:
        from runtime.data._block.schema_diff import concat

        yield Ready(side_by_side([concat([next(tables) for _ in range(count)]) for count in attempt.args[0]]))


def side_by_side(sides: Sequence[pa.Table]) -> pa.Table:
    """The columns of all tables; names that exist get a number."""
    result = sides[0]
    for side in sides[1:]:
        for name, column in zip(side.column_names, side.columns, strict=True):
            unique, number = name, 0
            while unique in result.column_names:
                number += 1
                unique = f"{name}_{number}"
            result = result.append_column(unique, column)
    return result
