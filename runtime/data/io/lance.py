"""Lance data sets, read by fragment and written by the library `pylance`."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from runtime.data._libraries import load
from runtime.data.io.interfaces import Datasink, Predicate, SaveMode, TaskContext, WriteResult
from runtime.data.io.tables import TableDatasource, fitted

if TYPE_CHECKING:
    import pyarrow as pa

_MEMORY_RATIO = 2.0  # bytes in memory by bytes in files


class LanceDatasource(TableDatasource):
    """Rows of Lance data sets, a task for one or several fragments.

    Args:
        uri: One or several; they must have the same columns.
        version: A number or a tag; the newest by default.
        columns: The columns to read.
        filter: A condition in SQL, which Lance evaluates.
        storage_options: Of Lance, for the storage.
        scanner_options: Further arguments of `LanceDataset.scanner`.
    """

    def __init__(
        self,
        uri: str | Sequence[str],
        *,
        version: int | str | None = None,
        columns: Sequence[str] | None = None,
        filter: str | None = None,
        storage_options: dict[str, str] | None = None,
        scanner_options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self._open = functools.partial(_opened, storage_options)
        uris = [uri] if isinstance(uri, str | os.PathLike) else list(uri)
        found = [self._open(os.fspath(each), version) for each in uris]
        self._versions = [
            (os.fspath(each), each_found.version) for each, each_found in zip(uris, found, strict=True)
        ]
        self._schema = found[0].schema
        self._sql = filter
        self._options = dict(scanner_options or {})
        if columns is not None:
            self._columns = list(columns)
        self._fragments = [
            ((index, fragment.fragment_id), _bytes_of(fragment), None if filter else fragment.count_rows())
            for index, each in enumerate(found)
            for fragment in each.get_fragments()
        ]

    def _parts(self) -> Sequence[tuple[Any, int, int | None]]:
        return self._fragments

    def _takes(self, predicate: Predicate) -> bool:
        import pyarrow as pa

        # NaN is larger than all numbers to Lance, so that a negation may leave out rows that belong to the result.
        kinds = [self._schema.field(name).type for name in predicate.columns() if name in self._schema.names]
        if self._sql is not None or any(
            pa.types.is_floating(kind) or pa.types.is_nested(kind) for kind in kinds
        ):
            return False
        try:
            dataset = self._open(*self._versions[0])
            dataset.scanner(columns=[], filter=predicate.to_arrow(), with_row_id=True).explain_plan()
        except Exception:  # of whatever kind: the expression stays a step of the plan
            return False
        return True

    def _scan(self, parts: Sequence[Any], columns: list[str]) -> Iterator[pa.Table]:
        import pyarrow as pa

        condition = self._sql if self._predicate is None else self._predicate.to_arrow()
        for index, (uri, version) in enumerate(self._versions):
            ids = [fragment for owner, fragment in parts if owner == index]
            if not ids:
                continue
            dataset = self._open(uri, version)
            scanner = dataset.scanner(
                columns=columns,
                filter=condition,
                fragments=[dataset.get_fragment(fragment) for fragment in ids],
                **{"scan_in_order": True, **self._options},
            )
            for batch in scanner.to_batches():
                yield pa.Table.from_batches([batch])


def _opened(storage_options: dict[str, str] | None, uri: str, version: int | str | None) -> Any:
    return load("lance", "read_lance").dataset(uri, version=version, storage_options=storage_options)


def _bytes_of(fragment: Any) -> int:
    sizes = [file.file_size_bytes or 0 for file in fragment.metadata.files]
    return int(sum(sizes) * _MEMORY_RATIO)


class LanceDatasink(Datasink[Any]):
    """Writes a Lance data set: tasks write fragments, and one commit makes them visible.

    After a failure, fragments that nothing refers to stay in the folder; Lance's `cleanup_old_versions` removes them.

    Args:
        schema: Of the data set; by default that of its first block.
        mode: CREATE, APPEND or OVERWRITE.
        min_rows_per_file: The fewest rows of a fragment, as far as the data set has them.
        max_rows_per_file: The most rows of a fragment.
        data_storage_version: Of Lance's format.
        storage_options: Of Lance, for the storage.

    Raises:
        ValueError: Another mode.
    """

    def __init__(
        self,
        path: str,
        *,
        schema: pa.Schema | None = None,
        mode: SaveMode | str = SaveMode.CREATE,
        min_rows_per_file: int | None = None,
        max_rows_per_file: int = 64 * 1024 * 1024,
        data_storage_version: str | None = None,
        storage_options: dict[str, Any] | None = None,
    ) -> None:
        load("lance", "write_lance")
        self._path = os.fspath(path)
        self._schema = schema
        self._mode = SaveMode.of(mode)
        if self._mode not in (SaveMode.CREATE, SaveMode.APPEND, SaveMode.OVERWRITE):
            raise ValueError(
                f"write_lance has the modes create, append and overwrite, not {self._mode.value!r}."
            )
        self._min_rows = min_rows_per_file
        self._storage_options = storage_options
        self._options: dict[str, Any] = {
            "max_rows_per_file": max_rows_per_file,
            "storage_options": storage_options,
        }
        if data_storage_version is not None:
            self._options["data_storage_version"] = data_storage_version
        self._read_version: int | None = None

    @property
    def min_rows_per_write(self) -> int | None:
        return self._min_rows

    def on_write_start(self, schema: pa.Schema | None = None) -> None:
        """Looks whether the data set exists.

        Raises:
            ValueError: It exists, and the mode is CREATE.
        """
        existing = self._existing()
        if existing is None:
            return
        if self._mode is SaveMode.CREATE:
            raise ValueError(
                f"{self._path} already exists. Use mode='append' or 'overwrite' if that is expected."
            )
        self._read_version = existing.version
        if self._mode is SaveMode.APPEND and self._schema is None:
            self._schema = existing.schema

    def write(self, blocks: Iterable[pa.Table], ctx: TaskContext) -> Any:
        import pyarrow as pa

        lance = load("lance", "write_lance")
        tables = (table for table in blocks if table.num_rows)
        first = next(tables, None)
        if first is None:
            return [], None
        schema = self._schema or first.schema

        failures: list[Exception] = []

        def batches() -> Iterator[pa.RecordBatch]:
            try:
                yield from fitted(first, schema).to_batches()
                for table in tables:
                    yield from fitted(table, schema).to_batches()
            except Exception as error:
                failures.append(error)  # on its way through Lance it would become a text
                raise

        mode = "append" if self._mode is SaveMode.APPEND and self._read_version is not None else "overwrite"
        reader = pa.RecordBatchReader.from_batches(schema, batches())
        try:
            return lance.fragment.write_fragments(reader, self._path, mode=mode, **self._options), schema
        except Exception:
            if failures:
                raise failures[0] from None
            raise

    def on_write_complete(self, write_result: WriteResult[Any]) -> None:
        """Commits all fragments as a new version; without rows there is none."""
        lance = load("lance", "write_lance")
        fragments = [fragment for each, _ in write_result.write_returns for fragment in each]
        schemas = [schema for _, schema in write_result.write_returns if schema is not None]
        if not fragments:
            return
        if self._mode is SaveMode.APPEND and self._read_version is not None:
            operation = lance.LanceOperation.Append(fragments)
        else:
            operation = lance.LanceOperation.Overwrite(self._schema or schemas[0], fragments)
        lance.LanceDataset.commit(
            self._path, operation, read_version=self._read_version, storage_options=self._storage_options
        )

    def _existing(self) -> Any:
        try:
            return load("lance", "write_lance").dataset(self._path, storage_options=self._storage_options)
        except (ValueError, FileNotFoundError):
            return None
