"""Iceberg tables, through the library `pyiceberg`: its catalogs, its plan of files, its commits."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from runtime.data._expression import ColumnExpr, Expr, FunctionExpr, LiteralExpr
from runtime.data._libraries import load
from runtime.data.io.interfaces import Datasink, Predicate, SaveMode, TaskContext, WriteResult
from runtime.data.io.tables import TableDatasource

if TYPE_CHECKING:
    import pyarrow as pa

_MEMORY_RATIO = 4.0  # bytes in memory by bytes in files
_COMPARISONS = {
    "equal": "EqualTo",
    "not_equal": "NotEqualTo",
    "less": "LessThan",
    "less_equal": "LessThanOrEqual",
    "greater": "GreaterThan",
    "greater_equal": "GreaterThanOrEqual",
}
_MIRRORED = {
    "less": "greater",
    "less_equal": "greater_equal",
    "greater": "less",
    "greater_equal": "less_equal",
}


class IcebergDatasource(TableDatasource):
    """Rows of an Iceberg table, a task for one or several of its files.

    Args:
        table_identifier: For example "db.table".
        row_filter: A condition of pyiceberg, as text or expression.
        selected_fields: The columns to read; ("*",) for all.
        snapshot_id: The newest by default.
        scan_kwargs: Further arguments of `Table.scan`.
        catalog_kwargs: Arguments of `pyiceberg.catalog.load_catalog`.
    """

    def __init__(
        self,
        table_identifier: str,
        *,
        row_filter: Any = None,
        selected_fields: Sequence[str] = ("*",),
        snapshot_id: int | None = None,
        scan_kwargs: dict[str, Any] | None = None,
        catalog_kwargs: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        to_arrow = load("pyiceberg.io.pyarrow", "read_iceberg").schema_to_pyarrow
        self._table = _detached(_table(table_identifier, catalog_kwargs, "read_iceberg"))
        self._row_filter = row_filter
        self._scan_options = {"snapshot_id": snapshot_id, **(scan_kwargs or {})}
        scan = self._table.scan(selected_fields=tuple(selected_fields), **self._scan_options)
        self._schema = to_arrow(scan.projection(), include_field_ids=False)
        self._limit = self._scan_options.pop("limit", None)

    def _planned(self) -> Any:
        """pyiceberg's scan with all conditions."""
        expressions = load("pyiceberg.expressions", "read_iceberg")
        scan = self._table.scan(selected_fields=("*",), **self._scan_options)
        if self._row_filter is not None:
            scan = scan.filter(self._row_filter)
        if self._predicate is not None:
            condition = converted(self._predicate, expressions)
            assert condition is not None
            scan = scan.filter(condition)
        return scan

    def _parts(self) -> Sequence[tuple[Any, int, int | None]]:
        exact = self._row_filter is None
        return [
            (
                task,
                int(task.file.file_size_in_bytes * _MEMORY_RATIO),
                task.file.record_count if exact and not task.delete_files else None,
            )
            for task in self._planned().plan_files()
        ]

    def _takes(self, predicate: Predicate) -> bool:
        expressions = load("pyiceberg.expressions", "read_iceberg")
        condition = converted(predicate, expressions)
        if condition is None:
            return False
        try:
            self._table.scan(row_filter=condition, **self._scan_options).plan_files()
        except (ValueError, TypeError):  # a literal of another type than the column's
            return False
        return True

    def _scan(self, parts: Sequence[Any], columns: list[str]) -> Iterator[pa.Table]:
        import pyarrow as pa

        scan = self._planned()
        scanner = load("pyiceberg.io.pyarrow", "read_iceberg").ArrowScan(
            self._table.metadata,
            self._table.io,
            scan.select(*columns).projection(),
            scan.row_filter,
            scan.case_sensitive,
        )
        for batch in scanner.to_record_batches(list(parts)):
            yield pa.Table.from_batches([batch]).select(columns)


def _detached(table: Any) -> Any:
    """The table without its catalog, which may hold a connection: tasks do not need it."""
    of_library = load("pyiceberg.table", "read_iceberg").Table
    return of_library(table.name(), table.metadata, table.metadata_location, table.io, None, table.config)


def converted(predicate: Any, expressions: Any) -> Any:
    """An expression of pyiceberg that holds for all rows for which `predicate` does; None if there is none.

    Comparisons of a column with a value, `is_in`, `is_null` and their combinations by `&` and `|`. Negations stay in
    the plan: what they give for NaN differs.
    """
    if not isinstance(predicate, FunctionExpr):
        return None
    name, args = predicate.function, predicate.args
    if name in ("and_kleene", "or_kleene"):
        sides = [converted(arg, expressions) for arg in args]
        if None in sides:
            return None
        return (expressions.And if name == "and_kleene" else expressions.Or)(*sides)
    if name in ("is_null", "is_valid") and isinstance(args[0], ColumnExpr):
        return (expressions.IsNull if name == "is_null" else expressions.NotNull)(args[0].name)
    if name == "is_in_values" and isinstance(args[0], ColumnExpr) and isinstance(args[1], LiteralExpr):
        values = args[1].value
        return None if None in values or not values else expressions.In(args[0].name, values)
    if name in _COMPARISONS and isinstance(args[0], LiteralExpr):
        name, args = _MIRRORED.get(name, name), (args[1], args[0])
    if name in _COMPARISONS and isinstance(args[0], ColumnExpr) and isinstance(args[1], LiteralExpr):
        value = args[1].value
        if value is None or value != value:
            return None
        return getattr(expressions, _COMPARISONS[name])(args[0].name, value)
    return None


