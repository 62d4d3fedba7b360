"""Operations over all rows: how their work is planned (pure), and which kernels their tasks call.

An exchange has maps and reducers. A map writes one object for each block: its rows ordered by partition, with the
offsets of the partitions as metadata. There are more partitions than needed; when all maps are done, neighbours are put
together until they are worth a task, and each reducer gets its slices of all these objects.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from runtime.data._plan import nodes
from runtime.data._plan.nodes import Compute, Node
from runtime.data.context import DataContext

from .bundles import Bundle, Work
from .operators import Plan
from .programs import Finish
from .steps import Attempt, Ready, Step, Tables, UdfStep

if TYPE_CHECKING:
    import pyarrow as pa

# ---------------------------------------------------------------- slices of what exists


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


# ---------------------------------------------------------------- partitions


@dataclass(frozen=True)
class ByPartition:
    """Plans the reducers of an exchange.

    Args:
        target_bytes: neighbouring partitions are put together up to this.
        blocks: exactly so many reducers, if given.
    """

    target_bytes: int
    blocks: int | None = None

    def __call__(self, inputs: Sequence[Sequence[Bundle]]) -> list[Work]:
        parts = max((_first(b) + len(_offsets(b)) - 1 for bundles in inputs for b in bundles), default=0)
        sizes = [0] * parts
        for bundles in inputs:
            for bundle in bundles:
                first, offsets = _first(bundle), _offsets(bundle)
                for part, (start, end) in enumerate(itertools.pairwise(offsets), first):
                    sizes[part] += bundle.size_bytes * (end - start) // max(1, bundle.rows)
        works = []
        for number, (low, high) in enumerate(self._ranges(sizes)):
            sides = [_slices(bundles, low, high) for bundles in inputs]
            counts = tuple(len(side) for side in sides)
            if any(counts):
                works.append(Work((number,), tuple(b for side in sides for b in side), (counts,)))
        return works

    def _ranges(self, sizes: Sequence[int]) -> list[tuple[int, int]]:
        if self.blocks is not None:
            return [
                (len(sizes) * i // self.blocks, len(sizes) * (i + 1) // self.blocks)
                for i in range(self.blocks)
            ]
        ranges: list[tuple[int, int]] = []
        low, total = 0, 0
        for part, size in enumerate(sizes):
            if total and total + size > self.target_bytes:
                ranges.append((low, part))
                low, total = part, 0
            total += size
        return [*ranges, (low, len(sizes))]


def _slices(bundles: Sequence[Bundle], low: int, high: int) -> list[Bundle]:
    """The rows of some partitions in every map's object; at least an empty slice, for its schema."""
    slices = []
    for bundle in bundles:
        first, offsets = _first(bundle), _offsets(bundle)
        start, end = (offsets[min(max(part - first, 0), len(offsets) - 1)] for part in (low, high))
        if start < end:
            slices.append(bundle.part(start, end - start))
    return slices or [bundle.part(0, 0) for bundle in bundles[:1]]


def _first(bundle: Bundle) -> int:
    """The first partition in a map's object."""
    return int(bundle.metadata.get("first", 0))


def _offsets(bundle: Bundle) -> Sequence[int]:
    """Where the partitions of a map's object begin, and where the last one ends."""
    offsets: Sequence[int] = bundle.metadata["offsets"]
    return offsets


@dataclass(frozen=True)
class InObjects:
    """Cuts what a map has made into several objects, each with neighbouring partitions. One is cheapest as long as all
    stay in memory; a reducer that needs a slice of an object on disk has to bring back all of it."""

    objects: int

    def __call__(self, ready: Ready) -> Iterator[Ready]:
        offsets = ready.metadata["offsets"]
        parts = len(offsets) - 1
        objects = max(1, min(self.objects, parts))
        if objects == 1:
            yield ready
            return
        for number in range(objects):
            low, high = parts * number // objects, parts * (number + 1) // objects
            start, end = offsets[low], offsets[high]
            if start < end or number == 0:
                told = {"first": low, "offsets": [each - start for each in offsets[low : high + 1]]}
                yield Ready(ready.table.slice(start, end - start), told)


Keys = Sequence[tuple[str, bool]]
"""Names of columns, each with whether it is descending."""
SAMPLED_ROWS = 100
"""Rows of each block that bounds are chosen by; fewer if they take more than `SAMPLED_BYTES`, as metadata is small."""
SAMPLED_BYTES = 32 << 10


