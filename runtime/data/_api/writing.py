"""Methods of `Dataset` that write its rows."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from runtime.data._exec import reading
from runtime.data._plan import nodes
from runtime.data._plan.rules import optimize

from .compute import compute_of
from .splitting import Splitting


class Writing(Splitting):
    """See `Dataset`."""

    def write_datasink(
        self,
        datasink: Any,
        *,
        ray_remote_args: Mapping[str, Any] | None = None,
        concurrency: int | None = None,
    ) -> None:
        """Writes the rows to a sink, and commits when all tasks have succeeded.

        Raises:
            BaseException: that of the sink or of the plan, after the sink was told (`on_write_failed`).
        """
        from runtime import cloudpickle
        from runtime.data.datasource import WriteResult

        known = self.schema(fetch_if_missing=False)
        datasink.on_write_start(None if known is None else known.base_schema)
        if datasink.skips_write:
            return
        remote_args = dict(ray_remote_args or {})
        if not datasink.supports_distributed_writes:
            remote_args = {**reading.here(), **remote_args}
        least_rows, least_bytes = datasink.min_rows_per_write or 0, datasink.min_bytes_per_write or 0
        gathers = least_rows > 1 or least_bytes
        source = nodes.Gather(self._node, least_rows, least_bytes) if gathers else self._node
        compute = compute_of(None, None, concurrency, {}, remote_args)
        node = optimize(nodes.Write(source, datasink, compute))
        results = []
        try:
            import runtime

            for ref, bundle in self._bundles(node):
                told = runtime.get(ref).slice(bundle.start, bundle.rows).to_pylist()
                results += [
                    WriteResult(row["rows"], row["bytes"], [cloudpickle.loads(row["result"])]) for row in told
                ]
            datasink.on_write_complete(WriteResult.combine(*results))
        except BaseException as error:
            try:
                datasink.on_write_failed(error)
            except Exception as other:
                error.add_note(f"What was written could not be cleared away: {type(other).__name__}: {other}")
            raise

    def write_parquet(
        self,
        path: str,
        *,
        partition_cols: list[str] | None = None,
        arrow_parquet_args_fn: Callable[[], dict[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        """Writes Parquet files into a folder.

        Args:
            partition_cols: columns whose values name folders instead.
            options: those of all files, and arguments of `pyarrow.parquet.write_table`. Those of all files are
                `filesystem`, `try_create_dir`, `arrow_open_stream_args`, `filename_provider`, `mode`,
                `ray_remote_args`, `concurrency`, and how large files are: `max_rows_per_file`, `min_rows_per_file` and
                `min_bytes_per_file`, in memory. The last two put neighbouring blocks of several tasks together.
                They are not there for formats with a file for each row.
        """
        self._write_files(
            "parquet_sink.ParquetDatasink",
            path,
            options,
            "arrow_parquet_args",
            partition_cols=partition_cols,
            arrow_parquet_args_fn=arrow_parquet_args_fn,
        )

    def write_csv(
        self, path: str, *, arrow_csv_args_fn: Callable[[], dict[str, Any]] | None = None, **options: Any
    ) -> None:
        """Writes CSV files. Options: see `write_parquet`; others are arguments of `pyarrow.csv.write_csv`."""
        self._write_files(
            "csv.CSVDatasink", path, options, "arrow_csv_args", arrow_csv_args_fn=arrow_csv_args_fn
        )

    def write_json(
        self, path: str, *, pandas_json_args_fn: Callable[[], dict[str, Any]] | None = None, **options: Any
    ) -> None:
        """Writes JSON lines. Options: see `write_parquet`; others are arguments of `pandas.DataFrame.to_json`."""
        self._write_files(
            "json_sink.JSONDatasink",
            path,
            options,
            "pandas_json_args",
            pandas_json_args_fn=pandas_json_args_fn,
        )

    def write_orc(
        self, path: str, *, arrow_orc_args_fn: Callable[[], dict[str, Any]] | None = None, **options: Any
    ) -> None:
        """Writes ORC files. Options: see `write_parquet`; others are arguments of `pyarrow.orc.ORCWriter`."""
        self._write_files(
            "orc.ORCDatasink", path, options, "arrow_orc_args", arrow_orc_args_fn=arrow_orc_args_fn
        )

    def write_numpy(self, path: str, *, column: str, **options: Any) -> None:
        """Writes one column as npy files. Options: see `write_parquet`."""
        self._write_files("arrays.NumpyDatasink", path, options, column=column)

    def write_images(self, path: str, column: str, file_format: str = "png", **options: Any) -> None:
        """Writes the images of a column, a file for each row. Options: see `write_parquet`."""
        self._write_files("images.ImageDatasink", path, options, column=column, file_format=file_format)

    def write_tfrecords(self, path: str, **options: Any) -> None:
        """Writes TFRecord files. Options: see `write_parquet`."""
        options.pop("tf_schema", None)
        self._write_files("tfrecords.TFRecordDatasink", path, options)

    def write_webdataset(self, path: str, *, encoder: Any = True, **options: Any) -> None:
        """Writes tar files in the way of WebDataset. Options: see `write_parquet`."""
        self._write_files("webdataset.WebDatasetDatasink", path, options, encoder=encoder)

    def write_sql(
        self,
        sql: str,
        connection_factory: Callable[[], Any],
        ray_remote_args: Mapping[str, Any] | None = None,
        concurrency: int | None = None,
    ) -> None:
        """Runs a statement with placeholders, e.g. an INSERT, for each row, in a transaction for each task."""
        sink = importlib.import_module("runtime.data.io.sql").SQLDatasink(sql, connection_factory)
        self.write_datasink(sink, ray_remote_args=ray_remote_args, concurrency=concurrency)

    def write_lance(
        self,
        path: str,
        *,
        ray_remote_args: Mapping[str, Any] | None = None,
        concurrency: int | None = None,
        **options: Any,
    ) -> None:
        """Writes a Lance data set. Needs pylance.

        Args:
            options: `schema`, `mode` (SaveMode.CREATE by default), `min_rows_per_file`, `max_rows_per_file`,
                `data_storage_version`, `storage_options`.
        """
        sink = importlib.import_module("runtime.data.io.lance").LanceDatasink(path, **options)
        self.write_datasink(sink, ray_remote_args=ray_remote_args, concurrency=concurrency)

    def write_iceberg(
        self,
        table_identifier: str,
        catalog_kwargs: dict[str, Any] | None = None,
        *,
        ray_remote_args: Mapping[str, Any] | None = None,
        concurrency: int | None = None,
        **options: Any,
    ) -> None:
        """Writes into an Iceberg table, which gets the columns that it lacks. Needs pyiceberg.

        Args:
            catalog_kwargs: arguments of `pyiceberg.catalog.load_catalog`.
            options: `snapshot_properties`, `mode` (SaveMode.APPEND by default, OVERWRITE, UPSERT), `overwrite_filter`,
                `upsert_kwargs`, `overwrite_kwargs`.
        """
        module = importlib.import_module("runtime.data.io.iceberg")
        schema = self.schema()  # what the table lacks has to be known before tasks write
        options["schema"] = None if schema is None else schema.base_schema
        sink = module.IcebergDatasink(table_identifier, catalog_kwargs=catalog_kwargs, **options)
        self.write_datasink(sink, ray_remote_args=ray_remote_args, concurrency=concurrency)

    def _write_files(
        self, kind: str, path: str, options: dict[str, Any], format_args: str = "", **given: Any
    ) -> None:
        """Writes with a sink of `io`. `format_args`: the sink's name for options that are the format's."""
        module, _, name = kind.rpartition(".")
        remote_args, concurrency = options.pop("ray_remote_args", None), options.pop("concurrency", None)
        for name_here, name_there in _RENAMED.items():
            if name_here in options:
                options[name_there] = options.pop(name_here)
        if "num_rows_per_file" in options:
            if options.get("min_rows_per_file") is not None:
                raise ValueError("Give min_rows_per_file only: num_rows_per_file is its old name.")
            warnings.warn("num_rows_per_file is now min_rows_per_file.", DeprecationWarning, stacklevel=3)
            options["min_rows_per_file"] = options.pop("num_rows_per_file")
        of_files = {key: options.pop(key) for key in _OF_FILES if key in options}
        if options and not format_args:
            raise TypeError(f"There is no option {next(iter(options))!r}.")
        if options:
            given[format_args] = options
        sink = getattr(importlib.import_module(f"runtime.data.io.{module}"), name)(path, **of_files, **given)
        self.write_datasink(sink, ray_remote_args=remote_args, concurrency=concurrency)


_OF_FILES = (
    "filesystem",
    "try_create_dir",
    "open_stream_args",
    "filename_provider",
    "min_rows_per_file",
    "min_bytes_per_file",
    "max_rows_per_file",
    "mode",
)
_RENAMED = {"arrow_open_stream_args": "open_stream_args"}
