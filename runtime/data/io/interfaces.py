"""What the plan and the formats exchange: data sources with read tasks, and data sinks.

Sources and sinks are made in the driver. `ReadTask`s and sinks travel to workers, so both must pickle.
"""

from __future__ import annotations

import dataclasses
import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


class Predicate(Protocol):
    """What sources use of an expression over columns (`expressions.Expr`)."""

    def to_arrow(self) -> pa.compute.Expression | None:
        """The expression as Arrow evaluates it; None if Arrow cannot."""

    def columns(self) -> set[str]:
        """The columns that it looks at."""

    def evaluate(self, table: pa.Table) -> Any:
        """The truth values of the rows of a table: four times as fast as Arrow's filter by an expression."""

    def __and__(self, other: Any) -> Any: ...


class SaveMode(enum.Enum):
    """What a write does where files exist already."""

    CREATE = "create"
    APPEND = "append"
    OVERWRITE = "overwrite"
    IGNORE = "ignore"
    ERROR = "error"
    UPSERT = "upsert"

    @classmethod
    def of(cls, mode: SaveMode | str) -> SaveMode:
        """The mode for itself or for its name, in any case. Raises ValueError for another name."""
        if isinstance(mode, SaveMode):
            return mode
        try:
            return cls(mode.lower())
        except ValueError:
            names = ", ".join(repr(member.value) for member in cls)
            raise ValueError(f"Unknown write mode {mode!r}; use one of {names}.") from None


@dataclasses.dataclass(slots=True)
class BlockMetadata:
    """What is known about a block, or about what a read task will produce, before looking at it; None where unknown."""

    num_rows: int | None
    size_bytes: int | None
    exec_stats: Any = None
    task_exec_stats: Any = None
    input_files: tuple[str, ...] | list[str] | None = None


@dataclasses.dataclass(slots=True)
class TaskContext:
    """The task in which a sink writes.

    Attributes:
        task_idx: Its index within the operator. A retry of a task has the index of the first attempt.
        op_name: The operator's name.
        kwargs: Values that the operator passes to its tasks.
    """

    task_idx: int
    op_name: str = "Write"
    kwargs: dict[str, Any] = dataclasses.field(default_factory=dict)


class ReadTask:
    """A part of a data source; calling it reads the part, block by block.

    Args:
        read_fn: Returns or yields `pyarrow.Table`s or pandas data frames. Without arguments; must pickle.
        metadata: What is known before the read.
        schema: The schema of the blocks, if known.
        per_task_row_limit: The most rows that the task yields.
    """

    def __init__(
        self,
        read_fn: Callable[[], Iterable[Any]],
        metadata: BlockMetadata,
        schema: pa.Schema | None = None,
        per_task_row_limit: int | None = None,
    ) -> None:
        self._read_fn = read_fn
        self._metadata = metadata
        self._schema = schema
        self._per_task_row_limit = per_task_row_limit

    @property
    def metadata(self) -> BlockMetadata:
        return self._metadata

    @property
    def schema(self) -> pa.Schema | None:
        return self._schema

    @property
    def read_fn(self) -> Callable[[], Iterable[Any]]:
        return self._read_fn

    @property
    def per_task_row_limit(self) -> int | None:
        return self._per_task_row_limit

    def __call__(self) -> Iterator[pa.Table]:
        """Yields the part's blocks, at most `per_task_row_limit` rows of them.

        Raises:
            TypeError: `read_fn` gave something that is neither a table nor a data frame.
        """
        blocks = self._read_fn()
        if not isinstance(blocks, Iterable):
            raise TypeError(
                f"A ReadTask's read_fn must return an iterable of blocks, not {type(blocks).__name__}."
            )
        left = self._per_task_row_limit
        for block in blocks:
            table = as_table(block)
            if left is None:
                yield table
                continue
            yield table.slice(0, left)
            left -= table.num_rows
            if left <= 0:
                return


class Datasource:
    """Where a data set comes from. Subclass it and give the result to `read_datasource`.

    A source may also offer what the plan pushes down, as methods that return a new source and leave this one as it is.
    `with_columns(list[str])` reads these columns only, in this order. `with_predicate(Expr)` yields exactly the rows
    that satisfy the expression, or is None if the source cannot. `with_limit(int)` may read less, as the plan keeps its
    limit.
    `row_count()` returns the exact number of rows, or None if it is not cheap to know.
    """

    def get_name(self) -> str:
        """The name in plans and progress bars."""
        return type(self).__name__.removesuffix("Datasource")

    def estimate_inmemory_data_size(self) -> int | None:
        """Bytes that all blocks take in memory, roughly; None if unknown."""
        return None

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Splits the source into tasks that read in parallel.

        Args:
            parallelism: The wanted number of tasks; there may be fewer.
            per_task_row_limit: The most rows that each task may yield.
            data_context: The `DataContext` of the data set; None for defaults.
        """
        raise NotImplementedError(f"{type(self).__name__} must define get_read_tasks.")

    @property
    def supports_distributed_reads(self) -> bool:
        """Whether tasks may run on other nodes than the driver's."""
        return True


@dataclasses.dataclass
class WriteResult(Generic[T]):
    """What all tasks of a write did: rows, their bytes in memory, and what each `Datasink.write` returned."""

    num_rows: int
    size_bytes: int
    write_returns: list[T]

    @classmethod
    def combine(cls, *results: WriteResult[T]) -> WriteResult[T]:
        """The sum of several results."""
        return cls(
            sum(result.num_rows for result in results),
            sum(result.size_bytes for result in results),
            [value for result in results for value in result.write_returns],
        )


class Datasink(ABC, Generic[T]):
    """Where a data set goes. Subclass it and give it to `Dataset.write_datasink`."""

    def on_write_start(self, schema: pa.Schema | None = None) -> None:
        """Prepares the write. Runs in the driver, before the sink travels to any task."""

    @abstractmethod
    def write(self, blocks: Iterable[pa.Table], ctx: TaskContext) -> T:
        """Writes blocks; runs in a task, which may be retried: the same `ctx.task_idx` may be written more than once.

        What it returns for the attempt that succeeded is part of the `WriteResult`.
        """

    def on_write_complete(self, write_result: WriteResult[T]) -> None:
        """Commits the write. Runs in the driver, after all tasks succeeded."""

    def on_write_failed(self, error: Exception) -> None:
        """Cleans up. Runs in the driver, after a task failed for good or the write was interrupted."""

    def get_name(self) -> str:
        """The name in plans and progress bars."""
        return type(self).__name__.removesuffix("Datasink")

    @property
    def skips_write(self) -> bool:
        """Whether, after `on_write_start`, nothing is to be written, so that the data set need not be computed."""
        return False

    @property
    def supports_distributed_writes(self) -> bool:
        """Whether tasks may run on other nodes than the driver's."""
        return True

    @property
    def min_rows_per_write(self) -> int | None:
        """The fewest rows of one call of `write`, as far as the data set has them; None for any number."""
        return None

    @property
    def min_bytes_per_write(self) -> int | None:
        """The fewest bytes of one call of `write`, as far as the data set has them; None for any number."""
        return None


def as_table(block: Any) -> pa.Table:
    """A block as a table. Raises TypeError for what is neither a table, a record batch nor a data frame."""
    import pyarrow as pa

    from runtime.data._block import batch

    if isinstance(block, pa.Table | pa.RecordBatch) or (hasattr(block, "iloc") and hasattr(block, "columns")):
        return batch.from_batch(block)
    raise TypeError(
        f"A block is a pyarrow.Table or a pandas.DataFrame, not {type(block).__name__}: {block!r:.200}"
    )
