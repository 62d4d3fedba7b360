"""Cuts and joins what files yield into blocks of sensible size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

TARGET_BYTES = 128 * 1024 * 1024
"""The size of a block in memory that is not exceeded, where nothing else is asked for."""

FIRST_BLOCK_BYTES = 1024 * 1024
"""Small tables are joined to this size for the first block of a task, which comes soon; the size then doubles."""


def sized(tables: Iterable[pa.Table], target_bytes: int, rows: int | None = None) -> Iterator[pa.Table]:
    """Yields the rows of `tables`, in order, in blocks of at most about `target_bytes`.

    Small tables are joined if their schemas are the same but for the shapes of tensors. An empty table is yielded only
    if nothing else is, for its schema.

    Args:
        tables: What a task reads.
        target_bytes: The size of a block in memory that is not to be exceeded, except by a single row.
        rows: The most rows to yield; reading stops there.
    """
    pending: list[pa.Table] = []
    pending_bytes, wanted_bytes = 0, min(FIRST_BLOCK_BYTES, target_bytes)
    empty: pa.Table | None = None
    yielded = False
    for table in tables:
        if rows is not None:
            table = table.slice(0, rows)
            rows -= table.num_rows
        if table.num_rows == 0:
            empty = table if empty is None else empty
        else:
            size = table.nbytes
            fits = pending_bytes + size <= target_bytes
            if pending and not (fits and _may_join(pending[0].schema, table.schema)):
                yield _joined(pending)
                pending, pending_bytes, yielded = [], 0, True
                wanted_bytes = min(2 * wanted_bytes, target_bytes)
            if size > target_bytes:
                yield from _cut(table, size, target_bytes)
                yielded = True
            else:
                pending.append(table)
                pending_bytes += size
                if pending_bytes >= wanted_bytes:
                    yield _joined(pending)
                    pending, pending_bytes, yielded = [], 0, True
                    wanted_bytes = min(2 * wanted_bytes, target_bytes)
        if rows is not None and rows <= 0:
            break
    if pending:
        yield _joined(pending)
    elif not yielded and empty is not None:
        yield empty


def joined(tables: Iterable[pa.Table], least_bytes: int, least_rows: int) -> Iterator[pa.Table]:
    """Joins tables until they have so many bytes and rows; the last may have fewer, and those before other columns."""
    pending: list[pa.Table] = []
    rows = size = 0
    for table in tables:
        if table.num_rows == 0:
            continue
        if pending and not _may_join(pending[0].schema, table.schema):
            yield _joined(pending)
            pending, rows, size = [], 0, 0
        pending.append(table)
        rows, size = rows + table.num_rows, size + table.nbytes
        if size >= least_bytes and rows >= least_rows:
            yield _joined(pending)
            pending, rows, size = [], 0, 0
    if pending:
        yield _joined(pending)


def _may_join(first: pa.Schema, second: pa.Schema) -> bool:
    if first.equals(second):
        return True
    if first.names != second.names:
        return False
    return all(
        one == other or (_dimensions(one) is not None and _dimensions(one) == _dimensions(other))
        for one, other in zip(first.types, second.types, strict=True)
    )


def _dimensions(kind: pa.DataType) -> int | None:
    """Of how many dimensions a tensor type is; None for another type."""
    from runtime.data._block import tensor

    if tensor.is_fixed(kind):
        return len(kind.shape)
    return int(kind.ndim) if tensor.is_ragged(kind) else None


def _joined(tables: list[pa.Table]) -> pa.Table:
    from runtime.data._block import schema_diff

    return tables[0] if len(tables) == 1 else schema_diff.concat(tables).combine_chunks()


def _cut(table: pa.Table, size: int, target_bytes: int) -> Iterator[pa.Table]:
    step = max(1, table.num_rows * target_bytes // size)
    for start in range(0, table.num_rows, step):
        yield table.slice(start, step)
