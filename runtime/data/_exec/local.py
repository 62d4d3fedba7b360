"""Runs relational plans with small input in this process, on Arrow's threads: no tasks, no object store."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Set
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from runtime.data._plan import nodes
from runtime.data._plan.nodes import Compute, Node
from runtime.data._plan.sharing import source_bytes, used_twice
from runtime.data.context import DataContext

from . import exchange, reading, reslicing
from .steps import Attempt, step_of

if TYPE_CHECKING:
    import pyarrow as pa

RELATIONAL = (
    nodes.Filter,
    nodes.Project,
    nodes.Rename,
    nodes.Drop,
    nodes.Sample,
    nodes.Limit,
    nodes.Union,
    nodes.Zip,
    nodes.Sort,
    nodes.Aggregate,
    nodes.Join,
)
FIRST_ROWS = 10_000
"""A limit of at most so many rows directly over a source is local whatever the source's size: it stops early."""
READS_PER_CORE = 8
"""Small read tasks, so that the first rows come early."""
THREADED_ROWS = 100_000
"""From so many rows on, Arrow's threads are worth their start."""


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


def can_run(node: Node, context: DataContext) -> bool:
    """Whether a plan that was optimized runs here: it has no functions of the user, and its input is small."""
    bound = context.local_bytes_per_core * cores()
    if isinstance(node, nodes.Given):
        return True
    if not bound:
        return False
    if isinstance(node, nodes.Limit) and node.rows <= FIRST_ROWS and _is_own_read(node.source):
        return True
    size = _input_bytes(node)
    return size is not None and size <= bound


def gathered(node: Node, context: DataContext) -> list[Node]:
    """The parts of a plan that run as tasks before the joins over them run here: those with functions of the user.
    None if the sources are large, if there is no join (other steps begin in the tasks that apply the functions), or if
    two parts have a function in common, which would run twice."""
    size = source_bytes(node)
    if size is None or size > context.local_bytes_per_core * cores():
        return []
    found: list[Node] = []

    def look(node: Node) -> None:
        if _input_bytes(node) is not None:
            return
        if _is_relational(node) and _joins(node):
            for each in node.inputs:
                look(each)
        elif not any(each is node for each in found):
            found.append(node)

    look(node)
    functions = [each for part in found for each in _functions(part)]
    return [] if found == [node] or len(set(functions)) < len(functions) else found


def _functions(node: Node) -> set[int]:
    """The ids of the nodes that do not run here."""
    below: set[int] = set().union(*map(_functions, node.inputs))
    return below if _is_relational(node) or _input_bytes(node) is not None else below | {id(node)}


def _joins(node: Node) -> bool:
    """Whether there is a join above all functions of the user."""
    return _is_relational(node) and (isinstance(node, nodes.Join) or any(map(_joins, node.inputs)))


def _is_relational(node: Node) -> bool:
    return isinstance(node, RELATIONAL) and getattr(node, "compute", Compute()) == Compute()


def _input_bytes(node: Node) -> int | None:
    """The bytes of all sources; None if the plan does not run here or a size is not known."""
    match node:
        case nodes.Given(blocks):
            return sum(block.size_bytes for block in blocks)
        case nodes.Read(source):
            size = source.estimate_inmemory_data_size() if _is_own_read(node) else None
            return None if size is None else int(size)
        case _ if _is_relational(node):
            sizes = [_input_bytes(each) for each in node.inputs]
            return None if None in sizes else sum(size or 0 for size in sizes)
    return None


def _is_own_read(node: Node) -> bool:
    """Whether the code that reads is this package's."""
    if not isinstance(node, nodes.Read) or node.compute != Compute() or node.blocks is not None:
        return False
    return type(node.source).__module__.startswith("runtime.data.")


def tables(node: Node, context: DataContext) -> Iterator[pa.Table]:
    """The blocks of a plan for which `can_run` holds, in order."""
    return _Run(context, used_twice(node)).tables(node)


