"""Tables whose files a log lists."""

from __future__ import annotations

import os
from typing import Any

from runtime.data.io.errors import missing


def delta_files(path: Any, version: int | None, storage_options: dict[str, str] | None) -> list[str]:
    """The Parquet files of Delta tables.

    Raises:
        ImportError: deltalake is not installed.
    """
    try:
        from deltalake import DeltaTable
    except ImportError:
        raise missing("deltalake", "read_delta") from None
    paths = [path] if isinstance(path, str | os.PathLike) else list(path)
    tables = [DeltaTable(os.fspath(each), version=version, storage_options=storage_options) for each in paths]
    return [str(uri) for table in tables for uri in table.file_uris()]
