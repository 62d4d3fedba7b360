"""A data source without its first rows, of which the tasks that would read nothing else are left out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from runtime.data._iteration.position import without_first

from .interfaces import Datasource, ReadTask

if TYPE_CHECKING:
    import pyarrow as pa


class WithoutFirst(Datasource):
    """The rows of another source after the first ones. Its tasks must know their numbers of rows: `can_skip`."""

    def __init__(self, source: Any, rows: int) -> None:
        self._source = source
        self._rows = rows

    @staticmethod
    def can_skip(source: Any) -> bool:
        """Whether the source is ours and knows how many rows each of its tasks reads."""
        if not type(source).__module__.startswith("runtime.data.") or not hasattr(source, "row_count"):
            return False
        return source.row_count() is not None and all(
            task.metadata.num_rows is not None for task in source.get_read_tasks(1)
        )

    def get_name(self) -> str:
        return str(self._source.get_name())

    def estimate_inmemory_data_size(self) -> int | None:
        size: int | None = self._source.estimate_inmemory_data_size()
        return size

    @property
    def supports_distributed_reads(self) -> bool:
        return bool(self._source.supports_distributed_reads)

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        kept, left = [], self._rows
        for task in self._source.get_read_tasks(parallelism, per_task_row_limit, data_context):
            rows = task.metadata.num_rows
            if rows is None:
                raise ValueError(f"A task of {self.get_name()} does not know how many rows it reads.")
            if left >= rows:
                left -= rows
            elif left:
                metadata = dataclasses.replace(task.metadata, num_rows=rows - left)
                kept.append(ReadTask(partial(_rest, task, left), metadata, task.schema))
                left = 0
            else:
                kept.append(task)
        return kept


def _rest(task: ReadTask, rows: int) -> Iterator[pa.Table]:
    return without_first(task(), rows)
