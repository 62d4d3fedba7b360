"""Sources that make their rows: numbers, tensors of numbers, and what iterating a data set of Torch gives."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from runtime.data.io.files import least, target_bytes
from runtime.data.io.interfaces import BlockMetadata, Datasource, ReadTask

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS_PER_TASK = 1_000_000
_ROWS_AT_ONCE = 1024


class RangeDatasource(Datasource):
    """The integers from 0, in a column.

    Args:
        n: How many.
        shape: Of a tensor that is filled with the integer; None for the integer itself.
        column: The column's name.
    """

    def __init__(self, n: int, shape: tuple[int, ...] | None = None, column: str = "id") -> None:
        if n < 0:
            raise ValueError(f"The number of rows must not be negative: {n}.")
        self._rows = n
        self._shape = shape
        self._column = column

    def get_name(self) -> str:
        return "Range" if self._shape is None else "RangeTensor"

    def with_limit(self, limit: int) -> RangeDatasource:
        """The first integers."""
        return RangeDatasource(min(self._rows, limit), self._shape, self._column)

    def row_count(self) -> int | None:
        """How many there are."""
        return self._rows

    def estimate_inmemory_data_size(self) -> int | None:
        return self._rows * self._row_bytes

    @property
    def _row_bytes(self) -> int:
        return 8 * math.prod(self._shape or (1,))

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        tasks = parallelism if parallelism > 0 else -(-self._rows // _ROWS_PER_TASK)
        tasks = max(1, min(tasks, self._rows))
        block_rows = max(1, target_bytes(data_context) // self._row_bytes)
        schema = self._table(0, 0).schema
        found = []
        for index in range(tasks):
            start, end = self._rows * index // tasks, self._rows * (index + 1) // tasks
            rows = least(end - start, per_task_row_limit) or 0
            metadata = BlockMetadata(rows, rows * self._row_bytes)
            read = functools.partial(self._read, start, end, block_rows)
            found.append(ReadTask(read, metadata, schema, per_task_row_limit))
        return found

    def _read(self, start: int, end: int, block_rows: int) -> Iterator[pa.Table]:
        for first in range(start, end, block_rows) if end > start else [start]:
            yield self._table(first, min(first + block_rows, end))

    def _table(self, start: int, end: int) -> pa.Table:
        import numpy as np
        import pyarrow as pa

        from runtime.data._block import arrays, tensor

        ids = np.arange(start, end, dtype=np.int64)
        if self._shape is None:
            return pa.table({self._column: arrays.of_numpy(ids)})
        wide = np.repeat(ids, math.prod(self._shape)).reshape((len(ids), *self._shape))
        return pa.table({self._column: tensor.from_numpy(wide) if self._shape else arrays.of_numpy(wide)})


class TorchDatasource(Datasource):
    """The elements of a `torch.utils.data.Dataset`, in the column "item".

    A data set with a length and indices is read by several tasks, another one by a single task.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._is_map = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")

    def row_count(self) -> int | None:
        """How many elements there are, if the data set has a length."""
        return len(self._dataset) if self._is_map else None

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        if not self._is_map:
            return [
                ReadTask(
                    functools.partial(self._read, None), BlockMetadata(None, None), None, per_task_row_limit
                )
            ]
        rows = len(self._dataset)
        tasks = max(1, min(parallelism if parallelism > 0 else 1, rows))
        parts = [range(rows * index // tasks, rows * (index + 1) // tasks) for index in range(tasks)]
        return [
            ReadTask(
                functools.partial(self._read, part), BlockMetadata(len(part), None), None, per_task_row_limit
            )
            for part in parts
        ]

    def _read(self, indices: range | None) -> Iterator[pa.Table]:
        from runtime.data._block import batch

        elements = iter(self._dataset) if indices is None else (self._dataset[index] for index in indices)
        rows: list[dict[str, Any]] = []
        for element in elements:
            rows.append({"item": element})
            if len(rows) == _ROWS_AT_ONCE:
                yield batch.from_rows(rows)
                rows = []
        if rows:
            yield batch.from_rows(rows)


class ArrowStreamDatasource(Datasource):
    """The rows of a `datasets.IterableDataset`, read by one task, or by one for each of its shards."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        shards = getattr(self._dataset, "num_shards", 1)
        tasks = max(1, min(shards, parallelism))
        parts = [self._dataset.shard(tasks, index) if tasks > 1 else self._dataset for index in range(tasks)]
        unknown = BlockMetadata(None, None)
        return [
            ReadTask(functools.partial(self._read, part), unknown, None, per_task_row_limit) for part in parts
        ]

    @staticmethod
    def _read(part: Any) -> Iterator[pa.Table]:
        for table in part.with_format("arrow").iter(batch_size=_ROWS_AT_ONCE):
            yield table.replace_schema_metadata(None)
