"""Operations over all rows: how their work is planned (pure), and which kernels their tasks call.

An exchange has maps and reducers. A map writes one object for each block: its rows ordered by partition, with the
offsets of the partitions as metadata. There are more partitions than needed; when all maps are done, neighbours are put
together until they are worth a task, and each reducer gets its slices of all these objects. Sorting (`ranges`) differs.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from runtime.data._plan import nodes
from runtime.data._plan.nodes import Compute, Node
from runtime.data.context import DataContext

from . import sizing
from .bundles import Bundle, Order, Work
from .operators import Plan
from .programs import Finish
from .ranges import Keys, Merged, Ranges, SortedRuns
from .reslicing import OneBlock, sliced
from .steps import Attempt, Ready, Step, Tables, UdfStep

if TYPE_CHECKING:
    import pyarrow as pa

# ---------------------------------------------------------------- partitions


@dataclass(frozen=True)
class ByPartition:
    """Plans the reducers of an exchange.

    Args:
        target_bytes: neighbouring partitions are put together up to this.
        blocks: so many reducers, if given.
        divisible: the inputs whose rows several reducers may share, each with all rows of the other inputs. What is far
            beyond the target is then divided, into more reducers than `blocks` if need be.
    """

    target_bytes: int
    blocks: int | None = None
    divisible: Sequence[int] = ()

    def __call__(self, inputs: Sequence[Sequence[Bundle]]) -> list[Work]:
        works: list[Work] = []
        for low, high in self._ranges(_sizes(inputs)):
            for sides in self._divided([_slices(bundles, low, high) for bundles in inputs], high - low):
                counts = tuple(len(side) for side in sides)
                if any(counts):
                    works.append(Work((len(works),), tuple(b for side in sides for b in side), (counts,)))
        return works

    def _ranges(self, sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
        """The partitions of each reducer."""
        if self.blocks is None:
            yield from self._filled(sizes, 0, len(sizes))
            return
        for number in range(self.blocks):
            low, high = (len(sizes) * each // self.blocks for each in (number, number + 1))
            if self.divisible and sum(sizes[low:high]) > MOST_TARGETS * self.target_bytes:
                yield from self._filled(sizes, low, high)
            else:
                yield low, high

    def _filled(self, sizes: Sequence[int], low: int, high: int) -> Iterator[tuple[int, int]]:
        total = 0
        for part in range(low, high):
            if total and total + sizes[part] > self.target_bytes:
                yield low, part
                low, total = part, 0
            total += sizes[part]
        yield low, high

    def _divided(self, sides: list[list[Bundle]], partitions: int) -> Iterator[list[list[Bundle]]]:
        """The inputs of one reducer, or of several if it is one partition that is far too large: it has a hot key."""
        sizes = [sum(bundle.size_bytes for bundle in side) for side in sides]
        if not self.divisible or partitions > 1 or sum(sizes) <= MOST_TARGETS * self.target_bytes:
            yield sides
            return
        largest = max(self.divisible, key=sizes.__getitem__)
        rows = sum(bundle.rows for bundle in sides[largest])
        tasks = max(1, min(rows, -(-sizes[largest] // self.target_bytes)))
        for number in range(tasks):
            share = sliced(sides[largest], rows * number // tasks, rows * (number + 1) // tasks)
            yield [share or side if port == largest else side for port, side in enumerate(sides)]


MOST_TARGETS = 2
"""Reducers that may be divided get at most this multiple of the target."""


def _sizes(inputs: Sequence[Sequence[Bundle]]) -> list[int]:
    """The bytes of each partition."""
    parts = max((_first(b) + len(_offsets(b)) - 1 for bundles in inputs for b in bundles), default=0)
    sizes = [0] * parts
    for bundle in itertools.chain.from_iterable(inputs):
        first, offsets = _first(bundle), _offsets(bundle)
        for part, (start, end) in enumerate(itertools.pairwise(offsets), first):
            sizes[part] += bundle.size_bytes * (end - start) // max(1, bundle.rows)
    return sizes


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
        objects = sizing.pieces(ready.table.nbytes, min(self.objects, parts))
        if objects == 1:
            yield ready
            return
        for number in range(objects):
            low, high = parts * number // objects, parts * (number + 1) // objects
            start, end = offsets[low], offsets[high]
            if start < end or number == 0:
                told = {"first": low, "offsets": [each - start for each in offsets[low : high + 1]]}
                yield Ready(ready.table.slice(start, end - start), told)


class Map(Protocol):
    """Makes of a block one whose rows are ordered by partition, with the offsets as metadata. `place`: see
    `programs.Finish`."""

    def __call__(self, table: pa.Table, place: Order, parts: int) -> Ready: ...


@dataclass(frozen=True)
class Partitioned:
    """Orders a block by partition, and cuts it into objects."""

    split: Map
    parts: int
    objects: int

    def __call__(self, table: pa.Table, place: Order) -> Iterator[Ready]:
        return InObjects(self.objects)(self.split(table, place, self.parts))


@dataclass(frozen=True)
class Exchange:
    """One kind of exchange.

    Attributes:
        maps: of each input: makes the end of its tasks, given the numbers of partitions and of objects for each block.
        plan: makes the plan of the reducers, given the bytes that one should have.
        parts: of the maps; None: by size.
        blocks: of the result; None: by size.
        least_bytes: what a reducer should get at least.
    """

    name: str
    maps: Sequence[Callable[[int, int], Finish]]
    plan: Callable[[int], Plan]
    reduce: Step
    parts: int | None = None
    blocks: int | None = None
    compute: Compute = field(default_factory=Compute)
    least_bytes: int = 8 << 20


DIVISIBLE = {
    "inner": (0, 1),
    "left_outer": (0,),
    "right_outer": (1,),
    "full_outer": (),
    "left_semi": (0,),
    "right_semi": (1,),
    "left_anti": (0,),
    "right_anti": (1,),
}
"""The sides of a join whose rows may be joined apart from each other, each with all rows of the other side."""


def of(node: Node, context: DataContext) -> Exchange:
    """How a node is exchanged."""
    default = context.default_hash_shuffle_parallelism
    match node:
        case nodes.Shuffle(_, seed, blocks):
            if seed is None:
                seed = random.getrandbits(63)  # a task that runs again must give the same blocks
            return _by_partition(node, [RandomParts(seed)], Permuted(seed), blocks, blocks)
        case nodes.Repartition(_, blocks, keys, is_sorted):
            reduce: Step = Sorted([(key, False) for key in keys]) if is_sorted else OneBlock()
            return _by_partition(node, [HashParts(keys)], reduce, blocks, blocks)
        case nodes.Sort(_, keys, descending, boundaries):
            pairs = tuple(zip(keys, descending, strict=True))
            plan: Callable[[int], Plan] = partial(Ranges, keys=pairs, boundaries=boundaries)
            if boundaries is None:
                return Exchange(node.name, [partial(SortedRuns, pairs)], plan, Merged(pairs))
            maps = [partial(SortedRuns, pairs)]
            return Exchange(node.name, maps, plan, Merged(pairs, cut_keys=1), blocks=len(boundaries) + 1)
        case nodes.Aggregate(_, keys, aggs, blocks):
            parts = (blocks or default) if keys else 1
            reduce = Combined(keys, aggs)
            return _by_partition(node, [PartialParts(keys, aggs)], reduce, parts, blocks if keys else 1)
        case nodes.MapGroups(_, keys, udf, compute, blocks):
            parts = (blocks or default) if keys else 1
            reduce = GroupsStep(keys, UdfStep(udf))
            exchange = _by_partition(node, [HashParts(keys)], reduce, parts, blocks if keys else 1)
            return dataclasses.replace(exchange, compute=compute, least_bytes=1)  # its function may take long
        case nodes.Join():
            sides = [partial(Partitioned, HashParts(keys)) for keys in (node.on, node.right_on)]
            plan = partial(ByPartition, blocks=node.blocks, divisible=DIVISIBLE[node.how])
            return Exchange(node.name, sides, plan, Joined(node), default, node.blocks)
    raise TypeError(f"{node.name} is not an exchange")


def _by_partition(
    node: Node,
    maps: Sequence[Map],
    reduce: Step,
    parts: int | None,
    blocks: int | None,
) -> Exchange:
    finishes = [partial(Partitioned, split) for split in maps]
    plan = partial(ByPartition, blocks=blocks)
    return Exchange(node.name, finishes, plan, reduce, parts, blocks)


# ---------------------------------------------------------------- maps


@dataclass(frozen=True)
class RandomParts:
    seed: int

    def __call__(self, table: pa.Table, place: Order, parts: int) -> Ready:
        import numpy as np

        from runtime.data._block.partition import random_partition

        rng = np.random.default_rng([self.seed, *place])
        ordered, offsets = random_partition(table, parts, rng)
        return Ready(ordered, {"offsets": offsets.tolist()})


@dataclass(frozen=True)
class HashParts:
    keys: Sequence[str]

    def __call__(self, table: pa.Table, place: Order, parts: int) -> Ready:
        from runtime.data._block.partition import hash_partition

        if not table.num_columns:  # of a task that has read nothing
            return Ready(table, {"offsets": [0] * (parts + 1)})
        ordered, offsets = hash_partition(table, self.keys, parts)
        return Ready(ordered, {"offsets": offsets.tolist()})


@dataclass(frozen=True)
class PartialParts:
    keys: Sequence[str]
    aggs: Sequence[Any]

    def __call__(self, table: pa.Table, place: Order, parts: int) -> Ready:
        from runtime.data._block import aggregates

        if not table.num_columns and (self.keys or not table.num_rows):
            return Ready(table, {"offsets": [0] * (parts + 1)})
        states = aggregates.partial(table, self.keys, self.aggs)
        if not self.keys:
            return Ready(states, {"offsets": [0, states.num_rows]})
        return HashParts(self.keys)(states, place, parts)


# ---------------------------------------------------------------- reducers


@dataclass(frozen=True)
class Permuted:
    """All rows of a task in random order."""

    seed: int

    def __call__(self, tables: Tables, attempt: Attempt) -> Any:
        import numpy as np
        import pyarrow as pa

        from runtime.data._block.schema_diff import concat

        table = concat(list(tables))
        rng = np.random.default_rng([self.seed, *attempt.order])
        yield table.take(pa.array(rng.permutation(table.num_rows))) if table.num_columns else table


@dataclass(frozen=True)
class Sorted:
    """All rows of a task in order."""

    keys: Keys

    def __call__(self, tables: Tables, attempt: Attempt) -> Any:
        from runtime.data._block.schema_diff import concat
        from runtime.data._block.sort import sort_table

        yield sort_table(concat([table for table in tables if table.num_columns] or [_no_rows()]), self.keys)


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
    """The join of two tables. `threads`: see `_block.join.parts`."""
    from runtime.data._block import join

    suffixes = node.left_suffix, node.right_suffix
    yield from join.parts(left, right, node.on, node.how, node.right_on, *suffixes, threads=threads)
