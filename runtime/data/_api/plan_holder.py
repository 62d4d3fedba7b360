"""What every part of `Dataset` needs: the plan, and how another data set is made of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Self

from runtime.data._iteration.position import without_first
from runtime.data._iteration.prefetch import Cancellation
from runtime.data._plan.explain import explain
from runtime.data._plan.nodes import Given, GivenBlock, Node
from runtime.data._plan.rules import optimize
from runtime.data._plan.skipping import without_first_rows
from runtime.data._watch.consumer import Consumer
from runtime.data.context import DataContext

if TYPE_CHECKING:
    import pyarrow as pa

    from runtime.data._exec.bundles import Bundle


class PlanHolder:
    """A plan with the options of its data set."""

    _plain: ClassVar[type[PlanHolder]]
    """`Dataset`."""
    _kept: ClassVar[type[PlanHolder]]
    """`MaterializedDataset`."""

    def __init__(self, node: Node, context: DataContext | None = None, name: str | None = None) -> None:
        self._node = node
        self._context = context or DataContext.get_current().copy()
        self._name = name
        self._summary = ""  # of the last execution

    def _with(self, node: Node) -> Self:
        """The data set of another plan."""
        return self._plain(node, self._context, self._name)  # type: ignore[return-value]

    def _kept_with(self, blocks: tuple[GivenBlock, ...]) -> Self:
        """The materialized data set of these blocks."""
        return self._kept(Given(blocks), self._context, self._name)  # type: ignore[return-value]

    def _tables(
        self,
        node: Node | None = None,
        ahead: int = 2,
        cancellation: Cancellation | None = None,
        skip: int = 0,
    ) -> Iterator[pa.Table]:
        """The blocks of the result, in order.

        Args:
            cancellation: ends the execution from another thread.
            skip: without so many of the first rows.
        """
        import runtime
        from runtime.data import stats
        from runtime.data._exec import local

        node = optimize(self._node if node is None else node)
        node, skip = without_first_rows(node, skip)
        gathered: list[str] = []
        if not local.can_run(node, self._context):
            node = self._gathered(node, cancellation, gathered)
        consumer = Consumer()
        if local.can_run(node, self._context):
            tables = without_first(local.tables(node, self._context), skip)
            try:
                yield from consumer.timed(tables, rows_of=_rows)
            finally:
                self._summary = "\n\n".join([*gathered, stats.local_summary(explain(node), consumer)])
            return

        def fetch(ref: Any, bundle: Bundle) -> pa.Table | None:
            nonlocal skip
            if skip >= bundle.rows:
                skip -= bundle.rows
                return None
            with consumer.fetching():
                table = runtime.get(ref)
            start, rows, skip = bundle.start + skip, bundle.rows - skip, 0
            return table if start == 0 and rows == table.num_rows else table.slice(start, rows)

        bundles = self._bundles(node, ahead, consumer=consumer, cancellation=cancellation, fetch=fetch)
        yield from (table for table, _ in bundles if table is not None)

    def _gathered(self, node: Node, cancellation: Cancellation | None, summaries: list[str]) -> Node:
        """The plan with blocks in place of the parts that must run as tasks, if joins over them can run here then.
        `summaries` gets what `stats` says of the parts."""
        from runtime.data._exec import local
        from runtime.data._plan.sharing import replaced

        made: dict[int, Node] = {}
        for part in local.gathered(node, self._context):
            found = self._bundles(part, holds=False, cancellation=cancellation)
            made[id(part)] = Given(
                tuple(GivenBlock(ref, each.rows, each.size_bytes, each.start) for ref, each in found)
            )
            summaries.append(self._summary)
        return replaced(node, made) if made else node

    def _bundles(
        self,
        node: Node,
        ahead: int = 2,
        holds: bool = True,
        consumer: Consumer | None = None,
        cancellation: Cancellation | None = None,
        fetch: Callable[[Any, Bundle], Any] | None = None,
    ) -> Iterator[tuple[Any, Bundle]]:
        """The blocks of a plan that was optimized, as references, or as what `fetch` makes of these."""
        from runtime.data import stats
        from runtime.data._exec.driver import Running
        from runtime.data._watch.watcher import Watched, watcher

        consumer = consumer or Consumer()
        running = Running(node, self._context)
        if cancellation is not None:
            cancellation.on_set(running.close)
        try:
            with watcher.watching(Watched(self._name, running.execution, self._context, running.now)):
                yield from consumer.timed(running.bundles(ahead, holds, fetch), rows_of=_bundle_rows)
        finally:
            running.close()
            self._summary = stats.summary(running.execution, consumer)


def _rows(table: pa.Table) -> int:
    return int(table.num_rows)


def _bundle_rows(delivered: tuple[Any, Bundle]) -> int:
    return delivered[1].rows
