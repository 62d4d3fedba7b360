"""The exchange of a sort.

A map writes a sorted run, cut into pieces, with some of its keys as metadata. These decide where the reducers' ranges
end, and each reducer merges its range from the pieces that overlap it. So the maps need to know nothing of the keys:
they can read the input themselves, and rows are written once.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import sizing
from .bundles import Bundle, Order, Work
from .steps import Attempt, Ready, Tables

if TYPE_CHECKING:
    import pyarrow as pa

Keys = Sequence[tuple[str, bool]]
"""Names of columns, each with whether it is descending."""
RUN_SAMPLES = 128
"""Rows of each run that ranges are chosen by, at least two of each piece."""
SAMPLE_BYTES = 32 << 10
"""Fewer rows are sampled if they take more than this, as metadata is small."""


@dataclass(frozen=True)
class SortedRuns:
    """Makes a sorted run of a block, in so many objects: a reducer that needs a slice of an object on disk has to bring
    back all of it. `parts` has no effect."""

    keys: Keys
    parts: int
    objects: int

    def __call__(self, table: pa.Table, place: Order) -> Iterator[Ready]:
        from runtime.data._block import sort

        if not table.num_columns:  # of a task that has read nothing
            yield Ready(table, {"sample": None})
            return
        run = sort.sort_table(table, self.keys)
        pieces = sizing.pieces(run.nbytes, min(self.objects, run.num_rows))
        for number in range(pieces):
            start, end = run.num_rows * number // pieces, run.num_rows * (number + 1) // pieces
            piece = run.slice(start, end - start)
            yield Ready(piece, {"sample": self._sample(piece, RUN_SAMPLES // pieces)})

    def _sample(self, piece: pa.Table, count: int) -> bytes:
        from runtime.data._block import sort

        packed = _packed(sort.sample(piece, self.keys, max(2, count)))
        while len(packed) > SAMPLE_BYTES and count > 2:  # keys are long
            count //= 2
            packed = _packed(sort.sample(piece, self.keys, max(2, count)))
        return packed


@dataclass(frozen=True)
class Ranges:
    """Plans the reducers of a sort, each with a range of nearly `target_bytes` and the pieces that overlap it.

    Args:
        boundaries: where the ranges end, from the user: values of the first key.
    """

    target_bytes: int
    keys: Keys
    boundaries: Sequence[Any] | None = None

    def __call__(self, inputs: Sequence[Sequence[Bundle]]) -> list[Work]:
        from runtime.data._block import sort

        pieces = [bundle for bundle in inputs[0] if bundle.metadata["sample"] is not None]
        if not pieces:
            return [Work((0,), (bundle,)) for bundle in inputs[0][:1]]
        filled = [bundle for bundle in pieces if bundle.rows] or pieces[:1]
        samples = [_unpacked(bundle.metadata["sample"]) for bundle in filled]
        keys = self.keys
        if self.boundaries is None:
            ranges = max(1, -(-sum(bundle.size_bytes for bundle in filled) // self.target_bytes))
            cuts = sort.cuts(samples, [bundle.rows for bundle in filled], keys, ranges)
        else:
            keys = keys[:1]
            cuts = sort.given_cuts(samples, keys, self.boundaries)
        works = []
        for number, bundles in enumerate(_overlapping(filled, samples, keys, cuts)):
            low, high = max(0, number - 1), min(number + 1, cuts.rows.num_rows)
            here = cuts.slice(low, high)
            args = (_packed(here.rows), here.shares, number > 0)
            works.append(Work((number,), tuple(bundles) or (filled[0].part(0, 0),), args))
        return works


def _overlapping(
    pieces: Sequence[Bundle], samples: Sequence[pa.Table], keys: Keys, cuts: Any
) -> list[list[Bundle]]:
    """The pieces that may have rows of each range."""
    from runtime.data._block import sort

    found: list[list[Bundle]] = [[] for _ in range(cuts.rows.num_rows + 1)]
    in_order = sort.sort_key(keys)
    ends = [in_order(row) for row in sort.values(cuts.rows, keys, cuts.rows.schema)]
    for bundle, sample in zip(pieces, samples, strict=True):
        if not bundle.rows:
            continue
        rows = sort.values(sample, keys, cuts.rows.schema)
        first = bisect.bisect_left(ends, in_order(rows[0]))
        last = bisect.bisect_right(ends, in_order(rows[-1]))
        for each in found[first : last + 1]:
            each.append(bundle)
    return found


@dataclass(frozen=True)
class Merged:
    """The rows of sorted pieces that lie in the range of the work's `args`: its cuts, packed, their shares, and whether
    the first of them is its lower end. `cut_keys`: how many of the keys cuts have; None: all."""

    keys: Keys
    cut_keys: int | None = None

    def __call__(self, tables: Tables, attempt: Attempt) -> Any:
        from runtime.data._block import sort
        from runtime.data._block.schema_diff import concat

        if not attempt.args:
            yield from tables
            return
        packed, shares, has_low = attempt.args
        cuts = sort.Cuts(_unpacked(packed), tuple(shares))
        parts = []
        for table in tables:
            borders = [*sort.positions(table, self.keys[: self.cut_keys], cuts), table.num_rows]
            start = borders.pop(0) if has_low else 0
            parts.append(table.slice(start, borders[0] - start))
        yield sort.sort_table(concat([part for part in parts if part.num_rows] or parts[:1]), self.keys)


def _packed(table: pa.Table) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write(table)
    return bytes(sink.getvalue())


def _unpacked(data: bytes) -> pa.Table:
    import pyarrow as pa

    return pa.ipc.open_stream(data).read_all()