@dataclass(frozen=True)
class Bounds:
    """How a sort finds the bounds of its partitions. `given`: of the first key, from the user."""

    keys: Keys
    given: Sequence[Any] | None = None

    def sample(self, table: pa.Table) -> Iterator[Ready]:
        """Some rows of a block, as metadata."""
        import numpy as np

        from runtime.data._block import sort

        count, rng = SAMPLED_ROWS, np.random.default_rng(table.num_rows)
        packed = _packed(sort.sample(table, self.keys, count, rng))
        while len(packed) > SAMPLED_BYTES and count > 1:  # keys are long
            count //= 2
            packed = _packed(sort.sample(table, self.keys, count, rng))
        yield Ready(table.slice(0, 0), {"sample": packed})

    def plan(self, parts: int, map_bytes: int, objects: int) -> Plan:
        """Maps over blocks of `map_bytes` together, which get the bounds. `objects`: see `InObjects`."""

        def planned(inputs: Sequence[Sequence[Bundle]]) -> list[Work]:
            from runtime.data._block import sort

            blocks, sampled = inputs
            if not blocks:
                return []
            samples = [_unpacked(bundle.metadata["sample"]) for bundle in sampled]
            if self.given is None:
                bounds = sort.sample_bounds(samples, self.keys, parts)
            else:
                import pyarrow as pa

                name, _ = self.keys[0]
                bounds = pa.table({name: pa.array(self.given, samples[0].schema.field(name).type)})
            packed = _packed(bounds)
            return [
                Work((i,), group, (packed, objects)) for i, group in enumerate(_grouped(blocks, map_bytes))
            ]

        return planned

    def split(self, tables: Tables, attempt: Attempt) -> Any:
        """Sorts the blocks together and cuts them at the bounds."""
        from runtime.data._block import sort
        from runtime.data._block.schema_diff import concat

        bounds = _unpacked(attempt.args[0])
        keys = self.keys[:1] if self.given is not None else self.keys
        ordered = sort.sort_table(concat(list(tables)), self.keys)
        offsets = sort.range_partition(ordered, bounds, keys).tolist()
        yield from InObjects(attempt.args[1])(Ready(ordered, {"offsets": offsets}))


def _grouped(bundles: Sequence[Bundle], size_bytes: int) -> list[tuple[Bundle, ...]]:
    """Neighbours of so many bytes together."""
    groups: list[tuple[Bundle, ...]] = []
    group: list[Bundle] = []
    total = 0
    for bundle in bundles:
        if group and total + bundle.size_bytes > size_bytes:
            groups.append(tuple(group))
            group, total = [], 0
        group.append(bundle)
        total += bundle.size_bytes
    return [*groups, tuple(group)] if group else groups


def _packed(table: pa.Table) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write(table)
    return bytes(sink.getvalue())


def _unpacked(data: bytes) -> pa.Table:
    import pyarrow as pa

    return pa.ipc.open_stream(data).read_all()


class Map(Protocol):
    """Makes of a block one whose rows are ordered by partition, with the offsets as metadata."""

    def __call__(self, table: pa.Table, parts: int) -> Ready: ...


@dataclass(frozen=True)
class Exchange:
    """One kind of exchange.

    Attributes:
        maps: of each input.
        parts: of the maps; None: by size.
        blocks: of the result; None: by size.
        bounds: if the partitions are ranges: maps then start when all blocks are sampled.
    """

    name: str
    reduce: Step
    maps: Sequence[Map] = ()
    parts: int | None = None
    blocks: int | None = None
    compute: Compute = field(default_factory=Compute)
    bounds: Bounds | None = None

    def finish(self, side: int, parts: int, objects: int) -> Finish:
        """See `programs.Finish` and `InObjects`."""
        return MapFinish(self.maps[side], parts, InObjects(objects))

    def plan(self, target_bytes: int) -> Plan:
        """See `ByPartition`."""
        return ByPartition(target_bytes, self.blocks)


@dataclass(frozen=True)
class MapFinish:
    """Orders a block by partition, and cuts it into objects."""

    split: Map
    parts: int
    cut: InObjects

    def __call__(self, table: pa.Table) -> Iterator[Ready]:
        return self.cut(self.split(table, parts=self.parts))


def of(node: Node, context: DataContext) -> Exchange:
    """How a node is exchanged."""
    default = context.default_hash_shuffle_parallelism
    match node:
        case nodes.Shuffle(_, seed, blocks):
            return Exchange(node.name, Permuted(seed), [RandomParts(seed)], blocks, blocks)
        case nodes.Repartition(_, blocks, keys, is_sorted):
            reduce: Step = Sorted([(key, False) for key in keys]) if is_sorted else OneBlock()
            return Exchange(node.name, reduce, [HashParts(keys)], blocks, blocks)
        case nodes.Sort(_, keys, descending, boundaries):
            pairs = tuple(zip(keys, descending, strict=True))
            blocks = None if boundaries is None else len(boundaries) + 1
            return Exchange(
                node.name, Sorted(pairs), parts=blocks, blocks=blocks, bounds=Bounds(pairs, boundaries)
            )
        case nodes.Aggregate(_, keys, aggs, blocks):
            parts = (blocks or default) if keys else 1
            return Exchange(
                node.name, Combined(keys, aggs), [PartialParts(keys, aggs)], parts, blocks if keys else 1
            )
        case nodes.MapGroups(_, keys, udf, compute, blocks):
            parts = (blocks or default) if keys else 1
            reduce = GroupsStep(keys, UdfStep(udf))
            return Exchange(node.name, reduce, [HashParts(keys)], parts, blocks if keys else 1, compute)
        case nodes.Join():
            maps = [HashParts(node.on), HashParts(node.right_on)]
            return Exchange(node.name, Joined(node), maps, node.blocks or default, node.blocks)
    raise TypeError(f"{node.name} is not an exchange")


