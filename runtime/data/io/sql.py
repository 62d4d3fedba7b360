"""Databases, through connections of Python's DB-API (PEP 249)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from runtime.data.io import blocks
from runtime.data.io.files import target_bytes
from runtime.data.io.interfaces import BlockMetadata, Datasink, Datasource, ReadTask, TaskContext

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS_AT_ONCE = 10_000


class SQLDatasource(Datasource):
    """The rows of a query.

    Args:
        sql: The query.
        connection_factory: Makes a connection; runs in tasks, so it must pickle.
        sql_params: Values of the query's parameters.
        shard_keys: Columns by which several tasks share the rows: a row belongs to the task with the number
            `MOD(ABS(shard_hash_fn(CONCAT(keys))), tasks)`. Without them one task runs the query.
        shard_hash_fn: A function of the database that makes an integer of a string.
    """

    def __init__(
        self,
        sql: str,
        connection_factory: Callable[[], Any],
        *,
        sql_params: Any = None,
        shard_keys: Sequence[str] | None = None,
        shard_hash_fn: str = "MD5",
    ) -> None:
        self._sql = sql.strip().rstrip(";")
        self._connect = connection_factory
        self._params = sql_params
        self._shard_keys = list(shard_keys or ())
        self._hash = shard_hash_fn

    def get_name(self) -> str:
        return "SQL"

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        shards = parallelism if self._shard_keys and parallelism > 1 else 1
        size = target_bytes(data_context)
        return [
            ReadTask(
                functools.partial(self._read, self._query(shard, shards), size),
                BlockMetadata(None, None),
                None,
                per_task_row_limit,
            )
            for shard in range(shards)
        ]

    def _query(self, shard: int, shards: int) -> str:
        if shards == 1:
            return self._sql
        keys = self._shard_keys
        key = keys[0] if len(keys) == 1 else f"CONCAT({', '.join(keys)})"
        return f"SELECT * FROM ({self._sql}) AS t WHERE MOD(ABS({self._hash}({key})), {shards}) = {shard}"

    def _read(self, query: str, block_bytes: int) -> Iterator[pa.Table]:
        with closing(self._connect()) as connection:
            cursor = connection.cursor()
            if self._params is None:
                cursor.execute(query)
            else:
                cursor.execute(query, self._params)
            names = [column[0] for column in cursor.description]
            yield from blocks.sized(self._tables(cursor, names), block_bytes)

    def _tables(self, cursor: Any, names: list[str]) -> Iterator[pa.Table]:
        from runtime.data._block import batch

        found = False
        while rows := cursor.fetchmany(_ROWS_AT_ONCE):
            found = True
            columns = zip(*rows, strict=True)
            yield batch.from_batch({name: list(column) for name, column in zip(names, columns, strict=True)})
        if not found:
            yield batch.from_batch({name: [] for name in names})


class SQLDatasink(Datasink[None]):
    """Executes a statement for each row, with its values as parameters; a task's rows are one transaction.

    A task whose worker dies after its transaction, but before this is known, writes its rows again.

    Args:
        sql: For example "INSERT INTO t VALUES (?, ?)", in the database's style of parameters.
        connection_factory: Makes a connection; runs in tasks, so it must pickle.
    """

    def __init__(self, sql: str, connection_factory: Callable[[], Any]) -> None:
        self._sql = sql
        self._connect = connection_factory

    def get_name(self) -> str:
        return "SQL"

    def write(self, blocks: Iterable[pa.Table], ctx: TaskContext) -> None:
        from runtime.data._block import batch

        with closing(self._connect()) as connection:
            cursor = connection.cursor()
            for table in blocks:
                for start in range(0, table.num_rows, _ROWS_AT_ONCE):
                    part = table.slice(start, _ROWS_AT_ONCE)
                    cursor.executemany(self._sql, [tuple(row.values()) for row in batch.rows(part)])
            connection.commit()