class IcebergDatasink(Datasink[Any]):
    """Writes into an Iceberg table: tasks write data files, and one commit makes them visible.

    After a failure, files that nothing refers to stay; Iceberg's removal of orphan files takes them.

    Args:
        table_identifier: For example "db.table"; the table exists.
        catalog_kwargs: Arguments of `pyiceberg.catalog.load_catalog`.
        snapshot_properties: Of the commit.
        mode: APPEND; OVERWRITE, of all rows or of those for which `overwrite_filter` holds; or UPSERT, which replaces
            rows with equal values in `upsert_kwargs["join_cols"]`, by default the table's identifier fields.
        overwrite_filter: An expression of columns.
        upsert_kwargs: "join_cols", "case_sensitive", "branch".
        overwrite_kwargs: "case_sensitive", "branch".
        schema: Of the rows, if it is known before they are.

    Raises:
        ValueError: Another mode; or a filter that Iceberg does not have.
    """

    def __init__(
        self,
        table_identifier: str,
        *,
        catalog_kwargs: dict[str, Any] | None = None,
        snapshot_properties: dict[str, str] | None = None,
        mode: SaveMode | str = SaveMode.APPEND,
        overwrite_filter: Expr | None = None,
        upsert_kwargs: dict[str, Any] | None = None,
        overwrite_kwargs: dict[str, Any] | None = None,
        schema: pa.Schema | None = None,
    ) -> None:
        self._identifier = table_identifier
        self._catalog_kwargs = catalog_kwargs
        self._properties = dict(snapshot_properties or {})
        self._mode = SaveMode.of(mode)
        if self._mode not in (SaveMode.APPEND, SaveMode.OVERWRITE, SaveMode.UPSERT):
            raise ValueError(
                f"write_iceberg has the modes append, overwrite and upsert, not {self._mode.value!r}."
            )
        expressions = load("pyiceberg.expressions", "write_iceberg")
        self._filter = (
            expressions.AlwaysTrue() if overwrite_filter is None else converted(overwrite_filter, expressions)
        )
        if self._filter is None:
            raise ValueError(
                f"Iceberg cannot remove rows by {overwrite_filter!r}: compare columns with values."
            )
        self._upsert = dict(upsert_kwargs or {})
        self._overwrite = dict(overwrite_kwargs or {})
        self._schema = schema
        self._metadata: Any = None
        self._io: Any = None

    def on_write_start(self, schema: pa.Schema | None = None) -> None:
        """Adds columns to the table that the schema has and the table lacks."""
        table = _table(self._identifier, self._catalog_kwargs, "write_iceberg")
        schema = schema or self._schema
        if schema is not None:
            known = set(table.schema().column_names)
            if any(name not in known for name in schema.names):
                with table.update_schema() as update:
                    update.union_by_name(schema)
        if self._mode is SaveMode.UPSERT:
            keys = self._upsert.get("join_cols") or sorted(table.schema().identifier_field_names())
            if not keys:
                raise ValueError(
                    "mode='upsert' needs upsert_kwargs={'join_cols': [...]}, the columns of the key."
                )
            self._upsert["join_cols"] = keys
        self._metadata, self._io = table.metadata, table.io

    def write(self, blocks: Iterable[pa.Table], ctx: TaskContext) -> Any:
        arrow = load("pyiceberg.io.pyarrow", "write_iceberg")
        files, keys = [], []
        for table in blocks:
            if not table.num_rows:
                continue
            arrow._check_pyarrow_schema_compatible(
                self._metadata.schema(),
                provided_schema=table.schema,
                format_version=self._metadata.format_version,
            )
            files += arrow._dataframe_to_data_files(
                table_metadata=self._metadata, df=table, io=self._io, write_uuid=uuid.uuid4()
            )
            if self._mode is SaveMode.UPSERT:
                keys.append(table.select(self._upsert["join_cols"]))
        return files, keys

    def on_write_complete(self, write_result: WriteResult[Any]) -> None:
        """Commits all files in one transaction."""
        files = [file for found, _ in write_result.write_returns for file in found]
        keys = [table for _, found in write_result.write_returns for table in found]
        table = _table(self._identifier, self._catalog_kwargs, "write_iceberg")
        options = {SaveMode.OVERWRITE: self._overwrite, SaveMode.UPSERT: self._upsert}.get(self._mode, {})
        branch = options.get("branch", "main")
        with table.transaction() as transaction:
            condition = self._filter if self._mode is SaveMode.OVERWRITE else None
            if self._mode is SaveMode.UPSERT and keys:
                condition = self._of_keys(keys)
            if condition is not None:
                transaction.delete(
                    condition,
                    snapshot_properties=self._properties,
                    case_sensitive=options.get("case_sensitive", True),
                    branch=branch,
                )
            if files:
                update = transaction.update_snapshot(snapshot_properties=self._properties, branch=branch)
                with update.fast_append() as append:
                    for file in files:
                        append.append_data_file(file)

    def _of_keys(self, keys: Sequence[pa.Table]) -> Any:
        """The condition of rows that are replaced."""
        import pyarrow as pa

        upsert_util = load("pyiceberg.table.upsert_util", "write_iceberg")
        all_keys, names = pa.concat_tables(keys, promote_options="permissive"), self._upsert["join_cols"]
        if upsert_util.has_duplicate_rows(all_keys, names):
            raise ValueError(f"Several rows have the same key {names}; mode='upsert' needs one of each.")
        return upsert_util.create_match_filter(all_keys, names)


def _table(identifier: str, catalog_kwargs: dict[str, Any] | None, purpose: str) -> Any:
    options = dict(catalog_kwargs or {})
    catalog = load("pyiceberg.catalog", purpose).load_catalog(options.pop("name", None), **options)
    return catalog.load_table(identifier)
