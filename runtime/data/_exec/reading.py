"""The read tasks of a source: how many there are, where they run, into how many blocks they cut what they read."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from runtime.data._plan.nodes import Compute
from runtime.data.context import DataContext

from .steps import Ready

ReadTask = Callable[[], Iterator[Any]]


def read_tasks(source: Any, wanted: int, context: DataContext) -> list[Any]:
    """The tasks of a source; one of the user may not know the argument `data_context`."""
    parameters = inspect.signature(source.get_read_tasks).parameters
    if "data_context" in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return list(source.get_read_tasks(wanted, data_context=context))
    return list(source.get_read_tasks(wanted))


def in_blocks(tasks: Sequence[ReadTask], blocks: int) -> list[ReadTask]:
    """The tasks, which are fewer than the blocks that are wanted, so that they yield about so many."""
    count = len(tasks)
    parts = [blocks * (index + 1) // count - blocks * index // count for index in range(count)]
    return [InBlocks(task, part) for task, part in zip(tasks, parts, strict=True)]


@dataclass(frozen=True)
class InBlocks:
    """A read task that cuts each table that it reads into so many blocks."""

    task: ReadTask
    blocks: int

    def __call__(self) -> Iterator[Ready]:
        for table in self.task():
            rows = table.num_rows
            parts = max(1, min(self.blocks, rows))
            for part in range(parts):
                start, end = rows * part // parts, rows * (part + 1) // parts
                yield Ready(table.slice(start, end - start))


def placed(source: Any, compute: Compute) -> Compute:
    """Where tasks run: on this node, if the source is there only."""
    if getattr(source, "supports_distributed_reads", True):
        return compute
    return dataclasses.replace(compute, options={**here(), **compute.options})


def here() -> dict[str, Any]:
    """Options of tasks that run on this process's node."""
    import runtime
    from runtime.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    node_id = runtime.get_runtime_context().get_node_id()
    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node_id, soft=False)}
