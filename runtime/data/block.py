"""Blocks as the code of users sees them, with Ray's names (`ray.data.block`): `BlockAccessor` reads any block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Union

from runtime.data.io.interfaces import BlockMetadata, as_table

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Block", "BlockAccessor", "BlockMetadata"]

Block = Union["pyarrow.Table", "pandas.DataFrame"]  # type: ignore[name-defined]  # noqa: F821
"""What data sources may yield. Sinks and aggregations always get tables."""


class BlockAccessor:
    """A block in several formats, parts of it and simple aggregates of its columns."""

    def __init__(self, block: Any) -> None:
        self._table = as_table(block)

    @staticmethod
    def for_block(block: Any) -> BlockAccessor:
        """Of a table, a record batch or a pandas.DataFrame. Raises TypeError for anything else."""
        return BlockAccessor(block)

    @staticmethod
    def batch_to_block(batch: Any, block_type: Any = None) -> pa.Table:
        """The block of a batch in any format. `block_type` has no effect: blocks are tables."""
        from runtime.data._block import batch as batches

        return batches.from_batch(batch)

    batch_to_arrow_block = batch_to_block

    def to_arrow(self) -> pa.Table:
        return self._table

    to_block = to_arrow

    def to_pandas(self) -> Any:
        return self.to_batch_format("pandas")

    def to_numpy(self, columns: str | list[str] | None = None) -> Any:
        """The array of one column, or a dict of arrays."""
        from runtime.data._block import batch

        if isinstance(columns, str):
            return batch.column_to_numpy(self._table.column(columns))
        return batch.to_numpy(self._table if columns is None else self._table.select(columns))

    def to_default(self) -> Any:
        return self.to_pandas()

    def to_batch_format(self, batch_format: str | None) -> Any:
        """As `Dataset.iter_batches` gives it, but "default" is "pandas". Raises ValueError for an unknown format."""
        from runtime.data._block import batch

        return batch.to_batch(self._table, "pandas" if batch_format == "default" else batch_format)

    def num_rows(self) -> int:
        return int(self._table.num_rows)

    def size_bytes(self) -> int:
        return int(self._table.nbytes)

    def schema(self) -> pa.Schema:
        return self._table.schema

    def get_metadata(self, input_files: list[str] | None = None, exec_stats: Any = None) -> BlockMetadata:
        return BlockMetadata(self.num_rows(), self.size_bytes(), exec_stats, input_files=input_files or [])

    def iter_rows(self, public_row_format: bool = True) -> Iterator[dict[str, Any]]:
        """The rows as dicts. `public_row_format` has no effect."""
        from runtime.data._block import batch

        return batch.rows(self._table)

    def slice(self, start: int, end: int, copy: bool = False) -> pa.Table:
        """The rows from `start` to before `end`. `copy` has no effect: tables are immutable."""
        return self._table.slice(start, end - start)

    def take(self, indices: Sequence[int]) -> pa.Table:
        return self._table.take(indices)

    def select(self, columns: list[str]) -> pa.Table:
        return self._table.select(columns)

    def count(self, on: str, ignore_nulls: bool = False) -> int:
        """Rows, or with `ignore_nulls` the values of the column that are not null."""
        return self.num_rows() - (self._table.column(on).null_count if ignore_nulls else 0)

    def sum(self, on: str, ignore_nulls: bool) -> Any:
        """None for no values, and for a null if nulls are not ignored; so do the others."""
        return self._reduced("sum", on, ignore_nulls)

    def min(self, on: str, ignore_nulls: bool) -> Any:
        return self._reduced("min", on, ignore_nulls)

    def max(self, on: str, ignore_nulls: bool) -> Any:
        return self._reduced("max", on, ignore_nulls)

    def mean(self, on: str, ignore_nulls: bool) -> Any:
        return self._reduced("mean", on, ignore_nulls)

    def _reduced(self, function: str, on: str, ignore_nulls: bool) -> Any:
        import pyarrow.compute as pc

        reduce: Callable[..., Any] = getattr(pc, function)
        return reduce(self._table.column(on), skip_nulls=ignore_nulls).as_py()