class _Run:
    """One run of a plan.

    Args:
        twice: the ids of nodes that are read twice: their blocks are kept.
    """

    def __init__(self, context: DataContext, twice: Set[int]) -> None:
        self._context = context
        self._twice = twice
        self._kept: dict[int, list[pa.Table]] = {}

    def tables(self, node: Node) -> Iterator[pa.Table]:
        """The blocks of a node."""
        if id(node) not in self._twice:
            return self._made(node)
        if id(node) not in self._kept:
            self._kept[id(node)] = list(self._made(node))
        return iter(self._kept[id(node)])

    def _made(self, node: Node) -> Iterator[pa.Table]:
        match node:
            case nodes.Given(blocks):
                return _given(blocks)
            case nodes.Read(source):
                return _read(source, self._context)
            case nodes.Limit(source, rows):
                return _first(self.tables(source), rows)
            case nodes.Union(sources):
                return (table for each in sources for table in self.tables(each))
            case nodes.Zip(sources):
                return _zipped([self._all(each) for each in sources])
            case nodes.Sort(source, keys, descending):
                return _sorted(self._all(source), keys, descending)
            case nodes.Aggregate(source, keys, aggs):
                return _aggregated(self._all(source), keys, aggs)
            case nodes.Join(left, right):
                return exchange.joined(node, self._all(left), self._all(right), threads=True)
        return step_of(node)(self.tables(node.inputs[0]), Attempt())

    def _all(self, node: Node) -> pa.Table:
        """All rows of a node."""
        import pyarrow as pa

        from runtime.data._block.schema_diff import concat

        parts = [table for table in self.tables(node) if table.num_columns]
        filled = [table for table in parts if table.num_rows]
        return concat(filled or parts[:1] or [pa.table({})])


def _given(blocks: tuple[nodes.GivenBlock, ...]) -> Iterator[pa.Table]:
    import runtime

    for block in blocks:
        table = runtime.get(block.ref)
        yield (
            table
            if block.start == 0 and block.rows == table.num_rows
            else table.slice(block.start, block.rows)
        )


def _read(source: Any, context: DataContext) -> Iterator[pa.Table]:
    """Reads with as many threads as cores, a few tasks ahead."""
    size = source.estimate_inmemory_data_size() or 0
    count = max(1, min(READS_PER_CORE * cores(), size // (64 << 10)))
    waiting = deque(reading.read_tasks(source, count, context))
    if len(waiting) == 1:
        yield from waiting[0]()
        return
    asked: deque[Future[list[Any]]] = deque()
    pool = ThreadPoolExecutor(cores(), "read")
    try:
        while waiting or asked:
            while waiting and len(asked) <= 2 * cores():
                asked.append(pool.submit(_listed, waiting.popleft()))
            yield from asked.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _listed(task: Callable[[], Iterator[Any]]) -> list[Any]:
    return list(task())


def _first(source: Iterator[pa.Table], rows: int) -> Iterator[pa.Table]:
    for table in source:
        yield table.slice(0, rows)
        rows -= table.num_rows
        if rows <= 0:
            return


def _sorted(table: pa.Table, keys: tuple[str, ...], descending: tuple[bool, ...]) -> Iterator[pa.Table]:
    from runtime.data._block.sort import sort_table

    if table.num_columns:
        yield sort_table(table, list(zip(keys, descending, strict=True)))


def _aggregated(table: pa.Table, keys: tuple[str, ...], aggs: tuple[Any, ...]) -> Iterator[pa.Table]:
    from runtime.data._block import aggregates

    if table.num_columns:
        yield aggregates.aggregate([table], keys, aggs, threads=table.num_rows >= THREADED_ROWS)


def _zipped(sides: list[pa.Table]) -> Iterator[pa.Table]:
    rows = {side.num_rows for side in sides}
    if len(rows) > 1:
        raise ValueError(reslicing.unequal([side.num_rows for side in sides]))
    yield reslicing.side_by_side(sides)
