"""Functions that make data sets: `read_*` from files and services, `range`; `from_*` are in `from_api`.

Options that all readers share are in `ReadOptions`, those of files in `FileOptions`.
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, cast

from runtime.data.io.files import FileShuffleConfig
from runtime.data.io.interfaces import Datasource
from runtime.data.io.partitioning import Partitioning, PathPartitionFilter

if TYPE_CHECKING:
    from runtime.data.dataset import Dataset

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class ReadOptions(TypedDict, total=False):
    """How read tasks run.

    override_num_blocks: how many tasks read; by default their number follows from the bytes and the CPUs.
    concurrency: how many of them run at a time.
    num_cpus, num_gpus, memory, resources, accelerator_type, label_selector, fallback_strategy, runtime_env, max_calls:
        options of the tasks; ray_remote_args has further ones.
    parallelism: the old name of override_num_blocks.
    """

    override_num_blocks: int | None
    parallelism: int
    concurrency: int | None
    num_cpus: float | None
    num_gpus: float | None
    memory: float | None
    resources: dict[str, float] | None
    accelerator_type: str | None
    label_selector: dict[str, str] | None
    fallback_strategy: list[dict[str, Any]] | None
    runtime_env: dict[str, Any] | None
    max_calls: int | None
    ray_remote_args: dict[str, Any] | None
    compute: Any


class FileOptions(ReadOptions, total=False):
    """Which files are read, and what their paths tell.

    filesystem: of pyarrow or fsspec; by default the paths' schemes decide.
    file_extensions: endings that files must have; None for all files.
    ignore_missing_paths: whether paths that do not exist are skipped.
    include_paths: whether to add the column "path".
    partitioning: how folders encode columns; None for not at all.
    partition_filter: which files to read.
    shuffle: "files" or a FileShuffleConfig for a random order of files.
    arrow_open_stream_args: of `pyarrow.fs.FileSystem.open_input_stream`, for example {"compression": "gzip"}.
    """

    filesystem: Any
    file_extensions: Sequence[str] | None
    ignore_missing_paths: bool
    include_paths: bool
    partitioning: Partitioning | None
    partition_filter: PathPartitionFilter | None
    shuffle: Literal["files"] | FileShuffleConfig | None
    arrow_open_stream_args: dict[str, Any] | None
    arrow_open_file_args: dict[str, Any] | None
    meta_provider: Any


_RUN_NAMES = frozenset(ReadOptions.__annotations__)
_FILE_NAMES = frozenset(FileOptions.__annotations__) - _RUN_NAMES
_TASK_NAMES = _RUN_NAMES - {"override_num_blocks", "parallelism", "concurrency", "ray_remote_args", "compute"}

_IMAGE_EXTENSIONS = ("png", "jpg", "jpeg", "tif", "tiff", "bmp", "gif")
_AUDIO_EXTENSIONS = tuple("mp3 wav aac flac ogg m4a wma alac aiff pcm amr opus ra rm au mid midi caf".split())
_JSON_EXTENSIONS = tuple(
    name + packed for name in ("json", "jsonl") for packed in ("", ".gz", ".br", ".zst", ".lz4", ".bz2")
)


def read_datasource(datasource: Datasource, **options: Any) -> Dataset:
    """Reads a source of one's own.

    Args:
        datasource: The source.
        options: Those of `ReadOptions`.
    """
    unknown = sorted(set(options) - _RUN_NAMES)
    if unknown:
        raise TypeError(
            f"read_datasource does not know the options {unknown}; give them to the datasource itself."
        )
    return _dataset(datasource, options)


def read_parquet(
    paths: Paths, *, columns: Sequence[str] | None = None, tensor_column_schema: Any = None, **options: Any
) -> Dataset:
    """Reads Parquet files. Selected columns, filters, limits and counts are pushed down to the files.

    Args:
        paths: Files, folders, patterns, or several of them, local or with a scheme (s3://, gs://, http://, ...).
        columns: The columns to read.
        tensor_column_schema: Not supported; make tensors with `map_batches`.
        options: Those of `FileOptions`, and of `pyarrow.dataset.Fragment.to_batches`, for example batch_size.
    """
    from runtime.data.io.parquet import ParquetDatasource

    if tensor_column_schema is not None:
        raise NotImplementedError(
            "tensor_column_schema is not supported; reshape the column with map_batches()."
        )
    file_options, run_options, arguments = _split(options)
    file_options.setdefault("partitioning", Partitioning("hive"))
    file_options.setdefault("file_extensions", ["parquet"])
    source = ParquetDatasource(paths, columns=columns, arrow_parquet_args=arguments, **file_options)
    return _dataset(source, run_options)


def read_csv(paths: Paths, **options: Any) -> Dataset:
    """Reads CSV files, whose first lines name the columns.

    Args:
        paths: See `read_parquet`.
        options: Those of `FileOptions`, and read_options, parse_options, convert_options of `pyarrow.csv`.
    """
    from runtime.data.io.csv import CSVDatasource

    file_options, run_options, arguments = _split(options)
    file_options.setdefault("partitioning", Partitioning("hive"))
    return _dataset(CSVDatasource(paths, arrow_csv_args=arguments, **file_options), run_options)


def read_json(paths: Paths, *, lines: bool = False, **options: Any) -> Dataset:
    """Reads JSON files: rows line by line, or a list of rows.

    Args:
        paths: See `read_parquet`.
        lines: Whether each line is a row, even where a file starts with "[".
        options: Those of `FileOptions`, and read_options, parse_options of `pyarrow.json`.
    """
    from runtime.data.io.json import JSONDatasource

    file_options, run_options, arguments = _split(options)
    file_options.setdefault("partitioning", Partitioning("hive"))
    file_options.setdefault("file_extensions", _JSON_EXTENSIONS)
    return _dataset(
        JSONDatasource(paths, lines=lines, arrow_json_args=arguments, **file_options), run_options
    )


def read_text(
    paths: Paths, *, encoding: str = "utf-8", drop_empty_lines: bool = True, **options: Unpack[FileOptions]
) -> Dataset:
    """Reads lines of text, in the column "text".

    Args:
        paths: See `read_parquet`.
        encoding: The files' encoding.
        drop_empty_lines: Whether to leave out lines of white space.
        options: See `FileOptions`.
    """
    from runtime.data.io.text import TextDatasource

    file_options, run_options = _known(options)
    source = TextDatasource(paths, encoding=encoding, drop_empty_lines=drop_empty_lines, **file_options)
    return _dataset(source, run_options)


def read_binary_files(paths: Paths, **options: Unpack[FileOptions]) -> Dataset:
    """Reads whole files, in the column "bytes".

    Args:
        paths: See `read_parquet`.
        options: See `FileOptions`.
    """
    from runtime.data.io.binary import BinaryDatasource

    file_options, run_options = _known(options)
    return _dataset(BinaryDatasource(paths, **file_options), run_options)


def read_numpy(paths: Paths, *, allow_pickle: bool = False, **options: Any) -> Dataset:
    """Reads `.npy` files; elements of the first axis are rows, in the column "data".

    Args:
        paths: See `read_parquet`.
        allow_pickle: Whether files may have Python objects, which run code when they are read.
        options: Those of `FileOptions` and of `numpy.load`.
    """
    from runtime.data.io.arrays import NumpyDatasource

    file_options, run_options, arguments = _split(options)
    file_options.setdefault("file_extensions", ["npy"])
    arguments["allow_pickle"] = allow_pickle
    return _dataset(NumpyDatasource(paths, numpy_load_args=arguments, **file_options), run_options)


def read_images(
    paths: Paths,
    *,
    size: tuple[int, int] | None = None,
    mode: str | None = None,
    **options: Unpack[FileOptions],
) -> Dataset:
    """Reads images as arrays (height, width, channels), in the column "image". Needs Pillow.

    Args:
        paths: See `read_parquet`.
        size: Height and width to which images are resized.
        mode: Pillow's mode to which they are converted, for example "RGB".
        options: See `FileOptions`.
    """
    from runtime.data.io.images import ImageDatasource

    file_options, run_options = _known(options)
    file_options.setdefault("file_extensions", _IMAGE_EXTENSIONS)
    return _dataset(ImageDatasource(paths, size=size, mode=mode, **file_options), run_options)


def read_audio(paths: Paths, **options: Unpack[FileOptions]) -> Dataset:
    """Reads audio files: amplitudes by channel and sample, and the sample rate. Needs soundfile.

    Args:
        paths: See `read_parquet`.
        options: See `FileOptions`.
    """
    from runtime.data.io.audio import AudioDatasource

    file_options, run_options = _known(options)
    file_options.setdefault("file_extensions", _AUDIO_EXTENSIONS)
    return _dataset(AudioDatasource(paths, **file_options), run_options)


def read_tfrecords(paths: Paths, *, tf_schema: Any = None, **options: Unpack[FileOptions]) -> Dataset:
    """Reads TFRecord files of `tf.train.Example` messages, without TensorFlow.

    Args:
        paths: See `read_parquet`.
        tf_schema: Not supported; types follow from the values.
        options: See `FileOptions`.
    """
    from runtime.data.io.tfrecords import TFRecordDatasource

    if tf_schema is not None:
        raise NotImplementedError(
            "tf_schema is not supported; convert columns with with_column() or map_batches()."
        )
    file_options, run_options = _known(options)
    return _dataset(TFRecordDatasource(paths, **file_options), run_options)


def read_webdataset(
    paths: Paths,
    *,
    decoder: Any = True,
    fileselect: list[str] | Callable[[str], bool] | None = None,
    filerename: list[tuple[str, str]] | Callable[[str], str] | None = None,
    suffixes: list[str] | None = None,
    verbose_open: bool = False,
    expand_json: bool = False,
    **options: Unpack[FileOptions],
) -> Dataset:
    """Reads samples of WebDataset's tar files.

    Args:
        paths: See `read_parquet`.
        decoder: True decodes files by their endings, None leaves bytes, a function gets and returns a sample.
        fileselect: Which endings to read: patterns or a function.
        filerename: Pairs of an old and a new ending, or a function.
        suffixes: Endings to read, as patterns.
        verbose_open: No effect.
        expand_json: Whether keys of "json" become columns.
        options: See `FileOptions`.
    """
    from runtime.data.io.webdataset import WebDatasetDatasource

    file_options, run_options = _known(options)
    source = WebDatasetDatasource(
        paths,
        decoder=decoder,
        fileselect=fileselect,
        filerename=filerename,
        suffixes=suffixes,
        expand_json=expand_json,
        **file_options,
    )
    return _dataset(source, run_options)


def read_avro(paths: Paths, **options: Unpack[FileOptions]) -> Dataset:
    """Reads Avro files. Needs fastavro.

    Args:
        paths: See `read_parquet`.
        options: See `FileOptions`.
    """
    from runtime.data.io.avro import AvroDatasource

    file_options, run_options = _known(options)
    return _dataset(AvroDatasource(paths, **file_options), run_options)


def read_orc(paths: Paths, **options: Unpack[FileOptions]) -> Dataset:
    """Reads ORC files.

    Args:
        paths: See `read_parquet`.
        options: See `FileOptions`.
    """
    from runtime.data.io.orc import ORCDatasource

    file_options, run_options = _known(options)
    file_options.setdefault("file_extensions", ["orc"])
    return _dataset(ORCDatasource(paths, **file_options), run_options)


def read_sql(
    sql: str,
    connection_factory: Callable[[], Any],
    *,
    sql_params: Any = None,
    shard_keys: Sequence[str] | None = None,
    shard_hash_fn: str = "MD5",
    **options: Unpack[ReadOptions],
) -> Dataset:
    """Reads the result of a query.

    Args:
        sql: The query.
        connection_factory: Makes a connection of Python's DB-API; it is called in the tasks.
        sql_params: Values of the query's parameters.
        shard_keys: Columns by which tasks share the rows; without them one task reads all.
        shard_hash_fn: A function of the database that makes an integer of a string.
        options: See `ReadOptions`.
    """
    from runtime.data.io.sql import SQLDatasource

    source = SQLDatasource(
        sql, connection_factory, sql_params=sql_params, shard_keys=shard_keys, shard_hash_fn=shard_hash_fn
    )
    return _dataset(source, options)


def read_delta(
    path: Paths,
    version: int | None = None,
    *,
    storage_options: dict[str, str] | None = None,
    columns: Sequence[str] | None = None,
    **options: Any,
) -> Dataset:
    """Reads Delta Lake tables. Needs deltalake.

    Args:
        path: The table, or several.
        version: The version; the newest by default.
        storage_options: Options of deltalake for the storage.
        columns: The columns to read.
        options: Those of `read_parquet`.
    """
    from runtime.data.io.lakes import delta_files

    return read_parquet(delta_files(path, version, storage_options), columns=columns, **options)


def read_lance(
    uri: str | Sequence[str],
    *,
    version: int | str | None = None,
    columns: Sequence[str] | None = None,
    filter: str | None = None,
    storage_options: dict[str, str] | None = None,
    scanner_options: dict[str, Any] | None = None,
    **options: Unpack[ReadOptions],
) -> Dataset:
    """Reads Lance data sets. Needs pylance. Selected columns, filters and counts are pushed down.

    Args:
        uri: One or several.
        version: A number or a tag; the newest by default.
        columns: The columns to read.
        filter: A condition in SQL; better use `Dataset.filter(expr=...)`.
        storage_options: Of Lance, for the storage.
        scanner_options: Further arguments of `LanceDataset.scanner`, for example batch_size.
        options: See `ReadOptions`.
    """
    from runtime.data.io.lance import LanceDatasource

    source = LanceDatasource(
        uri,
        version=version,
        columns=columns,
        filter=filter,
        storage_options=storage_options,
        scanner_options=scanner_options,
    )
    return _dataset(source, options)


def read_iceberg(
    *,
    table_identifier: str,
    row_filter: Any = None,
    selected_fields: Sequence[str] = ("*",),
    snapshot_id: int | None = None,
    scan_kwargs: dict[str, Any] | None = None,
    catalog_kwargs: dict[str, Any] | None = None,
    **options: Unpack[ReadOptions],
) -> Dataset:
    """Reads an Iceberg table. Needs pyiceberg. Selected columns, filters and counts are pushed down.

    Args:
        table_identifier: For example "db.table".
        row_filter: A condition of pyiceberg; better use `Dataset.filter(expr=...)`.
        selected_fields: The columns to read; better use `Dataset.select_columns`.
        snapshot_id: The newest by default.
        scan_kwargs: Further arguments of pyiceberg's `Table.scan`.
        catalog_kwargs: Arguments of `pyiceberg.catalog.load_catalog`, for example name and type.
        options: See `ReadOptions`.
    """
    from runtime.data.io.iceberg import IcebergDatasource

    source = IcebergDatasource(
        table_identifier,
        row_filter=row_filter,
        selected_fields=selected_fields,
        snapshot_id=snapshot_id,
        scan_kwargs=scan_kwargs,
        catalog_kwargs=catalog_kwargs,
    )
    return _dataset(source, options)


def range(
    n: int, *, parallelism: int = -1, concurrency: int | None = None, override_num_blocks: int | None = None
) -> Dataset:
    """The integers from 0 to n - 1, in the column "id".

    Args:
        n: How many.
        parallelism: The old name of `override_num_blocks`.
        concurrency: How many tasks make them at a time.
        override_num_blocks: How many tasks make them.
    """
    from runtime.data.io.memory import RangeDatasource

    options = {
        "parallelism": parallelism,
        "concurrency": concurrency,
        "override_num_blocks": override_num_blocks,
    }
    return _dataset(RangeDatasource(n), options)


def range_tensor(
    n: int,
    *,
    shape: tuple[int, ...] = (1,),
    parallelism: int = -1,
    concurrency: int | None = None,
    override_num_blocks: int | None = None,
) -> Dataset:
    """Tensors filled with the integers from 0 to n - 1, in the column "data".

    Args:
        n: How many.
        shape: Of a tensor.
        parallelism: The old name of `override_num_blocks`.
        concurrency: How many tasks make them at a time.
        override_num_blocks: How many tasks make them.
    """
    from runtime.data.io.memory import RangeDatasource

    options = {
        "parallelism": parallelism,
        "concurrency": concurrency,
        "override_num_blocks": override_num_blocks,
    }
    return _dataset(RangeDatasource(n, tuple(shape), "data"), options)


def _split(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Options of files, those of tasks, and what is left for the format."""
    files = {name: value for name, value in options.items() if name in _FILE_NAMES}
    run = {name: value for name, value in options.items() if name in _RUN_NAMES}
    rest = {name: value for name, value in options.items() if name not in files and name not in run}
    stream_args, file_args = (
        files.pop("arrow_open_stream_args", None),
        files.pop("arrow_open_file_args", None),
    )
    files["open_stream_args"] = stream_args or file_args
    return files, run, rest


def _known(options: FileOptions) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of files and of tasks. Raises TypeError for others."""
    files, run, rest = _split(cast(Mapping[str, Any], options))
    if rest:
        raise TypeError(f"unknown options {sorted(rest)}; known are {sorted(_FILE_NAMES | _RUN_NAMES)}")
    return files, run


def _dataset(source: Datasource, options: Mapping[str, Any]) -> Dataset:
    from runtime.data.dataset import Dataset

    blocks, old = options.get("override_num_blocks"), options.get("parallelism", -1)
    if blocks is None and old not in (-1, None):
        blocks = old
    tasks = {name: options[name] for name in builtins.sorted(_TASK_NAMES) if options.get(name) is not None}
    tasks.update(options.get("ray_remote_args") or {})
    return Dataset._from_datasource(source, tasks, blocks, options.get("concurrency"))