# ---------------------------------------------------------------- maps


@dataclass(frozen=True)
class RandomParts:
    seed: int | None

    def __call__(self, table: pa.Table, parts: int) -> Ready:
        import numpy as np

        from runtime.data._block.partition import random_partition

        entropy = None if self.seed is None else [self.seed, table.num_rows, table.nbytes]
        ordered, offsets = random_partition(table, parts, np.random.default_rng(entropy))
        return Ready(ordered, {"offsets": offsets.tolist()})


@dataclass(frozen=True)
class HashParts:
    keys: Sequence[str]

    def __call__(self, table: pa.Table, parts: int) -> Ready:
        from runtime.data._block.partition import hash_partition

        if not table.num_columns:  # of a task that has read nothing
            return Ready(table, {"offsets": [0] * (parts + 1)})
        ordered, offsets = hash_partition(table, self.keys, parts)
        return Ready(ordered, {"offsets": offsets.tolist()})


@dataclass(frozen=True)
class PartialParts:
    keys: Sequence[str]
    aggs: Sequence[Any]

    def __call__(self, table: pa.Table, parts: int) -> Ready:
        from runtime.data._block import aggregates

        if not table.num_columns and (self.keys or not table.num_rows):
            return Ready(table, {"offsets": [0] * (parts + 1)})
        states = aggregates.partial(table, self.keys, self.aggs)
        if not self.keys:
            return Ready(states, {"offsets": [0, states.num_rows]})
        return HashParts(self.keys)(states, parts)


# ---------------------------------------------------------------- reducers


@dataclass(frozen=True)
class Permuted:
    """All rows of a task in random order."""

    seed: int | None

    def __call__(self, tables: Tables, attempt: Attempt) -> Any:
        import numpy as np
        import pyarrow as pa

        from runtime.data._block.schema_diff import concat

        table = concat(list(tables))
        rng = np.random.default_rng(None if self.seed is None else [self.seed, *attempt.order])
        yield table.take(pa.array(rng.permutation(table.num_rows))) if table.num_columns else table


@dataclass(frozen=True)
class Sorted:
    """The rows of sorted tables in order."""

    keys: Keys

    def __call__(self, tables: Tables, attempt: Attempt) -> Any:
        from runtime.data._block.sort import merge_sorted

        yield merge_sorted([table for table in tables if table.num_columns] or [_no_rows()], self.keys)


def _no_rows() -> pa.Table:
    import pyarrow as pa

    return pa.table({})


@dataclass(frozen=True)
class Combined:
    """States of aggregations, combined and finished."""

    keys: Sequence[str]
    aggs: Sequence[Any]

    def __call__(self, tables: Tables, attempt: Attempt) -> Any:
        from runtime.data._block import aggregates

        states = [table for table in tables if table.num_columns]
        if states:
            combined = aggregates.combine(states, self.keys, self.aggs)
            yield aggregates.final(combined, self.keys, self.aggs)
        else:
            yield _no_rows()


@dataclass(frozen=True)
class GroupsStep:
    """The user's function over each group of rows with equal keys."""

    keys: Sequence[str]
    udf: UdfStep

    def __call__(self, tables: Tables, attempt: Attempt) -> Tables:
        from runtime.data._block.schema_diff import concat
        from runtime.data._block.sort import sort_table

        table = concat(list(tables))
        if not table.num_rows:
            return iter([table])
        ordered = sort_table(table, [(key, False) for key in self.keys])
        return self.udf(_runs(ordered, self.keys), attempt)


def _runs(table: pa.Table, keys: Sequence[str]) -> Tables:
    """The parts of a table that is sorted by `keys` in which the keys are equal."""
    import numpy as np

    from runtime.data._block.hashing import hash_rows

    if not keys:
        yield table
        return
    hashes = hash_rows(table, keys)
    borders = [0, *(np.flatnonzero(hashes[1:] != hashes[:-1]) + 1).tolist(), table.num_rows]
    for start, end in itertools.pairwise(borders):
        yield table.slice(start, end - start)


@dataclass(frozen=True)
class Joined:
    """The rows of both sides that have equal keys."""

    node: nodes.Join

    def __reduce__(self) -> tuple[Any, ...]:
        return Joined, (dataclasses.replace(self.node, left=nodes.Node(), right=nodes.Node()),)

    def __call__(self, tables: Tables, attempt: Attempt) -> Any:
        from runtime.data._block.schema_diff import concat

        left_count, right_count = attempt.args[0]
        left = concat([next(tables) for _ in range(left_count)] or [_no_rows()])
        right = concat([next(tables) for _ in range(right_count)] or [_no_rows()])
        yield from joined(self.node, left, right)


def joined(node: nodes.Join, left: pa.Table, right: pa.Table, threads: bool = False) -> Tables:
    """The join of two tables. `threads`: see `_block.join.join`."""
    from runtime.data._block import join

    suffixes = node.left_suffix, node.right_suffix
    yield join.join(left, right, node.on, node.how, node.right_on, *suffixes, threads=threads)
