"""Tables whose files a log lists."""

from __future__ import annotations

import os
from typing import Any

from runtime.data._libraries import load


def delta_files(path: Any, version: int | None, storage_options: dict[str, str] | None) -> list[str]:
    """The Parquet files of Delta tables.

    Raises:
        ImportError: deltalake is not installed.
    """
    delta_table = load("deltalake", "read_delta").DeltaTable
    paths = [path] if isinstance(path, str | os.PathLike) else list(path)
    tables = [
        delta_table(os.fspath(each), version=version, storage_options=storage_options) for each in paths
    ]
    return [str(uri) for table in tables for uri in table.file_uris()]
